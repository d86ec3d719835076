// Weights that parts in several pipeline stages share: their gradients are summed over these stages, and all else is as
// in a serial run.
#include <filesystem>

#include "parallel/model/chain.h"
#include "parallel/plan/ties.h"
#include "tests/parallel/run_segments.h"
#include "tests/parallel/tied.h"

namespace test_tied {

using namespace trireme;
using namespace trireme::test;

namespace {

std::vector<PipelineOptions> schedules_of(int micro, int ranks) {
  std::vector<PipelineOptions> all;
  for (const PipelineSchedule& s : schedules()) {
    const int chunks = s.interleaves || s.folds ? 2 : 1;
    if (chunks == 1 || (ranks <= 3 && (s.folds || micro % ranks == 0)))
      all.push_back({.micro = micro, .schedule = s.name, .chunks = chunks, .partition = "even"});
  }
  return all;
}

}  // namespace

TEST_CASE("a part knows the weights that it uses of a part before it") {
  for (const TiedModel& m : tied_models) {
    Module model = m.make();
    const Parameters parameters(model);
    const auto parts = Chain(model).parts(parameters);
    std::size_t tied = 0;
    for (const PartInfo& part : parts)
      for (const Slice& s : part.tied) {
        ++tied;
        CHECK_FALSE(part.slice.overlaps(s));
        std::size_t tensors = 0;
        for (const Parameters::Entry& e : parameters.entries()) tensors += e.slice.overlaps(s);
        CHECK(tensors == 1);
        const auto entry =
            std::ranges::find(parameters.entries(), s.begin, [](const auto& e) { return e.slice.begin; });
        REQUIRE(entry != parameters.entries().end());
        CHECK(s.end >= entry->slice.end);
      }
    CHECK(tied == (m.name == std::string("two layers in five parts") ? 5 : 1));
  }
  Module apart = Sequential{Linear(4, 4), Linear(4, 4)};
  for (const PartInfo& part : Chain(apart).parts(Parameters(apart))) CHECK(part.tied.empty());
}

TEST_CASE("weights of several stages train as in a serial run", "[table][device]") {
  const std::vector<OptimizerConfig> recipes = {Sgd{.lr = 0.05}, Sgd{.lr = 0.05, .momentum = 0.9}, AdamW{.lr = 0.01},
                                                Lars{.lr = 0.1}, Lamb{.lr = 0.01}};
  std::size_t runs = 0, turn = 0;
  for (int micro : {1, 2, 4})
    for (const TiedModel& m : tied_models) {
      std::vector<Outcome> references;
      for (const OptimizerConfig& optimizer_config : recipes)
        references.push_back(serial_run(tied_setup(m.make, optimizer_config), accumulate(micro)));
      for (int stages : {2, 3, 4})
        for (int data : {1, 2, 3})
          for (const char* after : {"", " | zero(1)", " | zero(2)", " | zero(3)", " | central_storage"})
            for (const PipelineOptions& o : schedules_of(micro, stages)) {
              if (other_ranks(stages * data)) continue;
              if (data == 1 && after[0] != '\0') continue;
              if (++turn % (brief() ? 7 : 2) != 0) continue;  // of all, so that each value of each is met
              const std::size_t optimizer_config = runs++ % recipes.size();
              Strategy strategy = pipeline(o);
              if (data > 1)
                strategy = strategy | data_parallel({.first_bucket = 16, .bucket = 40, .overlap = runs % 3 > 0});
              if (after[0] != '\0') strategy = strategy | parse_strategy(after + 3);
              INFO(m.name << ", " << o.schedule << ", stages " << stages << ", data " << data << after << ", micro "
                          << micro << ", optimizer " << optimizer_config);
              check_close(parallel_run(tied_setup(m.make, recipes[optimizer_config]),
                                       {{"pipe", stages}, {"data", data}}, strategy),
                          references[optimizer_config], 1e-12);
            }
    }
  if (!under_mpi()) CHECK(runs >= (brief() ? 40U : 400U));
}

TEST_CASE("what parts on one rank share is gathered and reduced once for all of them", "[table]") {
  for (const TiedModel& m : tied_models)
    for (int micro : {1, 3}) {
      const Setup s = tied_setup(m.make, AdamW{.lr = 0.01});
      const auto reference = serial_run(s, accumulate(micro));
      for (int ranks : rank_counts({2, 3}))
        for (const char* after : {"data_parallel", "data_parallel(overlap=false)", "zero(1)", "zero(2)", "zero(3)"}) {
          INFO(m.name << ", " << after << " on " << ranks << " ranks, " << micro << " micro-batches");
          check_close(parallel_run(s, ranks, accumulate(micro) | parse_strategy(after)), reference, 1e-12);
        }
    }
}

TEST_CASE("on integers shared weights equal those of a serial run bit by bit", "[device]") {
  Setup s = tied_setup([] {
    const Embedding wte(vocabulary, 4);
    return with_integers(Sequential{ids_of, wte, flatten, Linear(24, 4), relu, Linear(4, 4), LmHead(wte.weight)});
  });
  s.loss = pattern_loss;
  s.optimizer_config = Sgd{.lr = 0.125};
  s.optimizer = {};
  s.integers = true;
  s.steps = 2;
  s.batch = 8;
  s.samples = 24;
  const auto reference = serial_run(s);
  for (double w : reference.weights) REQUIRE(std::ldexp(w, 20) == std::round(std::ldexp(w, 20)));
  for (auto [stages, data] : {std::pair{2, 1}, {3, 1}, {2, 2}, {3, 2}})
    for (const PipelineOptions& o : schedules_of(4, stages)) {
      if (stages * o.chunks > 6 || (under_mpi() && processes().size() != stages * data)) continue;
      INFO(o.schedule << ", " << stages << " stages, data " << data);
      const Strategy strategy = data > 1 ? pipeline(o) | data_parallel() : pipeline(o);
      check_same_bits(parallel_run(s, {{"pipe", stages}, {"data", data}}, strategy), reference);
    }
}

TEST_CASE("the copies of shared weights have the same bits after any number of steps") {
  if (threads_only()) return;
  const auto same = [](const Setup& s, const std::vector<Axis>& axes, const Strategy& strategy, bool scaled = false) {
    return on_ranks(ranks_of(axes), [&](World& world) {
      TiedRun run(s, world, axes, strategy, {.loss_scale = scaled ? 1024.0 : 0.0, .epoch_steps = 4});
      run.feed(s, 9);
      const auto ties = ties_of(run.step->plan());
      const int data = run.mesh.index("data"), stage = run.mesh.index("pipe");
      bool equal = !ties.empty();
      for (const Tie& tie : ties) {
        const bool mine = std::ranges::find(tie.programs, stage) != tie.programs.end();
        Tensor copy = Tensor::zeros({tie.slice.size()}, DType::f64);
        if (mine) {
          const auto held = run.held();
          copy = Tensor::of(std::vector(held.begin() + tie.slice.begin, held.begin() + tie.slice.end),
                            {tie.slice.size()}, DType::f64);
        }
        // The greatest and the least of those who hold it.
        Tensor most = copy.clone(), least = copy.clone();
        if (!mine) {
          most = Tensor::full(copy.shape(), -1e9, DType::f64);
          least = Tensor::full(copy.shape(), 1e9, DType::f64);
        }
        const auto column = world.comm().split(data, stage);
        column->all_reduce(most, ReduceOp::max).wait();
        column->all_reduce(least, ReduceOp::min).wait();
        equal = equal && most.to_vector() == least.to_vector();
      }
      const Tensor all = Tensor::full({1}, equal, DType::i64);
      world.comm().all_reduce(all, ReduceOp::min).wait();
      return all.item() == 1;
    });
  };
  for (const TiedModel& m : tied_models)
    for (const char* text :
         {"pipeline(micro=4)", "pipeline(micro=4, schedule=zb-h1) | zero(1)", "pipeline(micro=2) | zero(2)",
          "pipeline(micro=4) | data_parallel | compress(codec=topk, ratio=0.3)",
          "pipeline(micro=4) | data_parallel | compress(codec=powersgd)",
          "pipeline(micro=4) | data_parallel | compress(codec=randomk, ratio=0.3)",
          "pipeline(micro=4) | data_parallel | compress(codec=onebit)",
          "pipeline(micro=4) | data_parallel | compress(codec=bf16)",
          "pipeline(micro=4) | data_parallel | compress(codec=qsgd)",
          "pipeline(micro=6, schedule=interleaved, chunks=2) | local_sgd(every=2)",
          "pipeline(micro=4) | local_sgd(every=3, outer_lr=0.7, outer_momentum=0.5)",
          "pipeline(micro=2) | easgd(every=2)", "pipeline(micro=2) | local_sgd(every=2, from_epoch=1)",
          "pipeline(micro=2) | gossip(graph=exponential)", "pipeline(micro=2) | gossip(graph=ring, mode=push_sum)"}) {
      INFO(m.name << ": " << text);
      Setup s = tied_setup(m.make, AdamW{.lr = 0.01});
      const bool alone = std::string(text).find('|') == std::string::npos;
      const bool apart =
          std::string(text).find("sgd(") != std::string::npos || std::string(text).find("gossip") != std::string::npos;
      CHECK(same(s, {{"pipe", 3}, {"data", alone ? 1 : 4}}, parse_strategy(text)));
      s.dtype = DType::f32;
      if (!apart && std::string(text).find("compress") == std::string::npos)
        CHECK(same(s, {{"pipe", 2}, {"data", alone ? 1 : 3}}, parse_strategy(text), true));
    }
}

TEST_CASE("runs with shared weights go on from their checkpoints under other cuts and strategies", "[table]") {
  if (threads_only()) return;
  const std::vector<Arrangement> all = {{{}, "accumulate(micro=2)"},
                                        {{{"pipe", 2}}, "pipeline(micro=2)"},
                                        {{{"pipe", 3}}, "pipeline(micro=2, schedule=zb-h1, partition=even)"},
                                        {{{"pipe", 2}, {"data", 2}}, "pipeline(micro=2) | data_parallel"},
                                        {{{"data", 3}}, "accumulate(micro=2) | zero(3)"},
                                        {{{"pipe", 2}, {"data", 3}}, "pipeline(micro=2, partition=even) | zero(2)"},
                                        {{{"data", 2}, {"pipe", 3}}, "pipeline(micro=2) | zero(3)"},
                                        {{{"pipe", 2}}, "pipeline(micro=2, schedule=interleaved, chunks=2)"}};
  const auto root = std::filesystem::temp_directory_path() / ("tied_" + std::to_string(::getpid()));
  for (const TiedModel& m : tied_models) {
    Setup s = tied_setup(m.make, AdamW{.lr = 0.01});
    s.samples = 60;
    const auto segment = [&](const Arrangement& how, const RunSegment& r) {
      return on_ranks(ranks_of(how.mesh), [&](World& world) { return train_segment(s, world, how, r); });
    };
    std::filesystem::remove_all(root);
    segment(all[0], {.from = "", .to = root / "a"});
    const TrainedState expected = segment(all[0], {.from = root / "a", .to = root / "b"});
    for (std::size_t i = 1; i < all.size(); ++i) {
      const Arrangement &one = all[i], &next = all[i % (all.size() - 1) + 1];
      INFO(m.name << ": " << one.strategy << ", then " << next.strategy);
      const std::string first = root / ("first" + std::to_string(i)), then = root / ("then" + std::to_string(i));
      segment(one, {.from = "", .to = first});
      CHECK(difference(segment(next, {.from = first, .to = then}), expected, 1e-11) == "");
    }
  }
  std::filesystem::remove_all(root);
}

}  // namespace test_tied
