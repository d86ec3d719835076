// Real steps beside their prediction from a profile of this machine that knows none of the strategies, for
// bench/predict: one JSON line per model and strategy.
//   predict_step MODEL BATCH RANKS ROUNDS [STRATEGY@MESH ...]
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
  PredictOptions calls = {};
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
    PredictOptions calls = measure_calls_of(mesh, step.plan(), 1, 7);
    if (world.main()) result = {step.plan(), std::move(calls), median(seconds)};
  });
  return result;
}

StepTimes predict(Run& run, const ModelProfile& profile, Index batch) {
  run.calls.rows = std::max<Index>(1, batch / size_along(run.plan.axes, "data") / run.plan.microbatches);
  run.calls.steps = 4;
  return predict_step(run.plan, profile, run.calls);
}

}  // namespace

int main(int argc, char** argv) {
  TrainerOptions config;
  config.model = argv[1], config.data.batch = std::stol(argv[2]);
  const int ranks = std::stoi(argv[3]), rounds = std::stoi(argv[4]);
  if (config.model == "gpt2")
    config.arch.layers = 4, config.arch.heads = 4, config.arch.width = 128, config.data.context = 64,
    config.arch.vocabulary = 65;
  std::vector<Case> cases;
  for (int i = 5; i < argc; ++i) {
    const std::string text = argv[i];
    cases.push_back({text.substr(0, text.find('@')), text.substr(text.find('@') + 1)});
  }
  const ModelOptions shape = usual_options(config);
  std::vector<Index> rows;
  for (Index r = std::max<Index>(1, config.data.batch / ranks / 8); r <= config.data.batch; r *= 2) rows.push_back(r);
  for (int round = 0; round < rounds; ++round) {
    ModelProfile profile;
    World::threads(ranks, [&](World& world) {
      set_threads(1);
      ModelProfile own = measure_model(world.comm(), {.model = [&] { return make_model(config, shape); },
                                                      .loss = make_loss(config),
                                                      .optimizer = make_optimizer(config, 1000),
                                                      .batch =
                                                          [&](Index n) {
                                                            const Dataset data = synthetic_data(config, shape, n);
                                                            Loader l(data, {.batch = n, .workers = 0});
                                                            const auto b = l.begin();
                                                            return std::pair(b->x, b->y);
                                                          },
                                                      .rows = rows,
                                                      .runs = 5});
      if (world.main()) profile = std::move(own);
    });
    if (round == 0)
      for (const auto& s : profile.sizes)
        std::fprintf(stderr, "rows %ld: forward %.3f backward %.3f loss %.3f between %.3f ms, update %.3f ms\n",
                     static_cast<long>(s.rows), s.forward.value * 1e3, s.backward.value * 1e3, s.loss.value * 1e3,
                     s.between.value * 1e3, profile.update.value * 1e3 * static_cast<double>(profile.parameters));
    for (Case& c : cases) {
      Run r = run(config, c, 10);
      c.measured.push_back(r.seconds);
      c.predicted.push_back(predict(r, profile, config.data.batch).step);
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
