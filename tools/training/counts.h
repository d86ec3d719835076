// Counts: loss and correct predictions over samples that ranks share. Ranks along the mesh axes tensor, h and w compute
// the same samples; each sample is counted once.
#pragma once
#include "parallel/comm/world/world.h"

namespace trireme {

struct Counts {
  double loss = 0;                              ///< summed over the samples
  Index correct = 0, in_top5 = 0, samples = 0;  ///< in_top5: the label is among the five likeliest classes
};

/// Sums over all samples what the ranks counted: of the ranks with the same share of the batches (RankShare::rank), the
/// first that counted any. A collective call.
Counts sum_shares(const Counts& mine, int share, World&);

}  // namespace trireme
