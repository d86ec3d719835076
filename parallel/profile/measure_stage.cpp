#include <algorithm>

#include "framework/autograd/backward.h"
#include "framework/autograd/step_context.h"
#include "framework/tensor/fields.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/plan/liveness.h"
#include "parallel/profile/measure.h"

namespace trireme {
namespace {

double now() { return static_cast<double>(FlightRecorder::nanoseconds()) / 1e9; }

/// x without history, as it comes over a cut.
Tensor leaf(const Tensor& x, bool wants_gradient) {
  Tensor in = x.detach();
  in.impl()->batch = x.impl()->batch;
  return in.require_grad(wants_gradient && is_float(x.dtype()));
}

/// Parts that run together, with what comes into them.
struct Stage {
  Segment parts;
  Tensor x;
  Stashed stashed;
  std::vector<double> forward = {}, input = {}, weight = {};  // seconds

  void run(const Chain& chain, bool split, bool counts) {
    Stashed beside;
    for (auto& [name, t] : stashed) beside.emplace(name, leaf(t, true));
    const Stashed before = beside;
    Tensor y = leaf(x, parts.first > 0);
    const double begun = now();
    for (int p = parts.first; p < parts.end; ++p) y = chain.run(p, y, beside);
    const double made = now();
    std::vector<Tensor> roots{y}, seeds;
    for (auto& [name, t] : beside)
      if (const auto was = before.find(name); was == before.end() || was->second.id() != t.id()) roots.push_back(t);
    std::erase_if(roots, [](const Tensor& t) { return !t.requires_grad(); });
    for (const Tensor& root : roots) seeds.push_back(Tensor::full(root.shape(), 1e-3, root.dtype(), root.device()));
    Deferred weights;
    const double seeded = now();
    if (!roots.empty()) backward(roots, seeds, {.defer_weights = split ? &weights : nullptr, .hooks = false});
    const double propagated = now();
    weights.run();
    if (!counts) return;
    forward.push_back(made - begun), input.push_back(propagated - seeded), weight.push_back(now() - propagated);
  }
};

}  // namespace

void measure_stage(const Chain& chain, Parameters& parameters, const Tensor& x, const Program& program, bool split,
                   int runs, std::vector<PartCost>& parts) {
  StepContext pass = StepContext::current();
  pass.recomputing = true;  // running statistics stay
  pass.batch.samples = {}, pass.norm = {};
  const StepScope scope(std::move(pass));
  const GradMode on(true);
  std::vector<Stage> stages;
  Tensor y = x;
  Stashed stashed;
  const auto segments = find_segments(program);
  const int last = segments.empty() ? 0 : std::ranges::max_element(segments, {}, &Segment::end)->end;
  for (int p = 0; p < last; ++p) {
    if (const auto s = std::ranges::find(segments, p, &Segment::first); s != segments.end())
      stages.push_back({*s, y, stashed});
    const Fields fields = fields_beside(y);
    y = leaf(chain.run(p, p > 0 ? with_fields(y, fields) : y, stashed), false);
  }
  for (int run = -2; run < runs; ++run)
    for (Stage& stage : stages) stage.run(chain, split, run >= 0);
  parameters.clear_grads();
  for (const Stage& stage : stages) {
    double forward = 0, back = 0, input = 0, weight = 0;
    for (int p = stage.parts.first; p < stage.parts.end; ++p)
      forward += parts[p].forward, input += parts[p].backward_input, weight += parts[p].backward_weight;
    back = input + weight;
    const auto ratio = [](const std::vector<double>& seconds, double of) {
      return of > 0 ? measured(seconds).value / of : 1;
    };
    const double f = ratio(stage.forward, forward), whole = ratio(stage.input, back);
    const double i = split ? ratio(stage.input, input) : whole, w = split ? ratio(stage.weight, weight) : whole;
    for (int p = stage.parts.first; p < stage.parts.end; ++p)
      parts[p].forward *= f, parts[p].backward_input *= i, parts[p].backward_weight *= w;
  }
}

}  // namespace trireme
