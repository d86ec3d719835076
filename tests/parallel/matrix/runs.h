// Runs of a model under a strategy, and how they differ from the serial run.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/parallel/matrix/small_models.h"

namespace trireme::test {

/// Values of all tensors, one after another.
struct Values {
  std::vector<double> all;
  std::vector<std::size_t> ends;   ///< of each tensor
  std::vector<std::string> names;  ///< of each tensor
};
/// What a run of a step, and one of three steps, leave behind.
struct MatrixRun {
  std::vector<double> losses;
  Values gradients, weights, buffers;
  bool agreed = true,     ///< all ranks have the same
      as_planned = true;  ///< all ranks sent the bytes of the plan
};

/// The end of a cell of the matrix: exact (both empty), refused, or wrong.
struct MatrixCell {
  std::string refused, wrong;
  std::string text() const {
    return !wrong.empty() ? "WRONG: " + wrong : !refused.empty() ? "refused: " + refused : "exact";
  }
};

/// Compares runs with the serial run, which it makes once.
class Comparison {
 public:
  /// clip: the norm to which three steps of AdamW clip gradients; 0: they do not. audit: whether the bytes that ranks
  /// send are compared with the plan's.
  explicit Comparison(double clip = 0, bool audit = false) : clip_(clip), audit_(audit) {}
  /// Gradients of the first step, weights and buffers after three steps, relative to each tensor's largest element (or
  /// its layer's, if the tensor's gradient is zero in truth): at most 1e-11 apart.
  MatrixCell run(const SmallModel&, const std::string& strategy, const std::string& mesh, int microbatches = 1);

 private:
  const MatrixRun& reference(const SmallModel&, int microbatches);
  double clip_;
  bool audit_;
  std::map<std::pair<std::string, int>, MatrixRun> references_;
};

}  // namespace trireme::test
