// Weights that parts in several pipeline stages share: their gradients are summed over these stages, and all else is as
// in a serial run.
#include <filesystem>

#include "framework/layers/on.h"
#include "parallel/analysis/simulate.h"
#include "parallel/analysis/verify.h"
#include "parallel/model/chain.h"
#include "parallel/plan/memory.h"
#include "parallel/plan/on_call.h"
#include "parallel/plan/planned_traffic.h"
#include "parallel/plan/ties.h"
#include "tests/parallel/run_segments.h"
#include "tests/parallel/tied.h"

using namespace trireme;
using namespace trireme::test;

namespace {

struct Model {
  const char* name;
  std::function<Module()> make;
};
const std::vector<Model> models = {{"embedding and head", [] { return tied_model(); }},
                                   {"a head without weights", [] { return tied_model(false); }},
                                   {"two layers in five parts", [] { return twice_tied_model(); }}};

std::vector<PipelineOptions> schedules_of(int micro, int ranks) {
  std::vector<PipelineOptions> all;
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
    const bool chunks = schedule == std::string("interleaved");
    if (!chunks || (ranks <= 3 && micro % ranks == 0))
      all.push_back({.micro = micro, .schedule = schedule, .chunks = chunks ? 2 : 1, .partition = "even"});
  }
  return all;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) { return e.what(); }
  return "";
}

/// A step of a plan, with the model of a setup.
struct Run {
  Run(const Setup& s, World& world, std::vector<Axis> axes, const Strategy& strategy, StepOptions options = {})
      : model(s.model()), mesh(world, std::move(axes)) {
    initialize(model, 1);
    convert(model, s.dtype);
    options.seed = 5, options.optimizer = s.optimizer;
    step.emplace(model, s.loss, s.recipe, mesh, strategy, options);
  }
  void feed(const Setup& s, int steps) {
    Loader loader(Dataset(std::make_unique<Noise>(s.samples, s.shape, s.integers)),
                  {.batch = s.batch, .seed = 3, .shard = step->shard(), .workers = 0, .dtype = s.dtype});
    for (int done = 0; done < steps;)
      for (auto& [x, y] : loader) {
        if (done++ == steps) break;
        (*step)(x, y);
      }
  }
  /// What this rank holds of what it updates, 0 elsewhere, without bringing weights together.
  std::vector<double> held() {
    std::vector<double> all(static_cast<std::size_t>(step->parameters().size()));
    for (const Slice& s : step->updated()) {
      const auto values = step->parameters().values().rows(s.begin, s.end).to_vector();
      std::ranges::copy(values, all.begin() + s.begin);
    }
    return all;
  }

  Module model;
  Mesh mesh;
  std::optional<Step> step;
};

}  // namespace

TEST_CASE("a part knows the weights that it uses of a part before it") {
  for (const Model& m : models) {
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
                                                Lars{.lr = 0.1}};
  std::size_t runs = 0, turn = 0;
  for (int micro : {1, 2, 4})
    for (const Model& m : models) {
      std::vector<Outcome> references;
      for (const OptimizerConfig& recipe : recipes)
        references.push_back(serial_run(tied_setup(m.make, recipe), accumulate(micro)));
      for (int stages : {2, 3, 4})
        for (int data : {1, 2, 3})
          for (const char* after : {"", " | zero(1)", " | zero(2)", " | zero(3)", " | central_storage"})
            for (const PipelineOptions& o : schedules_of(micro, stages)) {
              if (under_mpi() && processes().size() != stages * data) continue;
              if (data == 1 && after[0] != '\0') continue;
              if (++turn % (brief() ? 7 : 2) != 0) continue;  // of all, so that each value of each is met
              const std::size_t recipe = runs++ % (after[0] == '\0' ? 4 : 3);  // LARS wants whole tensors
              Strategy strategy = pipeline(o);
              if (data > 1)
                strategy = strategy | data_parallel({.first_bucket = 16, .bucket = 40, .overlap = runs % 3 > 0});
              if (after[0] != '\0') strategy = strategy | parse_strategy(after + 3);
              INFO(m.name << ", " << o.schedule << ", stages " << stages << ", data " << data << after << ", micro "
                          << micro << ", optimizer " << recipe);
              check_close(
                  parallel_run(tied_setup(m.make, recipes[recipe]), {{"pipe", stages}, {"data", data}}, strategy),
                  references[recipe], 1e-12);
            }
    }
  if (!under_mpi()) CHECK(runs >= (brief() ? 40U : 400U));
}

TEST_CASE("what parts on one rank share is gathered and reduced once for all of them", "[table]") {
  for (const Model& m : models)
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
  s.loss = pattern_loss, s.recipe = Sgd{.lr = 0.125}, s.optimizer = {}, s.integers = true;
  s.steps = 2, s.batch = 8, s.samples = 24;
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
      Run run(s, world, axes, strategy, {.loss_scale = scaled ? 1024.0 : 0.0, .epoch_steps = 4});
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
        if (!mine)
          most = Tensor::full(copy.shape(), -1e9, DType::f64), least = Tensor::full(copy.shape(), 1e9, DType::f64);
        const auto column = world.comm().split(data, stage);
        column->all_reduce(most, ReduceOp::max).wait(), column->all_reduce(least, ReduceOp::min).wait();
        equal = equal && most.to_vector() == least.to_vector();
      }
      const Tensor all = Tensor::full({1}, equal, DType::i64);
      world.comm().all_reduce(all, ReduceOp::min).wait();
      return all.item() == 1;
    });
  };
  for (const Model& m : models)
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

TEST_CASE("the norm of gradients counts shared weights once") {
  for (const Model& m : models) {
    const auto norm = [&](World& world, std::vector<Axis> axes, const Strategy& strategy) {
      const Setup s = tied_setup(m.make);
      Run run(s, world, std::move(axes), strategy);
      run.feed(s, 1);
      return run.step->grad_norm();
    };
    World one;
    const double expected = norm(one, {}, accumulate(2));
    CHECK(expected > 0.1);
    for (auto [stages, data, after] :
         {std::tuple{2, 1, ""}, {3, 1, ""}, {2, 2, ""}, {3, 2, "zero(1)"}, {3, 2, "zero(3)"}}) {
      if (under_mpi() && processes().size() != stages * data) continue;
      const Strategy behind = after[0] != '\0' ? parse_strategy(after) : data_parallel();
      const Strategy strategy = data > 1 ? pipeline({.micro = 2}) | behind : pipeline({.micro = 2});
      const double got = on_ranks(stages * data, [&](World& world) {
        return norm(world, {{"pipe", stages}, {"data", data}}, strategy);
      });
      CHECK(got == Approx(expected).epsilon(1e-12));
    }
  }
}

TEST_CASE("a step with shared weights sends what its plan says, and what the simulator counts") {
  if (threads_only()) return;
  for (const Model& m : models)
    for (const char* text : {"pipeline(micro=4) | data_parallel", "pipeline(micro=4, schedule=zb-h1) | zero(1)",
                             "pipeline(micro=2, schedule=gpipe) | zero(3)", "pipeline(micro=4) | local_sgd(every=2)",
                             "pipeline(micro=4, schedule=interleaved, chunks=2) | data_parallel"}) {
      INFO(m.name << ": " << text);
      const std::string fault = on_ranks(4, [&](World& world) {
        Setup s = tied_setup(m.make);
        if (std::string(text).find("local_sgd") != std::string::npos) s.optimizer = {};
        Run run(s, world, {{"pipe", 2}, {"data", 2}}, parse_strategy(text),
                {.example = Tensor::zeros({2, 3, 2, 1}, DType::f64)});
        run.feed(s, 3);
        run.step->consolidate();
        std::string found;
        for (const std::string phase : {"", phases::evaluation, phases::set_up}) {
          const auto [planned, counted] = run.step->traffic(phase);
          if (planned != counted) found += "phase '" + phase + "' sends other bytes; ";
        }
        const Plan& plan = run.step->plan();
        const bool sums = std::ranges::any_of(plan.programs[0].actions,
                                              [](const Action& a) { return a.kind == ActionKind::sum_tied; });
        if (!sums) found += "no sum; ";
        for (const Folding folding : {Folding::folded, Folding::unfolded}) {
          const Simulation sim = simulate(plan, {.element = 8, .step = 2, .folding = folding});
          const auto stage = static_cast<std::size_t>(run.mesh.index("pipe"));
          const Traffic planned = planned_traffic(
              plan, stage, {.parameters = DType::f64, .buffers = DType::f64, .loss = DType::f64, .step = 2});
          for (const AxisTraffic& axis : sim.traffic[stage])
            if (planned.at(axis.axis).bytes != axis.bytes)
              found += fmt::format("the simulator counts {} bytes along {}; ", axis.bytes, axis.axis);
        }
        const Tensor all = Tensor::full({1}, found.empty(), DType::i64);
        world.comm().all_reduce(all, ReduceOp::min).wait();
        return all.item() == 1 ? std::string() : "some rank: " + found;
      });
      CHECK(fault == "");
    }
}

TEST_CASE("verify finds no difference") {
  if (threads_only()) return;
  for (const Model& m : models) {
    const Subject subject{
        .model =
            [&] {
              Module model = m.make();
              initialize(model, 7);
              convert(model, DType::f64);
              return model;
            },
        .loss = cross_entropy,
        .recipe = Sgd{.lr = 0.1, .momentum = 0.9},
        .batch =
            [](int step) {
              std::vector<double> x, y;
              for (std::uint64_t i = 0; i < 12 * 6; ++i)
                x.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(step) * 1000 + i) % 100) / 100);
              for (std::uint64_t i = 0; i < 12; ++i) y.push_back(static_cast<double>(mix(i) % 5));
              return std::pair(Tensor::of(x, {12, 3, 2, 1}, DType::f64), Tensor::of(y, {12}, DType::i64));
            }};
    const auto found = [&](const std::vector<Axis>& axes, const Strategy& strategy) {
      return on_ranks(ranks_of(axes), [&](World& world) {
        Mesh mesh(world, axes);
        const auto difference = verify(subject, mesh, strategy);
        return difference ? difference->to_string() : std::string();
      });
    };
    CHECK(found({{"pipe", 3}}, pipeline({.micro = 2})) == "");
    CHECK(found({{"pipe", 2}, {"data", 2}}, parse_strategy("pipeline(micro=4) | zero(3)")) == "");
    CHECK(found({{"pipe", 2}, {"data", 2}}, parse_strategy("pipeline(micro=4, schedule=zb-h1) | data_parallel")) == "");
    CHECK(found({{"data", 3}}, zero(3)) == "");
  }
}

TEST_CASE("both stages' memory counts shared weights") {
  const auto numbers = [](Sequential layers) {
    Module model = std::move(layers);
    Parameters parameters(model);
    const Chain chain(model);
    const Plan plan = pipeline({.micro = 2, .partition = "even"})(
        serial(chain.parts(parameters), parameters.size(), 0, {{"pipe", 2}}));
    return predict_memory(plan, {.element = 4, .states = 2});
  };
  const Embedding wte(vocabulary, 4);
  const auto tied = numbers(tied_model()),
             untied = numbers([] {
               Sequential layers = tied_model();
               const Embedding other(vocabulary, 4);
               return Sequential{ids_of,
                                 other,
                                 flatten,
                                 Linear(24, 4),
                                 relu,
                                 LayerNorm(4),
                                 Linear(4, 5),
                                 Linear(5, 4),
                                 relu,
                                 Linear(4, 4),
                                 LmHead(Tensor::zeros({vocabulary, 4}), Tensor::zeros({vocabulary}))};
             }());
  for (int stage : {0, 1}) {  // but for padding
    CHECK(std::abs(tied[stage].weights - untied[stage].weights) < 64);
    CHECK(std::abs(tied[stage].gradients - untied[stage].gradients) < 64);
    CHECK(std::abs(tied[stage].optimizer - untied[stage].optimizer) < 128);
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
  for (const Model& m : models) {
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

TEST_CASE("what cannot be done with shared weights is refused by name") {
  const auto refused = [](std::vector<Axis> axes, const Strategy& strategy, const std::function<Module()>& model,
                          bool unsound = false) {
    return error_of([&] {
      World::threads(ranks_of(axes), [&](World& world) {
        Mesh mesh(world, axes);
        Step step(model(), cross_entropy, Sgd{}, mesh, strategy, {.refuse_unsound = !unsound});
      });
    });
  };
  const std::vector<Axis> two{{"pipe", 2}}, four{{"pipe", 2}, {"data", 2}};
  for (const char* schedule : {"pipedream", "2bw"})
    CHECK_THAT(
        refused(two, pipeline({.micro = schedule == std::string("2bw") ? 2 : 1, .schedule = schedule}), models[0].make),
        contains("used by parts of several stages") && contains("take one that ends with its step (1f1b)"));
  CHECK_THAT(refused(four, parse_strategy("pipeline | gossip(graph=ring, mode=async)"), models[0].make),
             contains("their copies of weights") && contains("mode=sync"));
  const auto buffers = [] {
    const BatchNorm same(4);
    return Sequential{flatten, Linear(6, 4), same, relu, Linear(4, 4), same, Linear(4, 5)};
  };
  CHECK_THAT(refused(two, pipeline({.partition = "even"}), buffers),
             contains("share the buffer") && contains("cut elsewhere"));
  // A plan by hand that knows nothing of ties.
  const Strategy unaware = pipeline({.partition = "even"}) | Strategy("unaware", Claim::exact, [](Plan plan) {
                             for (Program& program : plan.programs) {
                               const ActionId sum = tied_sums(program, {0, plan.parameters}).at(0);
                               program.actions[sum].kind = ActionKind::drop_values;
                               program.actions.erase(program.actions.begin() + sum);
                               for (Action& a : program.actions) {
                                 std::erase(a.after, sum);
                                 for (ActionId& id : a.after) id -= id > sum;
                               }
                             }
                             return plan;
                           });
  for (const bool unsound : {false, true}) CHECK_THAT(refused(two, unaware, models[0].make, unsound), contains("sum"));
}
