// Importance of parameters by functional ANOVA (Hutter, Hoos and Leyton-Brown, ICML 2014): the share of a random
// forest's variance (Breiman 2001), fitted to trials, that each parameter explains alone.
#pragma once
#include <cstdint>
#include <vector>

namespace trireme {

/// rows: points in the unit cube (Space::places); scores: one per row. Returns each coordinate's share in [0, 1]; the
/// rest is due to interactions. Empty for fewer than eight rows, and for equal scores. Deterministic for a seed.
std::vector<double> importance(const std::vector<std::vector<double>>& rows, const std::vector<double>& scores,
                               std::uint64_t seed = 1);

}  // namespace trireme
