// Verifier: runs a strategy and the serial run step by step on the same batches, and compares them.
#pragma once
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/analysis/verify.h"

namespace trireme {

/// The larger number; NaN if one is NaN.
inline double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

class Verifier {
 public:
  /// A collective call. All arguments must outlive it.
  Verifier(const Subject&, Mesh&, const Strategy&, const VerifyOptions&);
  /// Describes the serial run.
  std::string against();
  /// Runs step `number` (from 0) of both runs. Returns the first difference after it.
  std::optional<Difference> step(int number);
  /// Runs a step of the strategy only. Returns its loss, a mean over the rows of all workers.
  double feed(int number);
  /// Runs a step from equal weights in both runs. Returns by how much the reduced gradients, plus the change of the named
  /// states (summed over ranks), differ from the serial gradients, relative to the largest number.
  double unaccounted(int number, const std::vector<std::string>& states);
  Step& run() { return run_; }
  const Program& program() const;  ///< the program of this rank
  /// Number of workers that train separately; ranks with equal weights count once.
  int workers() const;
  /// Index of this rank's worker.
  int worker() const;

 private:
  using Pieces = std::vector<std::pair<Index, Index>>;  // [begin, end) of a global batch, one per micro-batch
  using Candidates = std::vector<Difference>;           // in the order of reporting, equal on all ranks

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
