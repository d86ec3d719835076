#include "parallel/profile/predict.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "parallel/comm/world/mesh.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/plan/liveness.h"
#include "parallel/profile/measure.h"

namespace trireme {
namespace {

double* time_of(StepTimes& times, const Action& a) {
  if (a.kind == ActionKind::forward) return &times.forward;
  if (a.kind == ActionKind::loss) return &times.loss;
  if (a.kind == ActionKind::update) return &times.update;
  return is_backward(a) ? &times.backward : &times.other;
}

bool is_call(const Action& a) { return is_collective(a) || is_message(a) || is_channel(a); }

/// Number of ranks over which the layers of a part are divided.
int divisor_of(const Plan& plan, const PartInfo& part) {
  std::vector<std::string> axes;
  int ranks = 1;
  for (const auto& [pass, comms] : part.comms)
    for (const PlannedCall& c : comms)
      if (c.axis != "data" && c.axis != plan.stage_axis && std::ranges::find(axes, c.axis) == axes.end()) {
        axes.push_back(c.axis);
        ranks *= size_along(plan.axes, c.axis);
      }
  return ranks;
}

}  // namespace

std::int64_t period_of(const Plan& plan) {
  constexpr std::int64_t most = 1 << 20;  // longest period that is searched
  std::int64_t period = 1;
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions)
      if (a.kind != ActionKind::agree)
        period = std::min(most, std::lcm(period, std::min(most, program.trigger(a).every)));
  return period;
}

std::vector<std::pair<std::string, double>> components_of(const StepTimes& times) {
  std::vector<std::pair<std::string, double>> all{{"forward", times.forward},
                                                  {"backward", times.backward},
                                                  {"loss", times.loss},
                                                  {"update", times.update},
                                                  {"other computation", times.other}};
  for (const auto& [axis, seconds] : times.waits) all.emplace_back("waiting, axis " + axis, seconds);
  all.emplace_back("between actions", times.host);
  return all;
}

StepTimes times_of(const Plan& plan, const Timeline& timeline, double step) {
  StepTimes sum{.step = step};
  const auto ranks = static_cast<double>(timeline.programs.size());
  for (int rank = 0; rank < std::ssize(timeline.programs); ++rank) {
    const auto& actions = plan.programs[static_cast<std::size_t>(timeline.programs[rank])].actions;
    std::vector<Span> computed, calls;
    double first = std::numeric_limits<double>::max(), last = 0;
    for (const Span& s : timeline.spans)
      if (s.rank == rank) {
        (is_call(actions[static_cast<std::size_t>(s.action)]) ? calls : computed).push_back(s);
        first = std::min(first, s.begin);
        last = std::max(last, s.end);
      }
    // End of the time accounted for so far. A measured rank starts its step at its own first action.
    double at = timeline.measured && last > 0 ? first : 0;
    computed.push_back({rank, -1, std::max(at + step, last), std::numeric_limits<double>::max()});
    std::ranges::sort(computed, {}, &Span::begin);
    for (const Span& s : computed) {
      const Span* call = nullptr;  // the last call that ended in the gap
      for (const Span& c : calls)
        if (c.end > at && c.begin < s.begin && (!call || std::min(c.end, s.begin) > std::min(call->end, s.begin)))
          call = &c;
      if (s.begin > at) {
        const double until = call ? std::min(call->end, s.begin) : at;
        if (call) sum.waits[actions[static_cast<std::size_t>(call->action)].peer.axis] += (until - at) / ranks;
        sum.host += (s.begin - until) / ranks;
      }
      if (s.action >= 0)
        *time_of(sum, actions[static_cast<std::size_t>(s.action)]) +=
            std::max(0.0, s.end - std::max(at, s.begin)) / ranks;
      at = std::max(at, s.end);
    }
  }
  return sum;
}

ModelProfile measure_parts_of(Mesh& mesh, const Plan& plan, MeasureOptions options, Index rows) {
  options.rows = {rows};
  if (options.split.any() && can_measure_share(options.split)) return measure_share(mesh, options);
  Communicator& world = mesh.world().comm();
  ModelProfile profile = measure_model(world, options);
  const std::size_t count = profile.sizes[0].parts.size();
  if (plan.microbatches < 2 || count != plan.parts.size()) return profile;
  const int mine = plan.program_at([&](const std::string& axis) { return mesh.index(axis); });
  const Program& program = plan.programs[static_cast<std::size_t>(mine)];
  const Module model = options.model();
  const Chain chain(model);
  Parameters parameters(model);
  const bool split =
      std::ranges::find(program.actions, ActionKind::backward_input, &Action::kind) != program.actions.end();
  std::vector<PartCost> parts = profile.sizes[0].parts;
  const Tensor x = options.batch(rows).first;
  world.barrier();
  measure_stage(chain, parameters, x, program, split, options.runs, parts);
  // Each part's cost is the mean over the ranks that run it.
  const Tensor all = Tensor::zeros({static_cast<Index>(count), 4}, DType::f64);
  double* const told = all.data<double>();
  const Liveness live(program);
  for (int p = 0; p < std::ssize(live.segment_of_part); ++p) {
    if (live.segment_of_part[p] < 0) continue;
    double* const of = told + 4 * p;
    of[0] = parts[p].forward;
    of[1] = parts[p].backward_input;
    of[2] = parts[p].backward_weight;
    of[3] = 1;
  }
  world.all_reduce(all).wait();
  for (std::size_t p = 0; p < count; ++p) {
    const double* const of = told + 4 * p;
    PartCost& c = profile.sizes[0].parts[p];
    if (of[3] == 0) continue;
    // The first micro-batch of a step finds the caches as the update left them; steps of one micro-batch always do.
    const auto mean = [&](double first, double later) { return later + (first - later) / plan.microbatches; };
    c.forward = mean(c.forward, of[0] / of[3]);
    c.backward_input = mean(c.backward_input, of[1] / of[3]);
    c.backward_weight = mean(c.backward_weight, of[2] / of[3]);
  }
  return profile;
}

PredictStepOptions measure_calls_of(Mesh& mesh, const Plan& plan, std::int64_t step, int runs) {
  PredictStepOptions options{.second_copies = mesh.world().transport() == "threads", .step = step};
  Communicator& world = mesh.world().comm();
  const std::vector<Index> bytes{8, 1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24};
  const auto measure = [&](Communicator& comm) {
    std::ranges::copy(measure_calls(comm, bytes, runs), std::back_inserter(options.calls));
  };
  for (const Axis& axis : mesh.axes())
    if (axis.size > 1 && axis.size < world.size()) measure(mesh.comm(axis.name));
  measure(world);  // of one axis, or of several joined

  std::vector<std::pair<Action, double>> whole;  // measured individually; equal actions once
  const auto like = [](const Action& a) {
    return [&a](const auto& w) {
      return w.first.kind == a.kind && w.first.codec == a.codec && w.first.slice.size() == a.slice.size() &&
             w.first.peer == a.peer;
    };
  };
  Index mixed = 0;
  for (const Program& program : plan.programs)  // on all ranks, whatever their program
    for (const Action& a : program.actions) {
      if (drops(a, OperandKind::weights) && options.fresh == 0) options.fresh = measure_fresh(world, runs).value;
      const bool encodes = a.codec && is_encoded(a, step), mixes = a.kind->vector_ops && a.kind->is_collective;
      if (a.kind->vector_ops && !mixes) mixed = std::max(mixed, a.slice.size());
      if (!(encodes || mixes) || mesh.size(a.peer.axis) == 1 || std::ranges::any_of(whole, like(a))) continue;
      Communicator& ranks = mesh.comm(a.peer.axis);
      whole.emplace_back(
          a, encodes ? measure_encoded(ranks, plan, a, step, runs) : measure_mixing(ranks, plan, a, step, runs));
    }
  if (mixed > 0) options.vector_op = measure_vector_ops(world, mixed, runs).value;
  if (!whole.empty())
    options.measured = [whole, like, step](const Action& a) {
      const bool as_it_is = a.codec ? is_encoded(a, step) : a.kind->vector_ops != nullptr;
      const auto at = std::ranges::find_if(whole, like(a));
      return as_it_is && at != whole.end() ? at->second : -1;
    };
  return options;
}

StepTimes predict_step(const Plan& given, const ModelProfile& profile, const PredictStepOptions& options) {
  Plan plan = given;
  const StepCosts costs = costs_at(profile, options.rows);
  // Split layers are between two additional parts, which only communicate and do not exist in the whole model.
  const bool added = !profile.divided && plan.parts.size() == costs.parts.size() + 2 &&
                     plan.parts.front().name == "split" && plan.parts.back().name == "join";
  check(added || costs.parts.size() == plan.parts.size(), "predict",
        "the measured model {} has {} parts, the plan has {}: measure the plan's model", profile.model,
        costs.parts.size(), plan.parts.size());
  for (std::size_t part = 0; part < costs.parts.size(); ++part) {
    const std::size_t p = part + added;
    PartCost& c = plan.parts[p].cost;
    const int ranks = profile.divided ? 1 : divisor_of(plan, plan.parts[p]);
    for (double PartCost::*time : {&PartCost::forward, &PartCost::backward_input, &PartCost::backward_weight})
      c.*time = costs.parts[part].*time / ranks;
    c.output = costs.parts[part].output;
  }
  Cluster host;
  host.nodes = {{.count = 1, .devices = ranks_of(plan.axes), .source = Source::measured}};
  host.overlaps = false;
  host.inside = host.between = link_of(options.calls);
  host.jitter = options.jitter;
  const Simulation s = simulate(plan, {.cluster = host,
                                       .element = options.element,
                                       .loss = costs.loss,
                                       .update = costs.update,
                                       .fresh = options.fresh,
                                       .second_copies = options.second_copies,
                                       .vector_op = options.vector_op,
                                       .measured = options.measured,
                                       .between_steps = costs.between,
                                       .step = options.step,
                                       .steps = options.steps,
                                       .folding = options.jitter > 0 ? Folding::unfolded : Folding::automatic});
  StepTimes times = times_of(plan, s.timeline, s.makespan);
  for (double* t :
       {&times.step, &times.forward, &times.backward, &times.loss, &times.update, &times.other, &times.host})
    *t /= options.steps;
  for (auto& [axis, t] : times.waits) t /= options.steps;
  return times;
}

}  // namespace trireme
