// Memory by use: predicted from plans, and counted in steps.
#include "framework/autograd/step_context.h"
#include "framework/layers/inference.h"
#include "framework/tensor/memory_tracker.h"
#include "kernels/core/runtime.h"
#include "parallel/analysis/imagine.h"
#include "parallel/model/chain.h"
#include "parallel/model/memory.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/training.h"

namespace test_memory {

using namespace trireme;
using namespace trireme::test;

namespace {

std::vector<PartInfo> equal_parts(int n, Index each) {
  std::vector<PartInfo> parts;
  for (int p = 0; p < n; ++p)
    parts.push_back({std::to_string(p), {p * each, (p + 1) * each}, {.saved = 8, .output = 100}});
  return parts;
}

/// What each rank held in the last of some steps.
std::vector<RankMemory> measured(const std::function<Module()>& model, const std::vector<Axis>& mesh,
                                 const Strategy& strategy, const Shape& shape) {
  return on_ranks(ranks_of(mesh), [&](World& world) {
    Mesh m(world, mesh);
    Step step(model(), cross_entropy, Sgd{.lr = 0.1, .momentum = 0.9}, m, strategy);
    StepProbe(step).record(true);
    Loader loader(Dataset(std::make_unique<Noise>(8, shape)), {.batch = 8, .shard = step.shard(), .workers = 0});
    for (int i = 0; i < 3; ++i)
      for (auto& [x, y] : loader) step(x, y);
    return StepProbe(step).memory();
  });
}

}  // namespace

TEST_CASE("a tracker counts what a thread makes in its scope, until it is gone") {
  MemoryTracker tracker;
  Tensor kept;
  {
    const MemoryScope scope(tracker);
    kept = Tensor::empty({10});
    Tensor gone = Tensor::empty({20});
    {
      const MemoryScope halos(MemoryKind::halos);
      gone = Tensor::empty({5});
    }
    CHECK(tracker.now(MemoryKind::activations) == 40);
    CHECK(tracker.peak(MemoryKind::activations) == 120);
    CHECK(tracker.now(MemoryKind::halos) == 20);
  }
  const Tensor outside = Tensor::empty({100});
  { const MemoryScope nobody(MemoryKind::packed); }
  CHECK(tracker.now(MemoryKind::activations) == 40);
  CHECK(tracker.now(MemoryKind::halos) == 0);
  tracker.reset_peaks();
  CHECK(tracker.peak(MemoryKind::activations) == 40);
  kept = {};
  CHECK(tracker.now(MemoryKind::activations) == 0);
}

TEST_CASE("filters that an Inference keeps packed are counted, serve every batch, and are gone with it") {
  MemoryTracker tracker;
  const Conv2d conv(32, 32, 3, {.pad = 1}), five(16, 24, 5);
  const auto run = [&](Index batch) {
    (void)conv(Tensor::zeros({batch, 32, 32, 32}));
    (void)five(Tensor::zeros({batch, 9, 9, 16}));
  };
  run(4);
  run(3);  // what is prepared once
  const std::size_t before = runtime(DeviceKind::cpu).in_use();
  {
    const MemoryScope scope(tracker);
    const Inference inference;
    run(4);
    const Index packed = tracker.now(MemoryKind::packed);
    CHECK(packed >= (32 * 32 * 9 + 16 * 24 * 25) * 4);
    CHECK(tracker.now(MemoryKind::activations) == 0);
    run(3);
    CHECK(tracker.now(MemoryKind::packed) == packed);
  }
  CHECK(tracker.now(MemoryKind::packed) == 0);
  CHECK(runtime(DeviceKind::cpu).in_use() == before);
}

TEST_CASE("memory is predicted by use: stages divide what they update, micro-batches in flight keep activations") {
  const Plan alone = serial(equal_parts(4, 100), 400);
  const RankMemory m = predict_memory(alone, {.element = 4, .states = 2})[0];
  CHECK((m.weights == 1600 && m.gradients == 1600 && m.optimizer == 3200 && m.activations == 4 * 8 && m.packed == 0));
  const auto stages = pipeline({.micro = 8, .schedule = "1f1b", .partition = "even"})(
      serial(equal_parts(4, 100), 400, 0, {{"pipe", 4}}));
  for (int r = 0; r < 4; ++r) {
    const RankMemory s = predict_memory(stages)[static_cast<std::size_t>(r)];
    CHECK((s.weights == 400 && s.gradients == 400 && s.optimizer == 400));
    // And two of: an activation that comes early, the gradient of one, one on its way back.
    CHECK(s.activations == (4 - r) * (8 + (r > 0 ? 100 : 0)) + 200);
  }
  auto sharded = [&](int stage) {
    Plan plan = serial(equal_parts(4, 100), 400, 0, {{"data", 4}});
    return predict_memory((data_parallel({.first_bucket = 100, .bucket = 100}) | zero(stage))(plan))[0];
  };
  CHECK((sharded(1).optimizer == 400 && sharded(1).gradients == 1600 && sharded(1).weights == 1600));
  // Two parts' gradients wait to be dropped.
  CHECK((sharded(2).gradients == 400 + 2 * 300 && sharded(2).weights == 1600));
  // Of two parts, one computes and one is gathered.
  CHECK((sharded(3).gradients == 400 + 2 * 300 && sharded(3).weights == 400 + 2 * 300));
  CHECK(memory_table(stages, predict_memory(stages)).find("stage 3") != std::string::npos);
}

TEST_CASE("a stage holds its own weights, gradients and optimizer state only") {
  if (threads_only()) return;
  const auto model = [] {
    return Sequential{flatten, Linear(256, 512), relu, Linear(512, 512), relu, Linear(512, 256), relu, Linear(256, 5)};
  };
  const auto ranks = measured(model, {{"pipe", 2}}, pipeline({.micro = 2, .partition = "3"}), {16, 16, 1});
  const double first = 4 * (256 + 1) * 512, second = 4 * ((512 + 1) * 512 + (512 + 1) * 256 + (256 + 1) * 5);
  for (auto& [rank, bytes] : {std::pair{ranks[0], first}, std::pair{ranks[1], second}})
    for (const Index held : {rank.weights, rank.gradients, rank.optimizer}) {
      INFO(held << " of " << bytes);
      CHECK(std::abs(static_cast<double>(held) - bytes) < 0.03 * bytes);
    }
}

TEST_CASE("halos are counted as predicted") {
  if (threads_only()) return;
  for (const auto& [mesh, strategy] : {std::pair<std::string, Strategy>{"h=2", spatial({"h"})},
                                       {"h=3", spatial({"h"})},
                                       {"h=2,w=2", spatial({"h", "w"})}}) {
    const auto axes = parse_mesh(mesh);
    const auto model = [] { return Sequential{Conv2d(3, 4, 5, {.pad = 2}), relu, flatten, Linear(4 * 12 * 12, 5)}; };
    Module whole = model();
    const Parameters parameters(whole);
    const Chain chain(whole);
    Plan plan = strategy(serial(chain.parts(parameters), parameters.size(), 0, axes));
    imagine(plan, strategy, {.model = model, .x = Tensor::empty({8, 12, 12, 3})});
    const auto ranks = measured(model, axes, strategy, {12, 12, 3});
    Index most = 0;
    for (const RankMemory& r : ranks) most = std::max(most, r.halos);
    INFO(mesh);
    CHECK(plan.parts[0].cost.halo == most);
    CHECK(most == (mesh == "h=2" ? 8 * 2 * 12 * 3 * 4 : mesh == "h=3" ? 8 * 4 * 12 * 3 * 4 : 8 * (8 * 8 - 36) * 3 * 4));
  }
}

}  // namespace test_memory
