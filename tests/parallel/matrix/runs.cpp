#include "tests/parallel/matrix/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "parallel/runtime/step_probe.h"
#include "tests/parallel/pairs.h"
#include "tests/support/ranks.h"

namespace trireme::test {
namespace {

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

Tensor tensor_of(const std::vector<double>& all) { return Tensor::of(all, {std::ssize(all)}, DType::f64); }

/// Whether this is true on all ranks. A collective call.
bool on_all(World& world, bool mine) {
  const Tensor all = Tensor::full({1}, mine, DType::i64);
  world.comm().all_reduce(all, ReduceOp::min).wait();
  return *all.data<std::int64_t>() == 1;
}

/// One step of SGD, whose change of weights is the gradient, then some of AdamW from the same start. A model with
/// records then takes one step whose predictions are kept.
MatrixRun train(const SmallModel& m, const Arrangement& how, World& world, const Recipe& recipe) {
  constexpr double factor = 1 << 20;  // so that a small gradient is not lost in a weight
  enum class Run : std::uint8_t { gradient, training, records };
  MatrixRun run;
  const auto record = [&](bool on) {  // between two barriers
    if (!m.records) return;
    for (int i = 0; i < 2; ++i) {
      (void)on_all(world, true);
      m.records->record(on);
    }
  };
  for (const Run now : {Run::gradient, Run::training, Run::records}) {
    const bool first = now == Run::gradient;
    if (now == Run::records && !m.records) continue;
    Mesh mesh(world, how.mesh);
    const OptimizerConfig optimizer = now != Run::training ? OptimizerConfig(Sgd{.lr = factor})
                                                           : AdamW{.lr = 1e-3, .eps = recipe.eps, .weight_decay = 0.1};
    StepOptions options{.seed = 5, .optimizer = {.clip_norm = first ? 0 : recipe.clip}};
    if (now == Run::records)
      options.keep_outputs = [&m](const Tensor& prediction, const Tensor& target) {
        m.records->add("loss of tokens", m.each(prediction.detach(), target));
        return prediction.detach();
      };
    // Weights are divided by the flow of data, then by the order of names.
    const bool tensor = how.strategy.find("tensor") != std::string::npos;
    // zero(3) gathers weights as they are read.
    if (tensor ? first : how.strategy.find("zero(3") != std::string::npos) options.profile.example = m.data.x;
    Step step(m.make(), m.loss, optimizer, mesh, parse_strategy(how.strategy), options);
    Loader loader(TensorDataset(m.data.x, m.data.y),
                  {.batch = m.data.x.dim(0), .shuffle = true, .seed = 3, .shard = step.shard(), .workers = 0});
    const Values before = weights_of(step);
    if (!first) record(true);  // which sends messages, and the first run counts them
    for (int steps = now == Run::training ? recipe.steps : 1; steps > 0; --steps)
      for (const auto& [x, y] : loader) {
        run.losses.push_back(step(x, y).item());
        if (now == Run::training && recipe.clip > 0) run.norms.push_back(StepProbe(step).grad_norm());
      }
    if (!first) record(false);
    // one_weird_trick's messages depend on the rows of other ranks, which no rank knows by itself; those of experts on
    // the router's choices (test_experts.cpp counts them).
    const auto uses = [&](const char* part) { return how.strategy.find(part) != std::string::npos; };
    const bool known =
        !uses("one_weird_trick") && (!uses("experts") || (uses("experts(axes=tensor)") && !uses("sequence")));
    if (first && recipe.audit && known) {
      const StepTraffic traffic = StepProbe(step).traffic();
      run.as_planned = on_all(world, traffic.planned == traffic.counted);
    }
    StepProbe(step).consolidate();
    Values after = weights_of(step);
    run.agreed = agree(world, tensor_of(after.all)) && run.agreed;
    if (first) {
      run.gradients = after;
      for (std::size_t i = 0; i < after.all.size(); ++i) run.gradients.all[i] = (before.all[i] - after.all[i]) / factor;
    } else if (now == Run::training) {
      run.weights = std::move(after);
      run.buffers = buffers_of(step);
    }
  }
  run.agreed = agree(world, tensor_of(run.losses)) && agree(world, tensor_of(run.norms)) && run.agreed;
  return run;
}
double largest(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double most = 0;
  for (std::size_t i = begin; i < end; ++i) most = std::max(most, std::abs(values[i]));
  return most;
}

/// The tensor that differs most.
struct Deviation {
  double by = 0;  ///< relative to the tensor's largest element, or to its layer's if the tensor is zero in truth
  std::string name;
  void join(double other, const std::string& of) {
    if (other <= by || std::isnan(by)) return;
    by = other;
    name = of;
  }
};
std::map<std::string, double> largest_of_layers(const Values& v) {
  std::map<std::string, double> all;
  std::size_t begin = 0;
  for (std::size_t t = 0; t < v.ends.size(); begin = v.ends[t++]) {
    double& most = all[v.names[t].substr(0, v.names[t].rfind('.'))];
    most = std::max(most, largest(v.all, begin, v.ends[t]));
  }
  return all;
}
/// Whether a gradient is zero in truth, next to the largest of its layer.
bool is_zero(double own, double of_layer) { return own <= 1e-12 * of_layer; }

/// Relative to a tensor's largest element, or to that of its layer if it is zero in truth. gradients: numbers that are
/// zero in truth there are left out.
Deviation deviation(const Values& got, const Values& expected, const Values* gradients = nullptr) {
  if (got.names != expected.names || got.ends != expected.ends) return {1e300, "other tensors"};
  const std::map<std::string, double> of_layer = largest_of_layers(expected),
                                      slopes = largest_of_layers(gradients ? *gradients : expected);
  Deviation worst;
  std::size_t begin = 0;
  for (std::size_t t = 0; t < expected.ends.size(); begin = expected.ends[t++]) {
    const std::string& name = expected.names[t];
    const std::string layer = name.substr(0, name.rfind('.'));
    const double own = largest(expected.all, begin, expected.ends[t]), within = of_layer.at(layer),
                 scale = is_zero(own, within) ? within : own;
    double off = 0;
    for (std::size_t i = begin; i < expected.ends[t]; ++i) {
      if (gradients && is_zero(std::abs(gradients->all[i]), slopes.at(layer))) continue;
      const double d = std::abs(got.all[i] - expected.all[i]);
      off = d <= off ? off : d;  // NaN stays
    }
    worst.join(scale > 0 ? off / scale : off, name);
  }
  return worst;
}
/// By what was recorded: relative to the largest number of its kind in the step.
std::map<std::string, Deviation> deviations(const std::map<Records::Key, std::vector<double>>& got,
                                            const std::map<Records::Key, std::vector<double>>& expected) {
  std::map<std::pair<std::string, std::uint64_t>, double> scales;
  for (const auto& [key, values] : expected) {
    double& most = scales[{std::get<0>(key), std::get<1>(key)}];
    most = std::max(most, largest(values, 0, values.size()));
  }
  std::map<std::string, Deviation> worst;
  for (const auto& [key, values] : expected) {
    const auto& [what, step, sample] = key;
    const auto at = got.find(key);
    const bool there = at != got.end() && at->second.size() == values.size();
    double off = there ? 0 : 1e300;
    for (std::size_t i = 0; there && i < values.size(); ++i) {
      const double d = std::abs(at->second[i] - values[i]);
      off = d <= off ? off : d;
    }
    const double scale = scales.at({what, step});
    worst[what.starts_with("mask") ? "mask" : what].join(scale > 0 ? off / scale : off,
                                                         fmt::format("{} of sample {} in step {}", what, sample, step));
  }
  return worst;
}

MatrixCell compared(const MatrixRun& got, const MatrixRun& expected, const Recipe& recipe) {
  std::map<std::string, Deviation> all = deviations(got.records, expected.records);
  all["gradient"] = deviation(got.gradients, expected.gradients);
  all["weights"] = deviation(got.weights, expected.weights, recipe.eps < 1e-4 ? &expected.gradients : nullptr);
  all["buffer"] = deviation(got.buffers, expected.buffers);
  all["loss"] = {distance(got.losses, expected.losses), "the batch"};
  all["norm"] = {distance(got.norms, expected.norms), "the gradient"};
  MatrixCell cell;
  for (const auto& [what, worst] : all) {
    cell.deviations[what] = worst.by;
    if (!(worst.by <= (what == "mask" ? 0 : recipe.tolerance)))
      cell.wrong += fmt::format("{}{} of {} by {:.2g}", cell.wrong.empty() ? "" : "; ", what, worst.name, worst.by);
  }
  if (!got.agreed) cell.wrong = "ranks have different weights, losses or norms";
  if (!got.as_planned) cell.wrong = "a rank sent other bytes than planned";
  if (!got.conflict.empty()) cell.wrong = "ranks have different " + got.conflict;
  return cell;
}

}  // namespace

MatrixRun train(const SmallModel& m, const Recipe& recipe, const std::string& strategy, const std::string& mesh,
                int microbatches) {
  const Arrangement how{parse_mesh(mesh), strategy, microbatches};
  if (m.records) (void)m.records->take();
  MatrixRun run = on_ranks(how.ranks(), [&](World& world) { return train(m, how, world, recipe); });
  if (m.records) {
    run.conflict = m.records->conflict();
    run.records = m.records->take();
  }
  return run;
}

MatrixCell Comparison::run(const SmallModel& m, const std::string& strategy, const std::string& mesh,
                           int microbatches) {
  try {
    const MatrixRun got = train(m, recipe_, strategy, mesh, microbatches);
    return compared(got, reference(m, m.batch_norm ? microbatches : 1), recipe_);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::usage) return {.refused = e.what(), .wrong = ""};
    return {.refused = "", .wrong = fmt::format("{}: {}", name_of(e.kind()), e.what())};
  } catch (const std::exception& e) { return {.refused = "", .wrong = e.what()}; }
}

const MatrixRun& Comparison::reference(const SmallModel& m, int microbatches) {
  const auto [at, added] = references_.try_emplace({m.name, microbatches});
  if (added) {
    const std::string strategy = microbatches > 1 ? fmt::format("accumulate(micro={})", microbatches) : "serial";
    Recipe recipe = recipe_;
    recipe.audit = false;
    at->second = train(m, recipe, strategy, "data=1", microbatches);
  }
  return at->second;
}

}  // namespace trireme::test
