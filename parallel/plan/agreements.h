// Agreements: the numbers of a step that all ranks must hold alike before they update: the loss of the global batch,
// whether gradients are finite, and their norm. They are actions of the plan as everything else that communicates.
#pragma once
#include "parallel/plan/plan.h"

namespace trireme {

/// What a step's ranks agree on beside the loss.
struct AgreementOptions {
  std::string batch_axis = "data";  ///< mesh axis whose ranks have different rows of the batch; joined by +, or empty
  /// Steps from one look at all gradients, for numbers that are not finite, to the next; 0: none.
  int finite_every = 0;
  int finite_offset = 0;                ///< steps before the first look, below finite_every
  std::vector<std::string> flags = {};  ///< that ranks may raise between steps (Plan::flags)
  /// Steps from one agreement on these to the next; they go with the look at gradients where that comes as often.
  int flags_every = 1;
  bool norm = false;   ///< updates want the gradient's L2 norm (clipping, trust ratios)
  bool count = false;  ///< the loss divides by the labels that count: those that do not are added up before it
};

/// Adds the actions `agree` to a plan whose strategies are through: what the loss ignores is counted while forward
/// runs; the loss is summed over the batch axis behind the last micro-batch's (while backward runs), and given to the
/// other stages before the update, or where micro-batches outlive their steps at once; flags and norm are put together
/// before a program's first update, over all who hold gradients apart. Throws Error for flags that have the name of
/// another number.
Plan with_agreements(Plan, const AgreementOptions&);

}  // namespace trireme
