#include <fmt/format.h>

#include <filesystem>

#include "framework/io/file.h"
#include "tools/cli/commands.h"
#include "tools/report/report.h"
#include "tools/report/study_page.h"
#include "tools/report/tune_page.h"

namespace trireme {

int report_command(const std::vector<std::string>& paths, const std::string& to) {
  const std::string kind = std::filesystem::path(to).extension();
  check(kind.empty() || kind == ".html" || kind == ".htm", "report",
        "--out {} ends in {}, but a report is an HTML page; give a name that ends in .html", to, kind);
  if (std::filesystem::is_regular_file(paths.front() + "/" + store_file)) {
    check(paths.size() == 1, "report", "{} is a hyper-parameter search, which has its own page; give it alone",
          paths.front());
    replace_file(to, tune_page(tune_result(paths.front())));
  } else if (std::filesystem::is_regular_file(paths.front() + "/" + study_file)) {
    check(paths.size() == 1, "report", "{} is a scaling study, which has its own page; give it alone", paths.front());
    replace_file(to, study_page(read_study_data(paths.front())));
  } else {
    std::vector<RunData> runs;
    for (const std::string& path : paths) runs.push_back(read_run(path));
    replace_file(to, report_page(runs));
  }
  fmt::print("{}\n", to);
  return 0;
}

}  // namespace trireme
