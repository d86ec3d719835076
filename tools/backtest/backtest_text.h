// The results of a back-test as text, Markdown and CSV.
#pragma once
#include <string>

#include "tools/backtest/backtest.h"

namespace trireme {

/// For the terminal: each family with its points, then totals and baselines.
std::string in_words(const Backtest&);
/// Markdown: a line per family.
std::string markdown(const Backtest&);
/// One line per point: family, size, samples, measured, predicted, low, high, error.
std::string csv(const Backtest&);

}  // namespace trireme
