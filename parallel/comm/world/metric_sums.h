// Metrics over ranks: what each has counted, added up. Ranks along the mesh axes tensor, h and w compute the same
// samples; each sample is counted once.
#pragma once
#include <span>

#include "framework/metrics/metric.h"
#include "parallel/comm/world/world.h"

namespace trireme {

/// What all ranks' states are together, on every rank: of the ranks with the same share of the batches
/// (RankShare::rank), the first that has seen any samples. Exact: no bit depends on how samples were divided. A
/// collective call.
MetricState sum_over_ranks(const MetricState& mine, int share, World&);
/// The same for each metric's state, which it replaces: a metric is to be summed once. A collective call; the same
/// metrics on all ranks.
void sum_over_ranks(std::span<Metric> metrics, int share, World&);

}  // namespace trireme
