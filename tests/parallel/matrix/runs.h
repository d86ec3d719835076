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
/// How runs train, and how near they must be to the serial run.
struct Recipe {
  double clip = 0;     ///< norm to which AdamW clips gradients; 0: it does not
  bool audit = false;  ///< whether the bytes that ranks send are compared with the plan's
  int steps = 3;       ///< of AdamW
  /// Of AdamW. Below 1e-4, weights whose gradients are zero in truth are not compared: rounding alone moves them.
  double eps = 1e-3;
  double tolerance = 1e-11;  ///< relative to the largest value of each tensor
};
/// What a run of a step of SGD, and one of some steps of AdamW, leave behind.
struct MatrixRun {
  std::vector<double> losses, norms;  ///< norms of gradients before clipping
  Values gradients, weights, buffers;
  std::map<Records::Key, std::vector<double>> records;
  std::string conflict;   ///< Records::conflict()
  bool agreed = true,     ///< all ranks have the same
      as_planned = true;  ///< all ranks sent the bytes of the plan
};

/// Trains the model. Throws Error for layouts that are refused.
MatrixRun train(const SmallModel&, const Recipe&, const std::string& strategy, const std::string& mesh,
                int microbatches = 1);

/// The end of a cell of the matrix: exact (both empty), refused, or wrong.
struct MatrixCell {
  std::string refused, wrong;
  std::map<std::string, double> deviations = {};  ///< the largest of "gradient", "weights", ...; relative
  std::string text() const {
    return !wrong.empty() ? "WRONG: " + wrong : !refused.empty() ? "refused: " + refused : "exact";
  }
};

/// Compares runs with the serial run, which it makes once.
class Comparison {
 public:
  explicit Comparison(const Recipe& recipe = {}) : recipe_(recipe) {}
  /// Compares, relative to each tensor's largest element (or its layer's, if the tensor's gradient is zero in truth):
  /// gradients of the first step, weights and buffers after the steps of AdamW, losses, norms of gradients, and what
  /// the model records.
  MatrixCell run(const SmallModel&, const std::string& strategy, const std::string& mesh, int microbatches = 1);

 private:
  const MatrixRun& reference(const SmallModel&, int microbatches);
  Recipe recipe_;
  std::map<std::pair<std::string, int>, MatrixRun> references_;
};

}  // namespace trireme::test
