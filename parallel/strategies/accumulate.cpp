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
        strategy, "it deals out the parts of a plan that is still serial: write \"{} | data_parallel\", it first",
        strategy);
}

Strategy accumulate(int micro) {
  check(micro >= 1, "accumulate", "micro={}: wants at least 1 micro-batch", micro);
  return {"accumulate", Claim::exact, [micro](Plan plan) { return repeat(std::move(plan), micro, "accumulate"); },
          fmt::format("micro={}", micro)};
}

}  // namespace trireme
