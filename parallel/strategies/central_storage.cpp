// Central storage: the first of the ranks that share a batch has the optimizer state and updates the weights. The other
// ranks compute with copies that it broadcasts.
#include "parallel/strategies/rebuild.h"

namespace trireme {

Strategy central_storage() {
  return {"central_storage", Claim::exact,
          [](Plan plan) {
            plan = with_reductions(std::move(plan), "central_storage");
            for (Program& program : plan.programs)
              if (!reductions_of(program).empty()) program = update_by_bucket(program, ActionKind::all_reduce, 0);
            return plan;
          },
          "", StrategyOrder::updates};
}

}  // namespace trireme
