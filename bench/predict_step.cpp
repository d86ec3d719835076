// Real steps beside their prediction from a profile of this machine that knows none of the strategies, for
// bench/predict: one JSON line per model and strategy.
//   predict_step MODEL BATCH ROUNDS [STRATEGY@MESH ...]
// In each round the machine is profiled and every strategy runs; a prediction stands beside the run of its round.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "datasets/core/loader.h"
#include "kernels/core/runtime.h"
#include "parallel/analysis/simulate.h"
#include "parallel/profile/measure.h"
#include "parallel/profile/predict.h"
#include "parallel/runtime/step.h"
#include "tools/training/from_options.h"
#include "trireme/trireme.h"
using namespace trireme;
using Clock = std::chrono::steady_clock;

namespace {

double median(std::vector<double> v) { return measured(std::move(v)).value; }

struct Case {
  std::string strategy, mesh;
  std::vector<double> predicted = {}, measured = {};
};

struct Run {
  Plan plan;
  ModelProfile profile = {};
  PredictStepOptions calls = {};
  double seconds = 0;
};

/// A step of the strategy, median of several; with the plan that was run.
Run run(const TrainerOptions& config, const Case& c, int steps) {
  Run result;
  const ModelOptions shape = usual_options(config);
  const Dataset data = synthetic_data(config, shape, config.data.batch);
  const std::vector<Axis> axes = parse_mesh(c.mesh);
  World::threads(ranks_of(axes), [&](World& world) {
    set_threads(1);
    Mesh mesh(world, axes);
    Strategy strategy = parse_strategy(c.strategy);
    Index shares = size_along(axes, "data");
    Loader first(data, {.batch = std::max<Index>(1, config.data.batch / shares), .workers = 0});
    Step step(make_model(config, shape), make_loss(config), make_optimizer(config, 1000), mesh, strategy,
              {.example = first.begin()->x});
    Loader loader(data, {.batch = config.data.batch, .shard = step.shard(), .workers = 0});
    auto batch = loader.begin();
    std::vector<double> seconds;
    for (int i = -3; i < steps; ++i) {
      world.comm().barrier();
      const Clock::time_point start = Clock::now();
      (void)step(batch->x, batch->y).item();
      if (i >= 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    MeasureOptions how{.model = [&] { return make_model(config, shape); },
                       .loss = make_loss(config),
                       .optimizer = make_optimizer(config, 1000),
                       .batch =
                           [&](Index n) {
                             const Dataset some = synthetic_data(config, shape, n);
                             const auto b = Loader(some, {.batch = n, .workers = 0}).begin();
                             return std::pair(b->x, b->y);
                           },
                       .rows = {},
                       .runs = 7};
    const Index rows = std::max<Index>(1, config.data.batch / mesh.size("data") / step.plan().microbatches);
    ModelProfile profile = measure_parts_of(mesh, step.plan(), std::move(how), rows);
    PredictStepOptions calls = measure_calls_of(mesh, step.plan(), 1, 7);
    calls.rows = rows, calls.steps = 16, calls.jitter = jitter_of(profile);
    if (world.main()) result = {step.plan(), std::move(profile), std::move(calls), median(seconds)};
  });
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  TrainerOptions config;
  config.model = argv[1], config.data.batch = std::stol(argv[2]);
  const int rounds = std::stoi(argv[3]);
  if (config.model == "gpt2")
    config.arch.layers = 4, config.arch.heads = 4, config.arch.width = 128, config.data.context = 64,
    config.arch.vocabulary = 65;
  std::vector<Case> cases;
  for (int i = 4; i < argc; ++i) {
    const std::string text = argv[i];
    cases.push_back({text.substr(0, text.find('@')), text.substr(text.find('@') + 1)});
  }
  for (int round = 0; round < rounds; ++round) {
    for (Case& c : cases) {
      const Run r = run(config, c, 10);
      c.measured.push_back(r.seconds);
      c.predicted.push_back(predict_step(r.plan, r.profile, r.calls).step);
    }
  }
  for (const Case& c : cases) {
    std::vector<double> ratio;
    for (std::size_t i = 0; i < c.measured.size(); ++i) ratio.push_back(c.predicted[i] / c.measured[i]);
    const auto [least, most] = std::ranges::minmax(c.measured);
    std::printf(
        "{\"model\": \"%s\", \"batch\": %ld, \"strategy\": \"%s\", \"mesh\": \"%s\", \"predicted_ms\": %.3f, "
        "\"measured_ms\": %.3f, \"error\": %.4f, \"spread\": %.4f}\n",
        config.model.c_str(), static_cast<long>(config.data.batch), c.strategy.c_str(), c.mesh.c_str(),
        1e3 * median(c.predicted), 1e3 * median(c.measured), median(ratio) - 1, (most - least) / median(c.measured));
  }
}
