// Answers: what a model said in training steps, on its way to the host, to be compared with the labels there.
#pragma once
#include <utility>
#include <vector>

#include "framework/tensor/host_copy.h"
#include "parallel/runtime/step.h"

namespace trireme {

class Answers {
 public:
  /// Of one step: the likeliest classes and the labels of each micro-batch that this rank computed the loss of.
  using HostCopies = std::vector<std::pair<HostCopy, HostCopy>>;

  /// The loss, which also keeps what will tell the rows that were right.
  Loss counting(Loss);
  /// Runs the step on this rank's rows. A replayed one writes anew the answers of the step that was noted.
  std::pair<HostCopy, HostCopies> run(Step&, const Tensor& x, const Tensor& y);

 private:
  std::vector<std::pair<Tensor, Tensor>> kept_;
};

}  // namespace trireme
