// Every bundled model under every strategy equals the serial run in f64, or is refused: gradients of all tensors in the
// first step, and weights after three steps of AdamW. The full table also compares the bytes that ranks send with the
// plan's.
//   build/tests/test_matrix "[.full]"   all cells, printed
//   tools/mutate --again --results tests/parallel/matrix/faults.jsonl   faults that these tests must find
// MATRIX_MODEL and MATRIX_STRATEGY select the models and strategies whose names begin so.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "tests/parallel/matrix/runs.h"
#include "tests/support/oracle.h"
#include "tests/support/ranks.h"

namespace test_matrix {

using namespace trireme;
using namespace trireme::test;

namespace {

/// A strategy and the meshes on which it is tried.
struct Column {
  std::string strategy;
  std::vector<std::string> meshes;
  int microbatches = 1;
};
std::vector<Column> columns() {
  const auto on = [](const std::string& axis) { return std::vector{axis + "=2", axis + "=3", axis + "=4"}; };
  const std::string pipeline = "pipeline(micro=2, partition=even)", accumulate = "accumulate(micro=2)";
  std::vector<std::string> images = on("h");
  images.emplace_back("h=2,w=2");
  return {{"data_parallel", on("data")},
          {"spatial", images},
          {"tensor", on("tensor")},
          {"tensor(sequence=true)", on("tensor")},
          {"one_weird_trick", on("data")},
          {pipeline, on("pipe"), 2},
          {"zero(3)", on("data")},
          {accumulate, {"data=1"}, 2},
          {"spatial | data_parallel", {"data=2,h=2"}},
          {"tensor | data_parallel", {"data=2,tensor=2"}},
          {"tensor(sequence=true) | data_parallel", {"data=2,tensor=2"}},
          {"tensor | spatial", {"tensor=2,h=2"}},
          {"data_parallel(axis=replica) | one_weird_trick", {"replica=2,data=2"}},
          {pipeline + " | data_parallel", {"data=2,pipe=2"}, 2},
          {pipeline + " | spatial", {"pipe=2,h=2"}, 2},
          {pipeline + " | tensor", {"pipe=2,tensor=2"}, 2},
          {pipeline + " | tensor(sequence=true)", {"pipe=2,tensor=2"}, 2},
          {pipeline + " | one_weird_trick", {"pipe=2,data=2"}, 2},
          {pipeline + " | zero(3)", {"pipe=2,data=2"}, 2},
          {"spatial | zero(3)", {"h=3"}},
          {"spatial | data_parallel | zero(1)", {"data=2,h=2"}},
          {"tensor | zero(3)", {"data=2,tensor=2"}},
          {"tensor(sequence=true) | zero(3)", {"data=2,tensor=2"}},
          {"one_weird_trick | zero(1)", {"data=2"}},
          {"one_weird_trick | zero(2)", {"data=2"}},
          {"one_weird_trick | zero(3)", on("data")},
          {"one_weird_trick | central_storage", {"data=2"}},
          {"data_parallel(axis=replica) | one_weird_trick | zero(3)", {"replica=2,data=2"}},
          {accumulate + " | data_parallel", {"data=3"}, 2},
          {accumulate + " | spatial", {"h=2"}, 2},
          {accumulate + " | tensor", {"tensor=2"}, 2},
          {accumulate + " | tensor(sequence=true)", {"tensor=2"}, 2},
          {accumulate + " | one_weird_trick", {"data=3"}, 2},
          {accumulate + " | zero(3)", {"data=3"}, 2},
          {accumulate + " | one_weird_trick | zero(3)", {"data=2"}, 2}};
}

/// "gpt2; tensor; tensor=2"
std::string line_of(const SmallModel& m, const Column& column, const std::string& mesh) {
  return fmt::format("{}; {}; {}", m.name, column.strategy, mesh);
}
/// The cells that must be equal: tests/parallel/matrix/cells.txt. Lines may be added, none may be removed.
std::set<std::string> required() {
  std::ifstream file(root() / "tests/parallel/matrix/cells.txt");
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') lines.insert(line);
  return lines;
}

bool chosen(const char* variable, const std::string& name) {
  const char* only = std::getenv(variable);
  return only == nullptr || name.starts_with(only);
}

/// Runs cells and prints them; the lines of those that are wrong, or refused although they must not be.
std::vector<std::string> judge(const std::vector<SmallModel>& models, bool all, bool print) {
  Comparison comparison({.audit = all});
  const std::set<std::string> must = required();
  std::vector<std::string> wrong;
  std::map<std::string, int> ends;
  for (const SmallModel& m : models)
    for (const Column& column : columns()) {
      if (!chosen("MATRIX_MODEL", m.name) || !chosen("MATRIX_STRATEGY", column.strategy)) continue;
      for (const std::string& mesh : column.meshes) {
        // One number of ranks where there are several: three, at which the order of ranks shows.
        if (!all && column.meshes.size() > 1 && !mesh.ends_with("=3")) continue;
        const std::string line = line_of(m, column, mesh);
        const MatrixCell cell = comparison.run(m, column.strategy, mesh, column.microbatches);
        const std::string end = cell.text();
        if (print) std::cout << line << "; " << end << "\n" << std::flush;
        ++ends[end.substr(0, end.find(':'))];
        if (!cell.wrong.empty() || (!cell.refused.empty() && must.contains(line))) wrong.push_back(line + ": " + end);
        if (print && end == "exact" && !must.contains(line)) std::cout << "  (not in cells.txt)\n";
      }
    }
  for (const auto& [end, count] : ends)
    if (print) std::cout << count << " " << end << "\n";
  return wrong;
}
/// Catch takes minutes to wrap a long text.
void none(const std::vector<std::string>& wrong) {
  for (const std::string& line : wrong) std::cout << line << "\n";
  CHECK(wrong.empty());
}

}  // namespace

TEST_CASE("small bundled models under every strategy are exact or refused") {
  if (threads_only()) return;
  std::vector<SmallModel> quick;
  for (SmallModel& m : small_models())
    if (!m.large && (!brief() || m.name == "unet" || m.name == "gpt2")) quick.push_back(std::move(m));
  none(judge(quick, false, false));
}

TEST_CASE("all bundled models under every strategy on 2 to 4 ranks are exact or refused", "[.full]") {
  if (threads_only()) return;
  none(judge(small_models(), true, true));
}

}  // namespace test_matrix
