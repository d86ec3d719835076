// Importance of parameters: of the variance of a random forest (Breiman 2001) fitted to trials, the share that each
// parameter explains by itself, over the whole space (functional ANOVA: Hutter, Hoos and Leyton-Brown, ICML 2014).
#pragma once
#include <cstdint>
#include <vector>

namespace trireme {

/// rows: places in the unit cube (Space::places), of equal lengths; scores: one each. Returns a share in [0, 1] for
/// each coordinate; what they lack to 1 is due to several together. Empty below eight rows, and where all scores are
/// equal. The same for the same seed.
std::vector<double> importance(const std::vector<std::vector<double>>& rows, const std::vector<double>& scores,
                               std::uint64_t seed = 1);

}  // namespace trireme
