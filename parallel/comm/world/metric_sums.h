// Metrics over ranks: the sum of each rank's counts. Ranks along the mesh axes tensor, h and w compute the same
// samples; each sample is counted once.
#pragma once
#include <span>

#include "framework/metrics/metric.h"
#include "parallel/comm/world/world.h"

namespace trireme {

/// The sum of all ranks' states, on every rank. Ranks with the same share of the batches (RankShare::rank) count once,
/// by the first rank that has samples. Exact: the bits do not depend on how samples are divided among ranks. A
/// collective call.
MetricState sum_over_ranks(const MetricState& mine, int share, World&);
/// Replaces the state of each metric by the sum over ranks; call it once per metric. A collective call with the same
/// metrics on all ranks.
void sum_over_ranks(std::span<Metric> metrics, int share, World&);

}  // namespace trireme
