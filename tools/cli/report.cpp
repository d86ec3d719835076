#include <fmt/format.h>

#include "framework/io/file.h"
#include "tools/cli/commands.h"
#include "tools/report/report.h"

namespace trireme {

int report_command(const std::vector<std::string>& paths, const std::string& to) {
  std::vector<RunData> runs;
  for (const std::string& path : paths) runs.push_back(read_run(path));
  replace_file(to, report_page(runs));
  fmt::print("{}\n", to);
  return 0;
}

}  // namespace trireme
