// TrafficAudit: compares the traffic of a rank's last step, as its communicators counted it, with the traffic that its
// plan predicts for a batch of that shape.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "framework/autograd/step_context.h"
#include "parallel/model/dry_run.h"
#include "parallel/model/planned_traffic.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/strategies/on_call.h"

namespace trireme {

/// The audit of one rank.
class TrafficAudit {
 public:
  /// program: index of this rank's program. All references must outlive it.
  TrafficAudit(const Plan&, int program, const Chain&, Optimizer&, Loss, const Mesh&);

  /// Call before a step. step: number of steps before this one; first: number of the first step since the last flush.
  void begin(const StepContext&, const Tensor& x, const Tensor& y, std::int64_t step, std::int64_t first);
  /// Call after a step.
  void end() {
    counted_ = difference(meter_.counted(), before_);
    for (const auto& [axis, count] : counted_) sent_ += count.bytes;
  }
  Index sent() const { return sent_; }  ///< bytes of all steps, flushes and calls of add_sent() so far
  /// Calls run() and adds the bytes that it sends to sent().
  template <class F>
  void add_sent(F&& run) {
    const Traffic before = meter_.counted();
    run();
    for (const auto& [axis, count] : difference(meter_.counted(), before)) sent_ += count.bytes;
  }

  /// A dry run of this rank's parts on a micro-batch with the shape of x. y: labels; undefined: without the loss.
  DryRun dry(const StepContext&, const Tensor& x, const Tensor& y) const;
  /// Planned and counted traffic of the last step (phase empty), or of the last run of a phase on call. Clears
  /// gradients. Throws Error before the first step, because the number of rows is unknown.
  StepTraffic compare(const std::string& phase) const;
  /// Calls run() and stores its traffic as that of the phase; if it sends nothing, the earlier traffic stays.
  template <class F>
  void on_call(const std::string& phase, F&& run) {
    const Traffic before = meter_.counted();
    run();
    Traffic sent = difference(meter_.counted(), before);
    if (phase == phases::flush)
      for (const auto& [axis, count] : sent) sent_ += count.bytes;
    if (!sent.empty()) on_call_[phase] = std::move(sent);
  }
  /// Gathers the texts of all ranks, by rank, and stores the traffic as that of phase `saving`. A collective call.
  std::vector<std::string> gather(Communicator& everyone, const std::string& mine);

 private:
  const Plan& plan_;
  int program_;
  const Chain& chain_;
  Optimizer& optimizer_;
  Loss loss_;
  TrafficMeter meter_;
  StepContext context_;      // of the last step, like all members below
  Tensor x_, y_;             // without rows
  std::vector<Index> rows_;  // by micro-batch of this step, then by those of earlier steps that may be in flight
  std::int64_t step_ = 0, first_ = 0;
  Traffic before_, counted_;
  std::map<std::string, Traffic> on_call_;  // by phase
  Index text_ = 0;                          // total bytes of the last texts
  Index sent_ = 0;
};

}  // namespace trireme
