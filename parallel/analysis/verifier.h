// Verifier: a run under a strategy and a serial run beside it, step by step on the same batches.
#pragma once
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/analysis/verify.h"

namespace trireme {

/// The larger one; NaN where one is.
inline double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

class Verifier {
 public:
  /// A collective call. All that is referred to must outlive it.
  Verifier(const Subject&, Mesh&, const Strategy&, const VerifyOptions&);
  /// What the serial run is, in words.
  std::string against();
  /// Both runs' step of that number (from 0), and the first difference behind it.
  std::optional<Difference> step(int number);
  /// The step of the run under the strategy alone; its loss, a mean over the rows of all workers.
  double feed(int number);
  /// A step from the same weights in both runs: by how much the reduced gradients and the named states (of all ranks,
  /// summed) have grown by anything else than the gradients, relative to the largest.
  double unaccounted(int number, const std::vector<std::string>& states);
  Step& run() { return run_; }
  const Program& program() const;  ///< that this rank runs
  /// The ranks that train for themselves, those with the same weights counted once.
  int workers() const;
  /// Of these, to which this rank belongs.
  int worker() const;

 private:
  using Pieces = std::vector<std::pair<Index, Index>>;  // [begin, end) of a global batch, one per micro-batch
  using Candidates = std::vector<Difference>;           // in the order in which they are named, alike on all ranks

  Pieces shares(Index rows, int groups) const;
  std::pair<Tensor, Tensor> batch_of(int number) const;
  double mean_loss(double loss, const Pieces& mine);
  int groups(const Strategy&);
  Candidates compare_state();
  Difference compare_predictions(const Tensor& x);
  Candidates compare_gradients();
  std::vector<double> summed(const std::vector<std::string>& states);

  const Subject& subject_;
  Mesh& mesh_;
  const VerifyOptions& options_;
  World alone_;
  Step run_;
  int groups_;
  Step serial_;
};

}  // namespace trireme
