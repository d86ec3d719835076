#include "tests/parallel/matrix/runs.h"

#include <fmt/format.h>

#include <cmath>
#include <tuple>

#include "parallel/runtime/step_probe.h"
#include "tests/parallel/pairs.h"
#include "tests/support/ranks.h"

namespace trireme::test {
namespace {

constexpr double tolerance = 1e-11;

Values values_of(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  Values v;
  for (const auto& [name, tensor] : tensors) {
    for (const double x : whole(tensor).to_vector()) v.all.push_back(x);
    v.ends.push_back(v.all.size());
    v.names.push_back(name);
  }
  return v;
}
Values weights_of(Step& step) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& e : step.parameters().entries()) tensors.emplace_back(e.name, e.tensor);
  return values_of(tensors);
}
Values buffers_of(Step& step) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& b : step.parameters().buffers()) tensors.emplace_back(b.name, b.tensor);
  return values_of(tensors);
}

/// Whether this is true on all ranks. A collective call.
bool on_all(World& world, bool mine) {
  const Tensor all = Tensor::full({1}, mine, DType::i64);
  world.comm().all_reduce(all, ReduceOp::min).wait();
  return *all.data<std::int64_t>() == 1;
}

/// One step of SGD, whose change of weights is the gradient, then three of AdamW from the same start.
MatrixRun train(const SmallModel& m, const Arrangement& how, World& world, double clip, bool audit) {
  constexpr double factor = 1 << 20;  // so that a small gradient is not lost in a weight
  MatrixRun run;
  for (const bool first : {true, false}) {
    Mesh mesh(world, how.mesh);
    const OptimizerConfig optimizer =
        first ? OptimizerConfig(Sgd{.lr = factor}) : AdamW{.lr = 1e-3, .eps = 1e-3, .weight_decay = 0.1};
    StepOptions options{.seed = 5, .optimizer = {.clip_norm = first ? 0 : clip}};
    // Weights are divided by the flow of data, then by the order of names.
    if (first && how.strategy.find("tensor") != std::string::npos) options.profile.example = m.data.x;
    Step step(m.make(), m.loss, optimizer, mesh, parse_strategy(how.strategy), options);
    Loader loader(TensorDataset(m.data.x, m.data.y),
                  {.batch = m.data.x.dim(0), .shuffle = true, .seed = 3, .shard = step.shard(), .workers = 0});
    const Values before = weights_of(step);
    for (int steps = first ? 1 : 3; steps > 0; --steps)
      for (const auto& [x, y] : loader) run.losses.push_back(step(x, y).item());
    // one_weird_trick's messages depend on the rows of other ranks, which no rank knows by itself.
    if (first && audit && how.strategy.find("one_weird_trick") == std::string::npos) {
      const StepTraffic traffic = StepProbe(step).traffic();
      run.as_planned = on_all(world, traffic.planned == traffic.counted);
    }
    StepProbe(step).consolidate();
    Values after = weights_of(step);
    const Tensor together = Tensor::of(after.all, {std::ssize(after.all)}, DType::f64);
    run.agreed = agree(world, together) && run.agreed;
    if (first) {
      run.gradients = after;
      for (std::size_t i = 0; i < after.all.size(); ++i) run.gradients.all[i] = (before.all[i] - after.all[i]) / factor;
    } else {
      run.weights = std::move(after);
      run.buffers = buffers_of(step);
    }
  }
  return run;
}

double largest(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double most = 0;
  for (std::size_t i = begin; i < end; ++i) most = std::max(most, std::abs(values[i]));
  return most;
}

/// The first tensor that differs by more than the tolerance, relative to its largest element, or to that of its layer
/// if it is zero in truth; "": none does.
std::string difference(const Values& got, const Values& expected) {
  if (got.names != expected.names || got.ends != expected.ends) return "other tensors";
  const auto layer = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  std::map<std::string, double> of_layer;
  std::size_t begin = 0;
  for (std::size_t t = 0; t < expected.ends.size(); begin = expected.ends[t++]) {
    double& most = of_layer[layer(expected.names[t])];
    most = std::max(most, largest(expected.all, begin, expected.ends[t]));
  }
  begin = 0;
  std::string worst;
  double worst_by = tolerance;
  for (std::size_t t = 0; t < expected.ends.size(); begin = expected.ends[t++]) {
    const double within = of_layer[layer(expected.names[t])];
    const double own = largest(expected.all, begin, expected.ends[t]), scale = own > 1e-12 * within ? own : within;
    double off = 0;
    for (std::size_t i = begin; i < expected.ends[t]; ++i) {
      const double d = std::abs(got.all[i] - expected.all[i]);
      off = d <= off ? off : d;  // NaN stays
    }
    const double by = scale > 0 ? off / scale : off;
    if (by <= worst_by) continue;
    worst_by = by;
    worst = fmt::format("{} by {:.2g}", expected.names[t], by);
  }
  return worst;
}
std::string difference(const MatrixRun& got, const MatrixRun& expected) {
  if (!got.agreed) return "ranks end with different weights";
  if (!got.as_planned) return "a rank sent other bytes than planned";
  for (const auto& [what, a, b] : {std::tuple{"gradient of ", &got.gradients, &expected.gradients},
                                   {"weights of ", &got.weights, &expected.weights},
                                   {"buffer ", &got.buffers, &expected.buffers}})
    if (const std::string found = difference(*a, *b); !found.empty()) return what + found;
  return distance(got.losses, expected.losses) <= tolerance ? "" : "losses";
}

}  // namespace

MatrixCell Comparison::run(const SmallModel& m, const std::string& strategy, const std::string& mesh,
                           int microbatches) {
  const Arrangement how{parse_mesh(mesh), strategy, microbatches};
  try {
    const MatrixRun got = on_ranks(how.ranks(), [&](World& world) { return train(m, how, world, clip_, audit_); });
    return {.refused = "", .wrong = difference(got, reference(m, m.batch_norm ? microbatches : 1))};
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::usage) return {.refused = e.what(), .wrong = ""};
    return {.refused = "", .wrong = fmt::format("{}: {}", name_of(e.kind()), e.what())};
  } catch (const std::exception& e) { return {.refused = "", .wrong = e.what()}; }
}

const MatrixRun& Comparison::reference(const SmallModel& m, int microbatches) {
  const auto [at, added] = references_.try_emplace({m.name, microbatches});
  if (added) {
    World world;
    const std::string strategy = microbatches > 1 ? fmt::format("accumulate(micro={})", microbatches) : "serial";
    at->second = train(m, {{{"data", 1}}, strategy, microbatches}, world, clip_, false);
  }
  return at->second;
}

}  // namespace trireme::test
