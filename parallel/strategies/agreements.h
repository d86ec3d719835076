// Agreements: numbers that all ranks must have before they update: the loss of the global batch, whether gradients are
// finite, and their norm. Actions of kind `agree` combine them.
#pragma once
#include "parallel/plan/plan.h"

namespace trireme {

/// Checks for numbers that are not finite.
struct FiniteChecks {
  /// Whether loss and gradients are checked. A Step then throws NonFiniteError for a loss that is not finite. It names
  /// the step and the first input, parameter or layer output that is not finite; parameters do not change.
  bool finite = true;
  /// Steps between gradient checks, at least 1 in a Step; 0: only the loss is checked. Weights may become NaN although
  /// the loss is finite. A Step whose gradients are summed in f16 checks them in every step. Asynchronous pipelines,
  /// and ranks that only exchange messages, never check gradients.
  int every = 64;
  /// Steps before the first gradient check, 0 to every - 1: with every = 10 and offset = 9, gradients are checked at
  /// steps 10, 20, ..., counted from 1. Workers that synchronise periodically check when they do.
  int offset = 0;
};

/// Flags that a rank may raise between steps ("stop", "save"), such as Plan::flags.
struct FlagOptions {
  std::vector<std::string> names = {};  ///< neither "count", "loss", "finite" nor "norm"; without "+"
  /// Steps between two exchanges of flags, at least 1. If gradients are checked as often, the flags need no separate
  /// message.
  int every = 1;
};

/// Numbers that ranks combine in addition to the loss.
struct AgreementOptions {
  std::string batch_axis = "data";  ///< mesh axis whose ranks have different rows of the batch; joined by +, or empty
  FiniteChecks checks = {.every = 0};  ///< checks of gradients
  FlagOptions flags = {};              ///< flags that ranks may raise between steps
  bool norm = false;                   ///< updates use the gradient's L2 norm (clipping, trust ratios)
  bool count = false;  ///< the loss divides by the labels that count; ignored labels are summed before it
};

/// Adds the actions `agree` to a plan that all strategies have rewritten:
/// - the number of ignored labels is summed while forward runs;
/// - the loss is summed over the batch axis after the last micro-batch, while backward runs. The other stages get it
///   before their update; in asynchronous pipelines, at once;
/// - flags and the norm are combined before the first update of a program, over all ranks that hold gradients.
///
/// Without a norm, an update that waits for several reductions is cut into one update for each, so that weights are
/// updated while later gradients are reduced. Throws Error for flags that have the name of another number.
Plan with_agreements(Plan, const AgreementOptions&);

}  // namespace trireme
