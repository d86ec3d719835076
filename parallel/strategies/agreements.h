// Agreements: numbers that all ranks must have before they update: the loss of the global batch, whether gradients are
// finite, and their norm. Actions of kind `agree` combine them.
#pragma once
#include "parallel/plan/plan.h"

namespace trireme {

/// Checks for numbers that are not finite.
struct FiniteChecks {
  /// Whether loss and gradients are checked. A Step then throws NonFiniteError for a loss that is not finite. The
  /// message names the step and the first input, parameter or layer output that is not finite. Parameters do not
  /// change.
  bool finite = true;
  /// Steps from one check of the gradients to the next, at least 1 in a Step; 0: only the loss is checked, so weights
  /// may become NaN in a step whose loss is finite. If gradients are summed in f16, a Step checks them in every step.
  /// Asynchronous pipelines, servers and asynchronous gossip never check gradients.
  int every = 64;
  /// Steps before the first check of the gradients, 0 to every - 1: with every = 10 and offset = 9, gradients are
  /// checked in steps 10, 20, ..., counted from 1. Workers that average periodically check in the steps in which they
  /// average.
  int offset = 0;
};

/// Flags that a rank may raise between steps ("stop", "save"), so that all ranks act on them after the same step.
struct FlagOptions {
  std::vector<std::string> names = {};  ///< without "+"; not "count", "loss", "finite", "norm" or "ratios"
  /// Steps from one exchange of flags to the next, at least 1. If FiniteChecks::every is equal, flags need no separate
  /// message.
  int every = 1;
};

/// The numbers that ranks combine in addition to the loss.
struct AgreementOptions {
  /// Mesh axes whose ranks have different rows of the batch, joined by +; empty: none.
  std::string batch_axis = "data";
  FiniteChecks checks = {.every = 0};  ///< checks of gradients
  FlagOptions flags = {};              ///< flags that ranks may raise between steps
  bool norm = false;                   ///< updates use the gradient's L2 norm (clipping, trust ratios)
  /// Number of the model's tensors, if updates use trust ratios (LARS, LAMB), which need norm, too; 0: they do not.
  Index ratios = 0;
  bool count = false;  ///< the loss needs the number of ignored labels of all ranks (Loss::ignored())
};

/// Adds the actions `agree` to a plan that all strategies have rewritten:
/// - the number of ignored labels is summed while forward runs;
/// - the loss is summed over the batch axis after the last micro-batch, while backward runs. The other stages get it
///   before their update; in asynchronous pipelines, at once;
/// - flags and the norm are combined before the first update of a program, over all ranks that hold gradients;
/// - then the squares for trust ratios are summed over the same ranks, so that copies of a tied weight on several
///   stages get the same bits.
///
/// If no norm is needed, an update that waits for several reductions is cut into one update for each, so that weights
/// are updated while later gradients are reduced. Throws Error for options out of range, and for a norm in plans whose
/// ranks cannot compute it (servers, asynchronous pipelines).
Plan with_agreements(Plan, const AgreementOptions&);

}  // namespace trireme
