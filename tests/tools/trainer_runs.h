// A regression with two inputs and two outputs, for tests of the Trainer.
#pragma once
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <source_location>
#include <string>
#include <vector>

#include "framework/io/json.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/metrics/metrics.h"
#include "framework/optim/optimizers.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"
#include "tools/training/trainer.h"

namespace trireme::test {

/// y = a function of x, with f64 features; samples differ in how much they weigh.
inline Dataset regression(Index size, std::uint64_t seed) {
  const Tensor x = normal({size, 6}, 0, 1, seed, DType::f64);
  const Tensor weight = uniform({size, 1}, 0.5, 2, seed + 1, DType::f64);
  return TensorDataset(x.with("weight", weight), concat({sin(sum(x, {1}, true)), mean(x, {1}, true)}, 1));
}
/// Two inputs, two outputs.
struct TwoHeads {
  Linear one{6, 16}, first{16, 1}, second{16, 1};
  Tensor operator()(const Tensor& x) const {
    const Tensor h = trireme::tanh(one(x)) * x.at("weight");
    return concat({first(h), second(h)}, 1);
  }
  void visit(const StateVisitor& v) {
    v("one", one);
    v("first", first);
    v("second", second);
  }
};
inline Module two_heads() {
  Module m = TwoHeads{};
  initialize(m, 3);
  convert(m, DType::f64);
  return m;
}
/// A metric as a user would write it.
struct WithinTenth {
  void add(MetricState& s, const Tensor& prediction, const Tensor& target) const {
    s.counts.resize(2);
    for (const double d : abs(prediction - target).to_vector()) {
      s.counts[0] += d < 0.1;
      ++s.counts[1];
    }
  }
  std::vector<MetricResult> results(const MetricState& s) const {
    return {{"within_tenth", static_cast<double>(s.count(0)) / static_cast<double>(std::max<Index>(1, s.count(1)))}};
  }
};
inline TrainerOptions options_for_run(const std::filesystem::path& dir) {
  TrainerOptions o;
  o.model = "two_heads";
  o.epochs = 3;
  o.dtype = "f64";
  o.data.batch = 32;
  o.data.eval_batch = 50;
  o.run.dir = dir;
  o.run.progress = "off";
  return o;
}
/// On a rank's thread, where Catch2's own are not to be used.
inline void expect(bool holds, const std::source_location& at = std::source_location::current()) {
  check(holds, "test", "line {}: it does not hold", at.line());
}
/// A loss of the program's own.
inline Tensor log_cosh(const Tensor& y, const Tensor& target) {
  const Tensor d = y - target;
  return batch_mean(d + softplus(d * -2) - std::log(2.0));
}
inline TrainerInput input() {
  return {.model = two_heads(),
          .train = regression(203, 1),
          .test = regression(77, 2),
          .loss = log_cosh,
          .optimizer = AdamW{.lr = 0.01},
          .metrics = {RegressionErrors{}, WithinTenth{}}};
}
inline std::vector<Json> lines_of(const std::filesystem::path& dir, const std::string& kind) {
  std::vector<Json> all;
  std::string line;
  for (std::ifstream in(dir / "metrics.jsonl"); std::getline(in, line);)
    if (Json json = parse_json(line); json.value("kind", "") == kind) all.push_back(json);
  return all;
}
/// What rank 0 saw of a training.
struct Run {
  std::map<std::int64_t, double> losses;  // by step
  Evaluation end;
};
/// By the Trainer, on so many threads.
inline Run train(const TrainerOptions& options, int ranks = 1, const TrainerInput& input = {}) {
  Run run;
  std::mutex mutex;
  World::threads(ranks, [&](World& world) {
    TrainerInput given = input;
    given.callbacks.on_step = [&](const StepMetrics& m) {
      const std::lock_guard lock(mutex);
      if (world.main()) run.losses[m.step] = m.loss;
    };
    const TrainerResult r = Trainer(given, options, world).run();
    const std::lock_guard lock(mutex);
    if (world.main()) run.end = r.test;
  });
  return run;
}

}  // namespace trireme::test
