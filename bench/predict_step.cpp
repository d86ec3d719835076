// Real steps under strategies, each beside its prediction from what its pieces take, which is measured behind them
// without a step of the strategy, for bench/predict: one JSON line per model and strategy.
//   predict_step MODEL BATCH ROUNDS [STRATEGY@MESH ...]
// In each round every strategy runs; a prediction stands beside the run of its round. "parts": where the time of steps
// goes, as predicted and as measured in some more, recorded, steps, milliseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "datasets/core/loader.h"
#include "kernels/core/runtime.h"
#include "parallel/analysis/simulate.h"
#include "parallel/profile/measure.h"
#include "parallel/profile/predict.h"
#include "parallel/runtime/step.h"
#include "parallel/runtime/step_probe.h"
#include "tools/training/from_options.h"
#include "trireme/trireme.h"
using namespace trireme;

namespace {

/// Of steps one behind the other, the first of which has that number: the mean over the plan's period of medians.
double typical(const std::vector<double>& seconds, std::size_t first, std::size_t period) {
  double sum = 0;
  for (std::size_t place = 0; place < period; ++place) {
    std::vector<double> alike;
    for (std::size_t i = 0; i < seconds.size(); ++i)
      if ((first + i) % period == place) alike.push_back(seconds[i]);
    sum += median(alike);
  }
  return sum / static_cast<double>(period);
}

struct Case {
  std::string strategy, mesh;
  std::vector<double> predicted = {}, measured = {};
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> parts = {};
};

struct Run {
  Plan plan;
  ModelProfile profile = {};
  PredictStepOptions calls = {};
  double seconds = 0;
  std::vector<StepTimes> recorded = {};
};

/// A step of the strategy; with the plan that was run.
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
              {.profile = {.example = first.begin()->x}});
    Loader loader(data, {.batch = config.data.batch, .shard = step.shard(), .workers = 0});
    auto batch = loader.begin();
    std::vector<double> seconds;
    for (int i = -3; i < steps; ++i) {
      world.comm().barrier();
      const Clock::time_point start = Clock::now();
      (void)step(batch->x, batch->y).item();
      if (i >= 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    std::vector<StepTimes> recorded;
    for (int i = 0; i < steps; ++i) {
      StepProbe(step).record(true);
      world.comm().barrier();
      const Clock::time_point start = Clock::now();
      (void)step(batch->x, batch->y).item();
      const double took = std::chrono::duration<double>(Clock::now() - start).count();
      recorded.push_back(times_of(step.plan(), StepProbe(step).timeline(), took));
      StepProbe(step).record(false);
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
                       .runs = 7,
                       .split = strategy.split};
    const Index rows = std::max<Index>(1, config.data.batch / mesh.size("data") / step.plan().microbatches);
    ModelProfile profile = measure_parts_of(mesh, step.plan(), std::move(how), rows);
    PredictStepOptions calls = measure_calls_of(mesh, step.plan(), 1, 7);
    calls.rows = rows;
    calls.steps = 16;
    calls.jitter = jitter_of(profile);
    if (world.main())
      result = {step.plan(), std::move(profile), std::move(calls),
                typical(seconds, 3, static_cast<std::size_t>(period_of(step.plan()))), std::move(recorded)};
  });
  return result;
}

}  // namespace

int predict_step_main(int argc, char** argv) {
  TrainerOptions config;
  config.model = argv[1];
  config.data.batch = std::stol(argv[2]);
  const int rounds = std::stoi(argv[3]);
  if (config.model == "gpt2_124m") {
    config.model = "gpt2";
    config.data.context = 256;
  } else if (config.model == "gpt2_experts") {
    config.model = "gpt2";
    config.arch.layers = 4;
    config.arch.heads = 8;
    config.arch.width = 512;
    config.arch.experts = 8;
    config.arch.vocabulary = 8192;
    config.data.context = 256;
    config.optim.lr = 1e-9;  // labels are random: from these a router learns to use few experts
  } else if (config.model == "gpt2") {
    config.arch.layers = 4;
    config.arch.heads = 4;
    config.arch.width = 128;
    config.data.context = 64;
    config.arch.vocabulary = 65;
  }
  std::vector<Case> cases;
  for (int i = 4; i < argc; ++i) {
    const std::string text = argv[i];
    cases.push_back({text.substr(0, text.find('@')), text.substr(text.find('@') + 1)});
  }
  for (int round = 0; round < rounds; ++round) {
    for (Case& c : cases) {
      const Run r = run(config, c, 12);
      c.measured.push_back(r.seconds);
      const StepTimes predicted = predict_step(r.plan, r.profile, r.calls);
      c.predicted.push_back(predicted.step);
      for (const auto& [name, seconds] : components_of(predicted)) c.parts[name].first.push_back(seconds);
      for (const StepTimes& was : r.recorded)
        for (const auto& [name, seconds] : components_of(was)) c.parts[name].second.push_back(seconds);
    }
  }
  for (const Case& c : cases) {
    const double predicted = median(c.predicted), measured = median(c.measured);
    const auto [least, most] = std::ranges::minmax(c.measured);
    std::printf(
        "{\"model\": \"%s\", \"batch\": %ld, \"strategy\": \"%s\", \"mesh\": \"%s\", \"predicted_ms\": %.3f, "
        "\"measured_ms\": %.3f, \"error\": %.4f, \"spread\": %.4f, \"parts\": {",
        argv[1], static_cast<long>(config.data.batch), c.strategy.c_str(), c.mesh.c_str(), 1e3 * predicted,
        1e3 * measured, predicted / measured - 1, (most - least) / measured);
    const char* comma = "";
    for (const auto& [name, of] : c.parts) {
      const auto ms = [](const std::vector<double>& seconds) { return seconds.empty() ? 0 : 1e3 * median(seconds); };
      std::printf("%s\"%s\": [%.4f, %.4f]", std::exchange(comma, ", "), name.c_str(), ms(of.first), ms(of.second));
    }
    std::printf("}}\n");
  }
  return 0;
}
