// Pass: what the ops of one forward and backward need to know about the global batch, whatever share of it this thread
// holds. It is thread-local and scoped: Step sets it, and so does the Loader's iterator for hand-written loops.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "framework/frozen.h"
#include "framework/moments.h"
#include "framework/tape.h"

namespace trireme {

/// The k-th of m contiguous shares [begin, end) of n rows; the first n % m of them have one row more. So a global batch
/// is cut into micro-batches, and each of these into what the ranks take.
inline std::pair<Index, Index> share(Index n, int k, int m) {
  const Index each = n / m, extra = n % m, begin = k * each + std::min<Index>(k, extra);
  return {begin, begin + each + (k < extra ? 1 : 0)};
}

struct Pass {
  bool training = true;      ///< dropout and batch norm behave accordingly
  bool recomputing = false;  ///< this forward ran before: running statistics stay where they are
  std::uint64_t seed = 0;    ///< of the run
  std::uint64_t step = 0;    ///< optimizer steps before this one
  Tensor step_at = {};       ///< i64 [1] on the model's device: read in step's place by kernels when they run; or none
  Tensor samples = {};       ///< i64 [rows]: sample ids of the rows at hand; undefined: 0, 1, 2, ...
  Index global_batch = 0;    ///< rows in the global batch; losses divide by it. 0: the rows at hand
  Tensor labels = {};        ///< of all micro-batches at hand; undefined: those that a loss is given are all
  /// Rows of each micro-batch at hand, as the loader cut the global batch; empty: nobody has cut it.
  std::vector<Index> micros = {};
  /// Sums a small f32/f64 block in place over everybody who shares the global batch (batch norm's global scope, the
  /// count of labels that are not ignored). Null: nobody else. Framework code knows no ranks; parallel/ fills this.
  std::function<void(View)> sum = {};
  /// Same over the batch-norm scope (named micro, local, group, global by the strategy). Null: this micro-batch alone.
  std::function<void(View)> norm_sum = {};
  /// Where batch norm leaves the statistics of a micro-batch. Null: it moves its running statistics at once.
  Moments* moments = nullptr;
  /// Where layers keep what they make of weights that do not change (see Inference). Null: nothing is kept.
  Frozen* frozen = nullptr;

  /// The innermost Pass of this thread (a default one when none is set).
  static const Pass& current();
};

/// Sets Pass::current() while it lives.
class PassScope {
 public:
  explicit PassScope(Pass pass);
  ~PassScope();
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  Pass pass_;
  const Pass* before_;
};

/// Evaluation: training = false and nothing recorded, while it lives. Weights and running statistics must not change
/// meanwhile: batch norms are folded into the convolutions before them, and filters packed, once.
class Inference {
 public:
  Inference() : pass_(evaluation()) {}

 private:
  Pass evaluation() {
    Pass pass = Pass::current();
    pass.training = false;
    pass.frozen = &frozen_;
    return pass;
  }
  Frozen frozen_;
  PassScope pass_;
  NoGrad no_grad_;
};

}  // namespace trireme
