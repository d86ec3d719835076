#include "tests/support/emulation.h"

#include <algorithm>
#include <barrier>
#include <ctime>
#include <map>
#include <mutex>

#include "framework/autograd/tape.h"
#include "framework/layers/layers.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/action_row.h"
#include "parallel/runtime/step.h"
#include "tests/support/emulated_links.h"

namespace trireme::test {
namespace {

/// Which computation of a rank's step comes next of each part, and how long it takes.
class Sleeper {
 public:
  explicit Sleeper(EmulatedClock& clock) : clock_(clock) {}
  EmulatedClock& clock() { return clock_; }
  /// The step of this number, of which `before` went before it in the plan's order, is next.
  void begin_step(const Plan& plan, const Program& program, const Cluster& cluster, int rank, std::int64_t step,
                  std::int64_t before) {
    times_.clear();
    const auto actions = std::ssize(program.actions);
    for (ActionId id = 0; id < actions; ++id) {
      const Action& a = program.actions[static_cast<std::size_t>(id)];
      if (!is_pass(a) || a.microbatch.steps_ago > before) continue;
      const auto key = static_cast<std::uint64_t>(step * actions + id);  // simulate()'s
      const Nanoseconds cost = nanoseconds(seconds_of(plan, a));
      times_[{a.part, a.kind}].push_back(cost == 0 ? 0 : cluster.compute(cost, rank, key));
    }
    for (auto& [of, list] : times_) std::ranges::reverse(list);
  }
  void stop() { times_.clear(); }
  bool has(int part, ActionKind kind) const { return times_.contains({part, kind}); }
  /// What the part's next one takes; 0 where none is planned. keep: it is asked for again.
  Nanoseconds next(int part, ActionKind kind, bool keep = false) {
    const auto at = times_.find({part, kind});
    if (at == times_.end() || at->second.empty()) return 0;
    const Nanoseconds time = at->second.back();
    if (!keep) at->second.pop_back();
    return time;
  }

 private:
  EmulatedClock& clock_;
  std::map<std::pair<int, ActionKind>, std::vector<Nanoseconds>> times_;  // the next one last
};

/// [rows, width] to the same; each half of its backward sleeps on its own.
struct SleepingLayer {
  std::shared_ptr<Sleeper> sleeper;
  int part;
  double input_share;  // of a whole backward's time
  Tensor weight;

  Tensor operator()(const Tensor& x) const {
    EmulatedClock& clock = sleeper->clock();
    const Nanoseconds begin = clock.now();
    Tensor y = Tensor::like(x);
    y.copy_from(x.detach());
    clock.sleep_until(begin + sleeper->next(part, ActionKind::forward));
    if (!needs_record("sleep", y, {&x, &weight})) return y;
    return record("sleep", std::move(y), {x, weight},
                  Backward{[own = *this](const Tensor& dy, Gradients& to) { own.backward_input(dy, to); },
                           [own = *this](const Tensor& dy, Gradients& to) { own.backward_weight(dy, to); }});
  }
  void backward_input(const Tensor& dy, Gradients& to) const {
    EmulatedClock& clock = sleeper->clock();
    const Nanoseconds begin = clock.now();
    if (to.needs_grad(0)) to.set_grad(0, dy.clone());
    clock.sleep_until(begin + (halves() ? sleeper->next(part, ActionKind::backward_input) : inputs_of_whole()));
  }
  void backward_weight(const Tensor&, Gradients& to) const {
    EmulatedClock& clock = sleeper->clock();
    const Nanoseconds begin = clock.now();
    const Nanoseconds inputs = halves() ? 0 : inputs_of_whole();
    const auto kind = halves() ? ActionKind::backward_weight : ActionKind::backward;
    clock.sleep_until(begin + sleeper->next(part, kind) - inputs);
    write_grad(to, 1, [&](const Tensor& dw) { dw.copy_from(Tensor::zeros(dw.shape(), dw.dtype())); });
  }
  bool halves() const { return sleeper->has(part, ActionKind::backward_input); }
  Nanoseconds inputs_of_whole() const {
    return std::llround(input_share * static_cast<double>(sleeper->next(part, ActionKind::backward, true)));
  }
  void visit(const StateVisitor& v) { v("weight", weight, StateKind::weight); }
};

Module network(const EmulatedCase& c, const std::shared_ptr<Sleeper>& sleeper) {
  Sequential layers;
  for (int part = 0; part < c.parts; ++part)
    layers.add(SleepingLayer{sleeper, part, c.backward_input / std::max(1e-12, c.backward_input + c.backward_weight),
                             Tensor::zeros({c.weights})});
  return layers;
}

Plan with_costs(Plan plan, const EmulatedCase& c) {
  for (PartInfo& part : plan.parts)
    part.cost = {.forward = c.forward,
                 .backward_input = c.backward_input,
                 .backward_weight = c.backward_weight,
                 .output = c.width * 4};
  return plan;
}

/// Whether a step's actions began in the order in which the simulation's last step has them.
bool same_order(const Plan& plan, const Timeline& measured, const Simulation& s, std::int64_t step) {
  std::map<std::pair<int, std::size_t>, std::vector<std::pair<double, ActionId>>> order;
  const auto program_of = [&](int rank) -> const Program& { return plan.programs[measured.programs[rank]]; };
  for (const Span& span : measured.spans) {
    const Action& a = program_of(span.rank).actions[span.action];
    order[{span.rank, static_cast<std::size_t>(a.stream)}].push_back({span.begin, span.action});
  }
  for (auto& [where, spans] : order) {
    const auto [rank, stream] = where;
    if (program_of(rank).serves()) continue;
    std::ranges::sort(spans);
    std::vector<ActionId> simulated = s.started[stream][rank];
    std::erase_if(simulated, [&](ActionId id) {  // of a phase that runs in none of the steps
      const Program& program = program_of(rank);
      return !program.trigger(program.actions[id]).runs_at(step);
    });
    if (simulated.size() < spans.size()) return false;
    const auto last = simulated.end() - std::ssize(spans);
    if (!std::ranges::equal(std::span(last, simulated.end()), spans, {}, {}, &std::pair<double, ActionId>::second))
      return false;
  }
  return !order.empty();
}

}  // namespace

EmulatedTimes times_of(const EmulatedCase& c) {
  const int ranks = ranks_of(c.mesh), first = c.servers > 0 ? 0 : 1;
  EmulatedTimes times;
  std::mutex mutex;
  Nanoseconds began = 0, ended = 0, late = 0;
  // What ranks have prepared they have waited for cores for; the run begins when all are there, on all clocks at once.
  constexpr Nanoseconds soon = 50000000;
  std::barrier together(ranks, [&]() noexcept { began = EmulatedClock::real() + soon; });
  std::clock_t processor = 0;
  Plan plan;
  Timeline measured;
  emulate(ranks, c.cluster, [&](World& world, EmulatedClock& clock) {
    Mesh mesh(world, c.mesh);
    const auto sleeper = std::make_shared<Sleeper>(clock);
    Index batch = c.microbatches;
    for (const Axis& a : c.mesh)
      if (a.name != "pipe") batch *= a.size - c.servers;
    Step step(network(c, sleeper), cross_entropy, Sgd{.lr = 0.1}, mesh, parse_strategy(c.strategy));
    const Index mine = batch / step.shard().size;
    BatchContext context;
    context.global_batch = batch;
    context.share = step.shard();
    context.samples = Tensor::empty({mine}, DType::i64);
    for (Index i = 0; i < mine; ++i) context.samples.data<std::int64_t>()[i] = step.shard().rank * mine + i;
    const Tensor x = Tensor::zeros({mine, c.width}).with_batch(context), y = Tensor::zeros({mine}, DType::i64);
    const Plan own = with_costs(step.plan(), c);
    const Program& program = own.programs[static_cast<std::size_t>(
        own.program_at([&](const std::string& axis) { return mesh.index(axis); }))];
    for (int i = 0; i < first; ++i) step(x, y);
    step.flush();
    world.comm().barrier();
    together.arrive_and_wait();
    clock.restart(began);
    const std::clock_t cpu = std::clock();
    for (int i = 0; i < c.steps; ++i) {
      sleeper->begin_step(own, program, c.cluster, world.rank(), first + i, i);
      step.record(i + 1 == c.steps);
      step(x, y);
    }
    const Nanoseconds end = EmulatedClock::real();
    sleeper->stop();
    {
      const std::lock_guard lock(mutex);
      ended = std::max(ended, end);
      late += clock.lateness();
      if (world.main()) processor = std::clock() - cpu;
    }
    Timeline all = step.timeline();
    if (world.main()) {
      plan = own;
      measured = std::move(all);
    }
  });
  const Simulation s = simulate(
      plan, {.cluster = c.cluster, .step = first, .steps = c.steps, .folding = Folding::unfolded, .rows = ranks});
  times.simulated = s.makespan;
  times.bubble = s.bubble;
  times.emulated = static_cast<double>(ended - began) / 1e9;
  times.same_order = same_order(plan, measured, s, first + c.steps - 1);
  times.lateness = static_cast<double>(late) / ranks / 1e9;
  times.processor = static_cast<double>(processor) / CLOCKS_PER_SEC / times.emulated;
  return times;
}

}  // namespace trireme::test
