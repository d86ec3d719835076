// Planned traffic: what a rank's communicators count in one step of a plan, or in a phase on call, by mesh axis: its
// actions, and what its parts send beside them.
#pragma once
#include <span>
#include <vector>

#include "parallel/comm/world/traffic.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// What planned_traffic() must know beside the plan.
struct TrafficOptions {
  DType parameters = DType::f32, buffers = DType::f32, loss = DType::f32;  ///< types of their elements
  std::int64_t step = 0;  ///< steps before this one: some actions are not of every step
  std::int64_t first = std::numeric_limits<std::int64_t>::min();  ///< of the micro-batches in flight: that step's
  int phase = -1;  ///< of Program::phases: its actions alone, whenever they run; -1: those of the step
  /// The mesh axis over which weights are divided: each look at the gradient's norm sums a number over it, once where
  /// the optimizer wants the norm (norm), and once for the flag of numbers that are not finite. Empty: none are.
  std::string divided = {};
  bool norm = false;
  int states = 0;  ///< of the optimizer, each a number per parameter
  Index text = 0;  ///< bytes that all ranks together tell of a checkpoint
  /// The plan's parts by micro-batch, where these have different rows, behind them those of the step before, and so on;
  /// empty: all are as Plan::parts says.
  std::span<const std::vector<PartInfo>> parts = {};
};

/// What the layers send in an action that computes, beside the plan's actions: the comms of its part for that half.
std::vector<PartComm> comms_of(const std::vector<PartInfo>& parts, const Action&);
/// What an action's own messages or collective count in a step; zeros for computations and where the axis has one rank.
TrafficCount traffic_of(const Plan&, const Program&, const Action&, const TrafficOptions& = {});
/// What a rank of a program counts in a step: equal to what a TrafficMeter counts there, where the parts' comms and
/// costs come from a dry run for that rank's place (edges of images send less). Not in it, as no part of a step:
/// phases on call, the shapes that a pipeline's stages tell each other ahead of the first activations, the rows of a
/// batch of which the loader has not said whose they are. Not known to it: steps that are refused or overflow, the
/// norms of divided weights that LARS and LAMB take one by one.
Traffic planned_traffic(const Plan&, std::size_t program, const TrafficOptions& = {});
/// The same of one run of a phase on call; parts: one list, of the rows at hand.
Traffic planned_traffic(const Plan&, std::size_t program, const std::string& phase, const TrafficOptions& = {});

}  // namespace trireme
