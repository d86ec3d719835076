#include <algorithm>
#include <ranges>

#include "framework/autograd/backward.h"
#include "framework/autograd/step_context.h"
#include "framework/tensor/fields.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/plan/liveness.h"
#include "parallel/profile/measure.h"

namespace trireme {
namespace {

double stage_now() { return static_cast<double>(FlightRecorder::nanoseconds()) / 1e9; }

/// x without history, like a tensor received over a cut.
Tensor leaf(const Tensor& x, bool wants_gradient) {
  Tensor in = x.detach();
  in.impl()->batch = x.impl()->batch;
  return in.require_grad(wants_gradient && is_float(x.dtype()));
}

/// Start of a micro-batch's backward.
struct Recorded {
  std::vector<Tensor> roots, seeds;
};

/// Parts that run together, and their input.
struct Stage {
  Segment parts;
  Tensor x;
  Stashed stashed;
  std::vector<double> forward = {}, input = {}, weight = {};  // seconds
  std::vector<Recorded> in_flight = {};

  void begin(const Chain& chain, bool counts) {
    Stashed beside;
    beside.fields = stashed.fields;
    for (auto& [name, t] : stashed) beside.emplace(name, leaf(t.clone(), true));
    const Stashed before = beside;
    // Each micro-batch has a separate copy.
    Tensor y = leaf(with_fields(x.clone(), fields_beside(x)), parts.first > 0);
    const double begun = stage_now();
    for (int p = parts.first; p < parts.end; ++p) y = chain.run(p, y, beside);
    if (counts) forward.push_back(stage_now() - begun);
    Recorded r{.roots = {y}, .seeds = {}};
    for (auto& [name, t] : beside)
      if (const auto was = before.find(name); was == before.end() || was->second.id() != t.id()) r.roots.push_back(t);
    std::erase_if(r.roots, [](const Tensor& t) { return !t.requires_grad(); });
    for (const Tensor& root : r.roots) r.seeds.push_back(Tensor::full(root.shape(), 1e-3, root.dtype(), root.device()));
    in_flight.push_back(std::move(r));
  }
  /// Runs backward of the oldest micro-batch.
  void end(bool split, bool counts) {
    const Recorded r = std::move(in_flight.front());
    in_flight.erase(in_flight.begin());
    Deferred weights;
    const double begun = stage_now();
    if (!r.roots.empty()) backward(r.roots, r.seeds, {.defer_weights = split ? &weights : nullptr, .hooks = false});
    const double propagated = stage_now();
    weights.run();
    if (counts) {
      input.push_back(propagated - begun);
      weight.push_back(stage_now() - propagated);
    }
  }
};

}  // namespace

void measure_stage(const Chain& chain, Parameters& parameters, const Tensor& x, const Program& program, bool split,
                   int runs, std::vector<PartCost>& parts) {
  StepContext context = StepContext::current();
  context.recomputing = true;  // running statistics do not change
  context.batch.samples = {};
  context.norm = {};
  const StepScope scope(std::move(context));
  const GradMode on(true);
  std::vector<Stage> stages;
  Tensor y = x;
  Stashed stashed;
  const auto segments = Liveness(program).segments;
  const int last = segments.empty() ? 0 : std::ranges::max_element(segments, {}, &Segment::end)->end;
  for (int p = 0; p < last; ++p) {
    if (const auto s = std::ranges::find(segments, p, &Segment::first); s != segments.end())
      stages.push_back({*s, y, stashed});
    y = leaf(chain.run(p, y, stashed), false);
  }
  const int each = std::max(1, peak_in_flight(program) / std::max(1, static_cast<int>(stages.size())));
  for (int run = -2; run < runs; ++run) {
    for (Stage& stage : stages)
      for (int i = 0; i < each; ++i) stage.begin(chain, run >= 0);
    for (Stage& stage : stages | std::views::reverse)
      for (int i = 0; i < each; ++i) stage.end(split, run >= 0);
  }
  parameters.clear_grads();
  for (const Stage& stage : stages) {
    double forward = 0, back = 0, input = 0, weight = 0;
    for (int p = stage.parts.first; p < stage.parts.end; ++p) {
      forward += parts[p].forward;
      input += parts[p].backward_input;
      weight += parts[p].backward_weight;
    }
    back = input + weight;
    const auto ratio = [](const std::vector<double>& seconds, double of) {
      return of > 0 ? measured(seconds).value / of : 1;
    };
    const double f = ratio(stage.forward, forward), whole = ratio(stage.input, back);
    const double i = split ? ratio(stage.input, input) : whole, w = split ? ratio(stage.weight, weight) : whole;
    for (int p = stage.parts.first; p < stage.parts.end; ++p) {
      parts[p].forward *= f;
      parts[p].backward_input *= i;
      parts[p].backward_weight *= w;
    }
  }
}

}  // namespace trireme
