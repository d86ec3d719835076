#include <fmt/format.h>

#include "framework/io/file.h"
#include "tools/backtest/backtest_text.h"
#include "tools/cli/commands.h"

namespace trireme {

int backtest_command(const PlanOptions& options) {
  const Backtest test =
      backtest(read_scaling_table(options.backtest), options.leave_submitter ? LeaveOut::submitter : LeaveOut::family);
  fmt::print("{}", in_words(test));
  if (!options.predictions.empty()) {
    replace_file(options.predictions, options.predictions.ends_with(".md") ? markdown(test) : csv(test));
    fmt::print("{}\n", options.predictions);
  }
  return 0;
}

}  // namespace trireme
