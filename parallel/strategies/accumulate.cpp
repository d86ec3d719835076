// Gradient accumulation: forward and backward once per micro-batch, and one update.
#include <fmt/format.h>

#include "parallel/strategies/rebuild.h"

namespace trireme {

Plan repeat(Plan plan, int microbatches, const std::string& strategy) {
  check_untouched(plan, strategy);
  std::vector<Action> actions;
  const Action update = plan.programs[0].actions.back();
  plan.programs[0].actions.pop_back();
  for (int k = 0; k < microbatches; ++k)
    for (Action a : plan.programs[0].actions) {
      a.microbatch = k;
      actions.push_back(a);
    }
  actions.push_back(update);
  plan.programs[0].actions = std::move(actions);
  plan.microbatches = microbatches;
  return plan;
}

void check_untouched(const Plan& plan, const std::string& strategy) {
  check(plan.programs.size() == 1 && plan.microbatches == 1 &&
            plan.programs[0].actions.size() == 2 * plan.parts.size() + 2,
        strategy,
        "the plan has {} micro-batches, {} programs and {} actions already, but {} divides a serial plan: use one of "
        "accumulate and pipeline, once, and write custom strategies after it",
        plan.microbatches, plan.programs.size(), plan.programs[0].actions.size(), strategy);
}

Strategy accumulate(int micro) {
  check(micro >= 1, "accumulate", "micro={}, but a step has at least 1 micro-batch: use micro=1 or more", micro);
  return {"accumulate", Claim::exact,
          [micro](Plan plan) { return micro == 1 ? plan : repeat(std::move(plan), micro, "accumulate"); },
          fmt::format("micro={}", micro), StrategyOrder::microbatches};
}

}  // namespace trireme
