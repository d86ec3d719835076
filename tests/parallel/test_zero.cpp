// ZeRO: shards of the optimizer's state, the gradients and the weights, against the serial run; central storage.
#include <sys/mman.h>

#include "framework/io/checkpoint.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/training.h"
#include "tests/support/temporary.h"

namespace test_zero {

using namespace trireme;
using namespace trireme::test;

namespace {

Sequential mlp() { return {flatten, Linear(16, 13), relu, Dropout(0.3), Linear(13, 11), relu, Linear(11, 5)}; }
/// Between the convolutions the batch norm's output is made again in backward, which wants its weights.
Sequential normed_cnn() {
  return {Conv2d(1, 4, 3), BatchNorm(4), relu, Conv2d(4, 4, 3), BatchNorm(4), relu, MaxPool(2), flatten, Linear(36, 5)};
}

/// Small buckets, so that there are several, of lengths that the ranks do not divide.
DataParallelOptions small_buckets(bool overlap = true) {
  return {.first_bucket = 37, .bucket = 101, .overlap = overlap};
}
Index total(const std::vector<Slice>& slices) {
  Index sum = 0;
  for (const Slice& s : slices) sum += s.size();
  return sum;
}

}  // namespace

TEST_CASE("zero(1, 2, 3) train the serial run's model", "[table][device]") {
  for (const OptimizerConfig& optimizer_config :
       {OptimizerConfig(Sgd{.lr = 0.05, .momentum = 0.9}), OptimizerConfig(Adam{.lr = 0.01})}) {
    const Setup s{.model = mlp, .optimizer_config = optimizer_config, .samples = 203, .batch = 10, .shape = {4, 4, 1}};
    const auto reference = serial_run(s);
    for (int stage : {1, 2, 3})
      for (bool overlap : {true, false})
        for (int ranks : rank_counts({1, 2, 3, 4, 8})) {
          INFO("stage " << stage << ", overlap " << overlap << ", " << ranks << " ranks");
          check_close(parallel_run(s, ranks, data_parallel(small_buckets(overlap)) | zero(stage)), reference, 1e-11);
        }
  }
}

namespace {
/// Rules with a rate per tensor, at rates that change the weights visibly.
const std::vector<OptimizerConfig> with_ratios = {Lars{.lr = 0.5, .trust_coefficient = 0.1},
                                                  Lamb{.lr = 0.02, .weight_decay = 0.1}};
}  // namespace

TEST_CASE("shards of LARS and LAMB train the serial run's model", "[table][device]") {
  for (const OptimizerConfig& rule : with_ratios)
    for (const OptimizerOptions& options : std::vector<OptimizerOptions>{{}, {.clip_norm = 0.05, .clip_value = 0.01}}) {
      const Setup s{.model = mlp,
                    .optimizer_config = rule,
                    .samples = 61,
                    .batch = 10,
                    .steps = 8,
                    .shape = {4, 4, 1},
                    .optimizer = options};
      const auto reference = serial_run(s);
      for (const char* strategy : {"", "zero(1)", "zero(2)", "zero(3)", "zero(3, reshard=false)", "central_storage"})
        for (const int ranks : rank_counts({2, 3, 4})) {
          INFO(to_string(rule) << ", clip " << options.clip_norm << ", " << strategy << " on " << ranks << " ranks");
          Strategy all = data_parallel(small_buckets());
          if (strategy[0] != '\0') all = all | parse_strategy(strategy);
          check_close(parallel_run(s, ranks, all), reference, 1e-12);
        }
      if (under_mpi()) continue;
      for (const int stage : {1, 2, 3}) {
        INFO(to_string(rule) << ", clip " << options.clip_norm << ", stage " << stage);
        for (const std::vector<Axis>& mesh :
             {std::vector<Axis>{{"data", 2}, {"shard", 2}}, {{"shard", 3}, {"data", 2}}})
          check_close(parallel_run(s, mesh, data_parallel(small_buckets()) | zero(stage, {.axis = "shard"})), reference,
                      1e-12);
        check_close(parallel_run(s, {{"tensor", 2}, {"data", 2}},
                                 parse_strategy(fmt::format("tensor | data_parallel | zero({})", stage))),
                    reference, 1e-12);
        check_close(parallel_run(s, 3, parse_strategy(fmt::format("one_weird_trick | zero({})", stage))), reference,
                    1e-12);
        check_close(parallel_run(s, {{"pipe", 2}, {"data", 2}},
                                 pipeline({.micro = 2, .partition = "even"}) | data_parallel() | zero(stage)),
                    serial_run(s, accumulate(2)), 1e-12);
      }
    }
}

TEST_CASE("LARS and LAMB resume on other ranks and stages") {
  if (threads_only()) return;
  for (const OptimizerConfig& rule : with_ratios) {
    const Temporary folder;
    const auto run = [&](int ranks, const Strategy& strategy, int first, int last) {
      return on_ranks(ranks, [&](World& world) {
        Module model = mlp();
        initialize(model, 1);
        convert(model, DType::f64);
        Step step(model, cross_entropy, rule, world, strategy, {.seed = 3});
        if (first > 0) {
          StepProbe(step).consolidate();
          if (world.main()) (void)load_latest(folder.path(), step.parameters(), &step.optimizer());
          broadcast_state(step.parameters(), world);
          broadcast_state(step.optimizer(), world);
        }
        Loader rows(Dataset(std::make_unique<Noise>(60, Shape{4, 4, 1})),
                    {.batch = 10, .seed = 3, .shard = step.shard(), .workers = 0, .dtype = DType::f64});
        int at = 0;
        for (auto& [x, y] : rows) {
          if (at >= first && at < last) step(x, y);
          ++at;
        }
        StepProbe(step).consolidate();
        TrainState state;
        state.step = last;
        if (world.main() && last < 6) save_checkpoint(folder.path(), step.parameters(), step.optimizer(), state);
        world.comm().barrier();
        return whole_weights(step.parameters());
      });
    };
    const auto straight = run(1, {}, 0, 6);
    (void)run(4, data_parallel(small_buckets()) | zero(3), 0, 3);
    for (const int ranks : {1, 3}) {
      INFO(rule.name() << " on " << ranks << " ranks");
      CHECK(distance(run(ranks, data_parallel() | zero(1), 3, 6), straight) < 1e-12);
    }
  }
}

TEST_CASE("on integers zero equals serial bit by bit", "[table][device]") {
  const Setup s = integer_conv();
  const auto reference = serial_run(s);
  for (int stage : {1, 2, 3})
    for (int ranks : rank_counts({2, 3, 4, 8})) {
      INFO("stage " << stage << ", " << ranks << " ranks");
      check_same_bits(parallel_run(s, ranks, data_parallel(small_buckets()) | zero(stage)), reference);
    }
}

TEST_CASE("zero with micro-batches, batch norm and pipelines") {
  const Setup s{.model = normed_cnn,
                .optimizer_config = Sgd{.lr = 0.05, .momentum = 0.9},
                .samples = 120,
                .batch = 24,
                .steps = 8};
  const auto reference = serial_run(s, accumulate(2));
  for (int stage : {1, 2, 3}) {
    for (int ranks : rank_counts({2, 3})) {
      INFO("stage " << stage << ", " << ranks << " ranks");
      check_close(parallel_run(s, ranks, accumulate(2) | data_parallel(small_buckets()) | zero(stage)), reference,
                  1e-11);
    }
    if (under_mpi()) continue;
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
      INFO("stage " << stage << ", " << schedule);
      check_close(parallel_run(s, {{"pipe", 2}, {"data", 2}},
                               pipeline({.micro = 2, .schedule = schedule, .partition = "even"}) |
                                   data_parallel(small_buckets()) | zero(stage)),
                  reference, 1e-11);
    }
  }
}

TEST_CASE("clipping sums the norm over shards and stages") {
  Setup s{.model = mlp, .samples = 60, .batch = 12, .steps = 10, .shape = {4, 4, 1}, .optimizer = {.clip_norm = 0.05}};
  const auto reference = serial_run(s), split = serial_run(s, accumulate(2));
  Setup free = s;
  free.optimizer = {};
  CHECK(distance(serial_run(free).weights, reference.weights) > 1e-3);
  for (int stage : {1, 2, 3})
    for (int ranks : rank_counts({2, 3}))
      check_close(parallel_run(s, ranks, data_parallel(small_buckets()) | zero(stage)), reference, 1e-11);
  if (threads_only()) return;
  const auto stages = pipeline({.micro = 2, .partition = "even"});
  check_close(parallel_run(s, {{"pipe", 2}}, stages), split, 1e-11);
  check_close(parallel_run(s, {{"pipe", 2}, {"data", 2}}, stages | data_parallel() | zero(1)), split, 1e-11);
}

TEST_CASE("a rank holds optimizer state for its shards only, and the whole of it to save") {
  for (int ranks : rank_counts({2, 3})) {
    auto held = on_ranks(ranks, [&](World& world) {
      Module model = mlp();
      initialize(model, 1);
      Step step(model, cross_entropy, Adam{}, world, data_parallel(small_buckets()) | zero(1));
      const Tensor x = Tensor::full({2, 4, 4, 1}, 0.5), y = Tensor::zeros({2}, DType::i64);
      step(x, y);
      auto state = [&] { return static_cast<double>(step.optimizer().state().at(1).second.numel()); };
      std::vector<double> sizes{state(), static_cast<double>(total(StepProbe(step).updated()))};
      step.gather_weights();  // for an evaluation, which needs no optimizer
      CHECK(state() == sizes[0]);
      StepProbe(step).consolidate();
      sizes.push_back(state());
      double squares = 0;
      for (double v : step.optimizer().state()[1].second.to_vector()) squares += v;
      sizes.push_back(squares);
      step(x, y);
      sizes.push_back(state());
      sizes.push_back(static_cast<double>(step.parameters().size()));
      return sizes;
    });
    const double whole = held.back();
    CHECK(held[0] == held[1]);
    CHECK(held[0] <= whole / ranks + 64);
    CHECK(held[2] == whole);
    CHECK(held[3] > 0);
    CHECK(held[4] == held[0]);
  }
}

TEST_CASE("memory of gradients and weights of others' shards is given back") {
  if (threads_only()) return;
  auto resident = [](const Tensor& t) {  // share of its pages
    constexpr std::uintptr_t page = 4096;
    const auto begin = (reinterpret_cast<std::uintptr_t>(t.view().data) + page - 1) / page * page;
    const auto end =
        (reinterpret_cast<std::uintptr_t>(t.view().data) + static_cast<std::uintptr_t>(t.view().bytes())) / page * page;
    std::vector<unsigned char> pages((end - begin) / page);
    if (mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) != 0) return -1.0;
    double in = 0;
    for (unsigned char p : pages) in += p & 1;
    return in / static_cast<double>(pages.size());
  };
  for (int stage : {1, 2, 3}) {
    auto shares = on_ranks(4, [&](World& world) {
      Module model = Sequential{Linear(256, 512), relu, Linear(512, 256), relu, Linear(256, 5)};
      Step step(model, cross_entropy, Sgd{.lr = 0.1}, world, zero(stage));
      const Tensor x = Tensor::full({2, 256}, 0.5), y = Tensor::zeros({2}, DType::i64);
      for (int i = 0; i < 3; ++i) step(x, y);
      return std::pair(resident(step.parameters().grads().blocks()[0]),
                       resident(step.parameters().values().blocks()[0]));
    });
    INFO("stage " << stage << ": gradients " << shares.first << ", weights " << shares.second);
    CHECK((stage >= 2 ? shares.first < 0.35 : shares.first > 0.9));
    CHECK((stage == 3 ? shares.second < 0.35 : shares.second > 0.9));
  }
}

TEST_CASE("a checkpoint wants all shards, and a run goes on from it as if nothing had been") {
  if (threads_only()) return;
  const Temporary folder;
  auto run = [&](int first, int last, bool save) {
    return on_ranks(2, [&](World& world) {
      Module model = mlp();
      initialize(model, 1);
      convert(model, DType::f64);
      Step step(model, cross_entropy, Sgd{.lr = 0.1, .momentum = 0.9}, world, data_parallel(small_buckets()) | zero(2),
                {.seed = 3});
      if (first > 0) {
        StepProbe(step).consolidate();
        if (world.main()) (void)load_latest(folder.path(), step.parameters(), &step.optimizer());
        broadcast_state(step.parameters(), world);
        broadcast_state(step.optimizer(), world);
      }
      std::string refused;
      TrainState state;
      state.step = last;
      for (int i = first; i < last; ++i)
        step(Tensor::full({2, 4, 4, 1}, 0.1 * (i + 1), DType::f64), Tensor::full({2}, i % 5, DType::i64));
      if (save) {
        try {
          if (world.main()) save_checkpoint(folder.path(), step.parameters(), step.optimizer(), state);
        } catch (const Error& e) { refused = e.what(); }
        StepProbe(step).consolidate();
        if (world.main()) save_checkpoint(folder.path(), step.parameters(), step.optimizer(), state);
        world.comm().barrier();
      }
      StepProbe(step).consolidate();
      return std::pair(step.parameters().values().to_vector(), refused);
    });
  };
  const auto straight = run(0, 6, false);
  CHECK(contains("call consolidate()").match(run(0, 3, true).second));
  CHECK(run(3, 6, false).first == straight.first);
}

TEST_CASE("zero with an axis has replicas, which sum their shards") {
  if (threads_only()) return;
  const Setup s{.model = mlp, .optimizer_config = Adam{.lr = 0.01}, .samples = 60, .batch = 12, .shape = {4, 4, 1}};
  Setup clipped = s;
  clipped.optimizer.clip_norm = 0.05;
  for (const Setup& setup : {s, clipped}) {
    const auto reference = serial_run(setup);
    for (int stage : {1, 2, 3})
      for (const char* shards : {"data", "copies", "data+copies"})
        for (const std::vector<Axis>& mesh : {std::vector<Axis>{{"data", 2}, {"copies", 2}},
                                              {{"copies", 3}, {"data", 2}},
                                              {{"data", 3}, {"copies", 1}}}) {
          INFO("stage " << stage << " along " << shards << " on " << to_string(mesh));
          DataParallelOptions all = small_buckets();
          all.axis = "copies+data";
          check_close(parallel_run(setup, mesh, data_parallel(all) | zero(stage, {.axis = shards})), reference, 1e-11);
        }
  }
  for (const char* strategy : {"data_parallel | zero(3, axis=copies)", "zero(2, axis=copies)"})
    check_close(parallel_run(s, {{"data", 2}, {"copies", 2}}, parse_strategy(strategy)), serial_run(s), 1e-11);
  const auto split = serial_run(s, accumulate(2));
  for (const char* more : {"", ", reshard=false", ", prefetch=0", ", prefetch=3"}) {
    INFO(more);
    const std::string zero = std::string("zero(3, axis=data") + more + ")";
    for (const char* first : {"pipeline(micro=2, partition=even)", "accumulate(micro=2)"})
      check_close(
          parallel_run(s, {{first[0] == 'p' ? "pipe" : "copies", 2}, {"data", 2}},
                       parse_strategy(std::string(first) + " | data_parallel | data_parallel(axis=copies) | " + zero)),
          split, 1e-11);
  }
}

}  // namespace test_zero
