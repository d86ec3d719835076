// Planned traffic: calls and bytes of a rank's communicators in one step of a plan, or in one run of a phase on call,
// by mesh axis. It includes the plan's actions and the messages of layers.
#pragma once
#include <set>
#include <span>
#include <vector>

#include "parallel/comm/world/traffic.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// What planned_traffic() needs in addition to the plan.
struct TrafficOptions {
  DType parameters = DType::f32, buffers = DType::f32, loss = DType::f32;  ///< element types
  std::int64_t step = 0;  ///< number of steps before this one: some actions do not run in every step
  /// The first step in flight; work of earlier steps does not count.
  std::int64_t first = std::numeric_limits<std::int64_t>::min();
  int phase = -1;  ///< index in Program::phases: only the actions of this phase, whenever they run; -1: the actions of
                   ///< the step
  /// The sets of mesh axes over which weights are divided, each joined by +. Each computation of the gradient's norm
  /// sums one number over each set: once for the check for numbers that are not finite, and once more if the optimizer
  /// uses the norm. Trust ratios sum the numbers of their agreement over each set.
  std::set<std::string> divided = {};
  bool norm = false;  ///< the optimizer uses the gradient's norm
  int states = 0;     ///< optimizer state, in numbers per parameter
  Index text = 0;     ///< bytes of all ranks' messages about a checkpoint
  /// The plan's parts by micro-batch, if micro-batches have different numbers of rows, then those of the step before,
  /// and so on; empty: all have Plan::parts.
  std::span<const std::vector<PartInfo>> parts = {};
};

/// The calls that layers make during a computation of the plan: the comms of its part for that half of backward, or for
/// forward.
std::vector<PlannedCall> comms_of(const std::vector<PartInfo>& parts, const Action&);
/// Calls and bytes of an action's messages or collective in a step; zeros for computations and if the axis has one
/// rank.
TrafficCount traffic_of(const Plan&, const Program&, const Action&, const TrafficOptions& = {});
/// Traffic of a rank of a program in a step. It equals the count of a TrafficMeter if the parts' comms and costs come
/// from a dry run for that rank's place; ranks at the edges of images send less.
///
/// It excludes calls outside of steps:
/// - phases on call;
/// - the shapes that a pipeline's stages send each other before the first activations;
/// - the exchange of rows' numbers, if the loader has not set shares and ids.
///
/// Nor does it include steps that are refused or overflow.
Traffic planned_traffic(const Plan&, std::size_t program, const TrafficOptions& = {});
/// The same for one run of a phase on call. parts: one list, of the current rows.
Traffic planned_traffic(const Plan&, std::size_t program, const std::string& phase, const TrafficOptions& = {});

}  // namespace trireme
