// Local SGD (Stich, arXiv 1805.09767; post-local: Lin et al., arXiv 1808.07217) and elastic averaging (Zhang et al.,
// arXiv 1412.6651): each rank trains on its own rows, and all ranks average every few steps.
#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "parallel/strategies/mixing.h"

namespace trireme {
namespace {

constexpr const char *outer = "outer.weights", *velocity = "outer.momentum", *center = "elastic.center";

/// From the weights o after the last average to w = o - lr v, where v = momentum v + (o - mean of weights): a step of
/// SGD with momentum on the workers' changes (Wang et al., SlowMo, arXiv 1910.00643).
void outer_step(ActionContext& now) {
  const Tensor o = now.state(outer), v = now.state(velocity), w = now.values();
  v.copy_from(add(scale(v, now.argument("momentum")), sub(o, w)));
  o.copy_from(sub(o, scale(v, now.argument("lr"))));
  w.copy_from(o);
}

/// Weights w and center c move towards each other: w - a (w - c), and c + a times the sum of (w - c) over the ranks.
Work draw_to_center(ActionContext& now) {
  const int ranks = now.ranks();
  const double rho = now.argument("rho");
  const double a = rho > 0 ? rho * now.optimizer.rate() : 0.9 / ranks;
  check(a * ranks <= 1, "easgd",
        "{} ranks times the learning rate {} times rho {} is above 1, so the center "
        "overshoots: use a smaller rho",
        ranks, now.optimizer.rate(), rho);
  const Tensor pull = scale(sub(now.values(), now.state(center)), a);
  now.values().copy_from(sub(now.values(), pull));
  now.memory = pull;
  return now.comm ? now.comm->all_reduce(pull) : Work();
}
void move_center(ActionContext& now) {
  add_into(now.state(center), std::any_cast<Tensor>(std::exchange(now.memory, {})));
}

}  // namespace

std::string to_string(const LocalSgdOptions& o) {
  return fmt::format("every={}, outer_lr={}, outer_momentum={}, from_epoch={}, axis={}", o.every, o.outer_lr,
                     o.outer_momentum, o.from_epoch, o.axis);
}

Strategy local_sgd(LocalSgdOptions o) {
  check(o.every > 0 && o.from_epoch >= 0, "local_sgd",
        "every={}, from_epoch={}, but every is at least 1 step and from_epoch at least 0: use larger numbers", o.every,
        o.from_epoch);
  check(o.outer_lr > 0 && o.outer_momentum >= 0 && o.outer_momentum < 1, "local_sgd",
        "outer_lr={}, outer_momentum={}, but the rate is above 0 and the momentum in [0, 1): use such numbers",
        o.outer_lr, o.outer_momentum);
  const auto rewrite = [o](Plan plan) {
    check_apart(plan, o.axis, "local_sgd");
    check(o.from_epoch == 0 || plan.epoch_steps > 0, "local_sgd",
          "from_epoch={} needs the number of steps of an epoch, which is 0: set StepOptions::epoch_steps, or leave "
          "from_epoch out",
          o.from_epoch);
    const std::int64_t from = o.from_epoch * plan.epoch_steps;
    if (from > 0) {
      CustomAction together = mean_by_rows(OperandKind::gradients, o.axis);
      together.until = from;
      together.phase = "synchronous";
      act_on_gradients(plan, together);
    }
    CustomAction mean = mean_by_rows(OperandKind::weights, o.axis);
    mean.every = o.every;
    mean.from = from;
    mean.phase = "average over " + o.axis;
    act_on_weights(plan, mean);
    if (o.outer_lr != 1 || o.outer_momentum > 0)
      act_on_weights(plan, {.name = "outer_update",
                            .every = o.every,
                            .from = from,
                            .axis = "",
                            .keeps = {{.name = velocity, .replicated = true}},
                            .remembers = {{.name = outer, .replicated = true}},
                            .arguments = {{"lr", o.outer_lr}, {"momentum", o.outer_momentum}},
                            .run = outer_step,
                            .phase = mean.phase,
                            .row = {.letter = 'O', .memory = memory_of_slices<3>, .vector_ops = vector_ops<8>}});
    plan.consistency[o.axis] = {Consistency::Kind::periodic, o.every};
    return plan;
  };
  return apart({"local_sgd", Claim::statistical, rewrite, to_string(o), StrategyOrder::averages});
}

Strategy easgd(int every, double rho, const std::string& axis) {
  check(every > 0 && rho >= 0, "easgd",
        "every={}, rho={}, but every is at least 1 step and rho at least 0 (0: chosen): use larger numbers", every,
        rho);
  return periodically({.name = "easgd",
                       .every = every,
                       .axis = axis,
                       .sends = {CallKind::all_reduce},
                       .remembers = {{.name = center, .replicated = true}},
                       .arguments = {{"rho", rho}},
                       .alike = false,
                       .phase = "meet over " + axis,
                       .row = {.name = "elastic",
                               .letter = 'Z',
                               .memory = memory_of_slices<2>,
                               .vector_ops = vector_ops<5>,
                               .start = draw_to_center,
                               .finish = move_center}});
}

}  // namespace trireme
