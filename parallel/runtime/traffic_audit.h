// TrafficAudit: what a rank has sent in its last step, as its communicators counted it, beside what its plan says of a
// batch of that shape.
#pragma once
#include <vector>

#include "framework/autograd/step_context.h"
#include "parallel/model/dry_run.h"
#include "parallel/plan/planned_traffic.h"
#include "parallel/runtime/step.h"

namespace trireme {

class TrafficAudit {
 public:
  /// program: this rank's. All but the loss must outlive it.
  TrafficAudit(const Plan&, int program, const Chain&, Optimizer&, Loss, const Mesh&);

  /// A step comes between these two; step: how many lie behind.
  void begin(const StepContext&, const Tensor& x, const Tensor& y, std::int64_t step);
  void end() { counted_ = difference(meter_.counted(), before_); }

  /// The parts, as this rank runs them on a micro-batch in the shape of x. y: labels; undefined: without the loss.
  DryRun dry(const StepContext&, const Tensor& x, const Tensor& y) const;
  /// Of the last step. Gradients end cleared. Throws Error before the first.
  StepTraffic compare() const;

 private:
  const Plan& plan_;
  int program_;
  const Chain& chain_;
  Optimizer& optimizer_;
  Loss loss_;
  TrafficMeter meter_;
  StepContext context_;      // of the last step, as are all below
  Tensor x_, y_;             // of no rows
  std::vector<Index> rows_;  // by micro-batch
  std::int64_t step_ = 0;
  Traffic before_, counted_;
};

}  // namespace trireme
