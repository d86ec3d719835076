#include <fmt/format.h>

#include <filesystem>

#include "framework/io/file.h"
#include "tools/cli/commands.h"
#include "tools/report/compare.h"
#include "tools/report/report_json.h"

namespace trireme {
namespace {

Json document_of(const std::vector<std::string>& paths) {
  const bool study = std::filesystem::is_regular_file(paths.front() + "/" + study_file);
  if (study || std::filesystem::is_regular_file(paths.front() + "/" + store_file)) {
    check(paths.size() == 1, "report", "{} is a {}, which has its own page; give it alone", paths.front(),
          study ? "scaling study" : "hyper-parameter search");
    return study ? json_of(read_study_data(paths.front())) : json_of(tune_result(paths.front()));
  }
  std::vector<RunData> runs;
  for (const std::string& path : paths) runs.push_back(read_run(path));
  return json_of(std::move(runs));
}

}  // namespace

int report_command(const std::vector<std::string>& paths, const std::string& to) {
  write_report(document_of(paths), to);
  fmt::print("{}\n", to);
  return 0;
}

int compare_command(const std::vector<std::string>& two) {
  check(two.size() == 2, "report", "--compare takes two runs, or two folders of runs, but got {}", two.size());
  fmt::print("{}", comparison_text(two[0], two[1]));
  return 0;
}

}  // namespace trireme
