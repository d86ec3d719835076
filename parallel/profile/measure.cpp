#include "parallel/profile/measure.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/runtime.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/world/world.h"
#include "parallel/model/chain.h"
#include "parallel/model/part_costs.h"
#include "parallel/plan/action_kind.h"
#include "parallel/runtime/step.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/split/split.h"

namespace trireme {
namespace {

double now() { return static_cast<double>(FlightRecorder::nanoseconds()) / 1e9; }

/// Durations of the pieces of a step in seconds.
struct Pieces {
  double forward = 0, backward = 0, loss = 0, update = 0;
};

Pieces pieces_of(const Plan& plan, const Timeline& timeline) {
  Pieces sum;
  for (const Span& s : timeline.spans) {
    const Action& a = plan.programs[0].actions[static_cast<std::size_t>(s.action)];
    double* const of = a.kind == ActionKind::forward  ? &sum.forward
                       : a.kind == ActionKind::loss   ? &sum.loss
                       : a.kind == ActionKind::update ? &sum.update
                       : is_backward(a)               ? &sum.backward
                                                      : nullptr;
    if (of) *of += s.end - s.begin;
  }
  return sum;
}

/// One of several ranks that measure at the same time.
class Replica {
 public:
  Replica(const MeasureOptions& options, Communicator& comm) : options_(options), comm_(comm) {}

  void measure(Mesh& mesh) {
    Module model = options_.model();
    StepOptions step_options = options_.step;
    if (options_.split.any()) {
      model = split(model, mesh, options_.split, options_.batch(options_.rows.front()).first, true);
      for (const Axis& axis : mesh.axes()) step_options.layer_axes.push_back(axis.name);
      step_options.checks.finite = step_options.refuse_unsound = false;  // nothing arrives, and nothing is summed
    }
    Step step(model, options_.loss, options_.optimizer, mesh, {}, step_options);
    const Chain chain(model);
    for (const PartInfo& part : chain.parts(step.parameters())) profile.names.push_back(part.name);
    profile.parameters = step.parameters().count();
    std::vector<double> update;
    for (const Index rows : options_.rows) {
      const auto [x, y] = options_.batch(rows);
      profile.sizes.push_back(of_rows(step, chain, x, y, update));
    }
    profile.update = measured(update);
  }

  ModelProfile profile;

 private:
  ModelProfile::Size of_rows(Step& step, const Chain& chain, const Tensor& x, const Tensor& y,
                             std::vector<double>& update) {
    std::vector<double> whole, forward, backward, loss;
    const auto held = static_cast<double>(step.parameters().size());  // numbers that this rank updates
    const auto one = [&] {
      const double begun = now();
      (void)step(x, y).item();
      return now() - begun;
    };
    (void)one();
    (void)one();
    for (int run = 0; run < options_.runs; ++run) {
      comm_.barrier();
      whole.push_back(one());
      StepProbe(step).record(true);
      comm_.barrier();
      (void)one();
      StepProbe(step).record(false);
      const Pieces p = pieces_of(step.plan(), StepProbe(step).timeline());
      forward.push_back(p.forward);
      backward.push_back(p.backward);
      loss.push_back(p.loss);
      update.push_back(p.update / held);
    }
    comm_.barrier();
    ModelProfile::Size size{
        .rows = x.dim(0), .forward = measured(forward), .backward = measured(backward), .loss = measured(loss)};
    size.between = measured(whole);
    size.between.value = std::max(0.0, size.between.value - size.forward.value - size.backward.value - size.loss.value -
                                           measured(update).value * held);
    size.parts = measure_costs(chain, step.parameters(), x, options_.runs);
    comm_.barrier();
    double sum[2] = {0, 0};
    for (const PartCost& c : size.parts) {
      sum[0] += c.forward;
      sum[1] += c.backward_input + c.backward_weight;
    }
    for (PartCost& c : size.parts) {
      c.forward *= size.forward.value / sum[0];
      c.backward_input *= size.backward.value / sum[1];
      c.backward_weight *= size.backward.value / sum[1];
    }
    return size;
  }

  const MeasureOptions& options_;
  Communicator& comm_;
};

ModelProfile replica_of(Mesh& mesh, const MeasureOptions& options, Communicator& comm) {
  check(!options.rows.empty() && options.runs > 0, "profile",
        "{} sizes and {} runs: there must be one of each at least", options.rows.size(), options.runs);
  Replica replica(options, comm);
  const int cores = threads();
  replica.measure(mesh);
  replica.profile.ranks = comm.size();
  replica.profile.threads = cores;
  return std::move(replica.profile);
}

}  // namespace

Measured measured(std::vector<double> values) {
  check(!values.empty(), "profile", "nothing was measured");
  std::ranges::sort(values);
  const auto at = [&](double share) {  // linear interpolation between two values
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const double above = values[std::min(below + 1, values.size() - 1)];
    return values[below] + (place - static_cast<double>(below)) * (above - values[below]);
  };
  const double median = at(0.5);
  return {median, median > 0 ? (at(0.75) - at(0.25)) / 2 / median : 0};
}

ModelProfile measure_model(Communicator& comm, const MeasureOptions& options) {
  World alone;
  Mesh mesh(alone);
  MeasureOptions whole = options;
  whole.split = {};
  return replica_of(mesh, whole, comm);
}

bool can_measure_share(const SplitOptions& split) { return split.one_weird_trick.empty(); }

ModelProfile measure_share(Mesh& mesh, const MeasureOptions& options) {
  check(can_measure_share(options.split), "profile", "one_weird_trick needs the rows that messages bring");
  MeasureOptions of_share = options;
  const std::vector<std::string> apart = options.split.apart_axes();
  std::vector<std::string> names = options.split.sample_axes();
  for (const std::string& name : weight_axes(options.split)) names.push_back(name);
  std::vector<Axis> axes;
  int rank = 0;
  for (Axis axis : mesh.axes())
    if (std::ranges::find(names, axis.name) != names.end()) {
      rank = rank * axis.size + mesh.index(axis.name);
      if (std::ranges::find(apart, axis.name) != apart.end()) {  // here it does not divide the batch
        std::ranges::replace(of_share.split.experts, axis.name, axis.name + "_experts");
        axis.name += "_experts";
      }
      axes.push_back(axis);
    }
  World alone;
  Mesh own(alone, axes, rank);
  const TrafficMeter::Dry nothing_sent(own.meter(), [](const std::string&, const Call&) {});
  ModelProfile profile = replica_of(own, of_share, mesh.world().comm());
  profile.divided = true;
  std::vector<double*> seconds;
  for (ModelProfile::Size& size : profile.sizes) {
    for (Measured* m : {&size.forward, &size.backward, &size.loss}) seconds.push_back(&m->value);
    for (PartCost& c : size.parts)
      for (double* s : {&c.forward, &c.backward_input, &c.backward_weight}) seconds.push_back(s);
  }
  const Tensor most = Tensor::empty({std::ssize(seconds)}, DType::f64);
  for (std::size_t i = 0; i < seconds.size(); ++i) most.data<double>()[i] = *seconds[i];
  mesh.world().comm().all_reduce(most, ReduceOp::max).wait();
  for (std::size_t i = 0; i < seconds.size(); ++i) *seconds[i] = most.data<double>()[i];
  return profile;
}

double jitter_of(const ModelProfile& profile) {
  constexpr double quartile = 0.6745;  // of a normal distribution, in standard deviations
  std::vector<double> all;
  for (const ModelProfile::Size& s : profile.sizes)
    all.push_back(std::asinh(std::max(s.forward.spread, s.backward.spread)) / quartile);
  return all.empty() ? 0 : std::min(measured(all).value, Cluster::most_jitter);
}

double heldout_error(const ModelProfile& profile) {
  double most = 0;
  for (std::size_t i = 1; i + 1 < profile.sizes.size(); ++i) {
    ModelProfile others = profile;
    others.sizes.erase(others.sizes.begin() + static_cast<std::ptrdiff_t>(i));
    const ModelProfile::Size& left_out = profile.sizes[i];
    double predicted = 0;
    for (const PartCost& c : costs_at(others, left_out.rows).parts)
      predicted += c.forward + c.backward_input + c.backward_weight;
    most = std::max(most, std::abs(predicted / (left_out.forward.value + left_out.backward.value) - 1));
  }
  return most;
}

Link link_of(const std::vector<MeasuredCall>& calls) {
  Link link;
  link.measured = calls;
  const MeasuredCall *least = nullptr, *most = nullptr;
  for (const MeasuredCall& c : calls) {
    if (c.kind != CallKind::send) continue;
    if (!least || c.bytes < least->bytes) least = &c;
    if (!most || c.bytes > most->bytes) most = &c;
  }
  if (!least) return link;
  link.source = Source::measured;
  link.latency = least->seconds;
  const double seconds = most->seconds - least->seconds;
  if (seconds > 0) link.bandwidth = static_cast<double>(most->bytes - least->bytes) / seconds;
  return link;
}

StepCosts costs_at(const ModelProfile& profile, Index rows) {
  check(!profile.sizes.empty() && rows > 0, "profile", "{} has {} sizes, and {} rows are asked for", profile.model,
        profile.sizes.size(), rows);
  const auto& sizes = profile.sizes;
  auto above = std::ranges::lower_bound(sizes, rows, {}, &ModelProfile::Size::rows);
  StepCosts costs;
  costs.extrapolated = above == sizes.end() || rows < sizes.front().rows;
  if (above == sizes.end()) --above;
  const auto below = above == sizes.begin() ? above : above - 1;
  const auto other = sizes.size() > 1 && below == above ? above + 1 : above;
  const double span = static_cast<double>(other->rows - below->rows);
  const double share = span > 0 ? static_cast<double>(rows - below->rows) / span : 0;
  const auto line = [&](double a, double b) { return std::max(0.0, a + share * (b - a)); };
  const bool only = sizes.size() == 1;  // a single size: in proportion to the rows
  const double ratio = only ? static_cast<double>(rows) / static_cast<double>(below->rows) : 1;
  for (std::size_t p = 0; p < below->parts.size(); ++p) {
    PartCost c = below->parts[p];
    for (double PartCost::*cost : {&PartCost::forward, &PartCost::backward_input, &PartCost::backward_weight})
      c.*cost = ratio * line(below->parts[p].*cost, other->parts[p].*cost);
    costs.parts.push_back(c);
  }
  costs.loss = ratio * line(below->loss.value, other->loss.value);
  costs.between = line(below->between.value, other->between.value);
  costs.update = profile.update.value;
  costs.spread = std::max(below->backward.spread, other->backward.spread);
  return costs;
}

}  // namespace trireme
