// Central storage: the parameters' home is one rank, the first of those that share the batch. It alone holds the
// optimizer's state and updates; the others compute with copies that it hands out.
#include "parallel/strategies/rebuild.h"

namespace trireme {

Strategy central_storage() {
  return {"central_storage", Claim::exact,
          [](Plan plan) {
            plan = with_reductions(std::move(plan), "central_storage");
            for (Program& program : plan.programs)
              if (!reductions_of(program).empty())
                program = update_by_bucket(program, ActionKind::all_reduce, ActionKind::broadcast, 0);
            return plan;
          },
          "", StrategyOrder::updates};
}

}  // namespace trireme
