// TrafficAudit: what a rank has sent in its last step, as its communicators counted it, beside what its plan says of a
// batch of that shape.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "framework/autograd/step_context.h"
#include "parallel/model/dry_run.h"
#include "parallel/plan/on_call.h"
#include "parallel/plan/planned_traffic.h"
#include "parallel/runtime/step.h"

namespace trireme {

class TrafficAudit {
 public:
  /// program: this rank's. All but the loss must outlive it.
  TrafficAudit(const Plan&, int program, const Chain&, Optimizer&, Loss, const Mesh&);

  /// A step comes between these two; step: how many lie behind; first: the step since which none was flushed.
  void begin(const StepContext&, const Tensor& x, const Tensor& y, std::int64_t step, std::int64_t first);
  void end() {
    counted_ = difference(meter_.counted(), before_);
    for (const auto& [axis, count] : counted_) sent_ += count.bytes;
  }
  Index sent() const { return sent_; }  ///< bytes in all steps, in the flushes behind them, and in add_sent()
  /// Counts what run() sends, of no step.
  template <class F>
  void add_sent(F&& run) {
    const Traffic before = meter_.counted();
    run();
    for (const auto& [axis, count] : difference(meter_.counted(), before)) sent_ += count.bytes;
  }

  /// The parts, as this rank runs them on a micro-batch in the shape of x. y: labels; undefined: without the loss.
  DryRun dry(const StepContext&, const Tensor& x, const Tensor& y) const;
  /// Of the last step; or of the last run of a phase on call. Gradients end cleared. Throws Error where nothing says
  /// how many rows that has: before the first step.
  StepTraffic compare(const std::string& phase) const;
  /// Counts what run() sends for that phase, if it sends anything.
  template <class F>
  void on_call(const std::string& phase, F&& run) {
    const Traffic before = meter_.counted();
    run();
    Traffic sent = difference(meter_.counted(), before);
    if (phase == phases::flush)
      for (const auto& [axis, count] : sent) sent_ += count.bytes;
    if (!sent.empty()) on_call_[phase] = std::move(sent);
  }
  /// The texts of all ranks, by the phase `saving`. A collective call.
  std::vector<std::string> gather(Communicator& everyone, const std::string& mine);

 private:
  const Plan& plan_;
  int program_;
  const Chain& chain_;
  Optimizer& optimizer_;
  Loss loss_;
  TrafficMeter meter_;
  StepContext context_;      // of the last step, as are all below
  Tensor x_, y_;             // of no rows
  std::vector<Index> rows_;  // by micro-batch; behind them those of earlier steps that may be in flight
  std::int64_t step_ = 0, first_ = 0;
  Traffic before_, counted_;
  std::map<std::string, Traffic> on_call_;  // by phase
  Index text_ = 0;                          // bytes of the last texts together
  Index sent_ = 0;
};

}  // namespace trireme
