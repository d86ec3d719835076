// A back-test for a terminal, a README and a spreadsheet.
#pragma once
#include <string>

#include "tools/backtest/backtest.h"

namespace trireme {

/// Per family and point, with totals and baselines.
std::string in_words(const Backtest&);
/// Markdown: a line per family.
std::string markdown(const Backtest&);
/// One line per point: family, size, samples, measured, predicted, low, high, error.
std::string csv(const Backtest&);

}  // namespace trireme
