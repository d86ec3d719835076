#include "tools/training/algorithms.h"

#include <algorithm>
#include <filesystem>

#include "framework/io/file.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/world/compare.h"
#include "tools/training/run_dir.h"

namespace trireme {
namespace {

using collectives::AlgorithmTable;

/// The table in a file; empty if the file is missing.
std::string kept_table(const std::string& path) {
  if (!std::filesystem::exists(path)) return "";
  const std::string text = read_text(path, std::size_t{1} << 20);
  try {
    check(!AlgorithmTable::of_text(text).rows.empty(), ErrorKind::data, "algorithms", "there are no lines");
  } catch (const Error& e) {
    fail(ErrorKind::data, "resume", "cannot use {}: {}; repair it, or remove it to measure again", path, e.what());
  }
  return text;
}

}  // namespace

RunAlgorithms use_all_reduce(const TrainerOptions& options, World& world) {
  if (options.parallel.allreduce != "auto" || world.size() == 1) {
    world.use_all_reduce(options.parallel.allreduce);
    return RunAlgorithms{};
  }
  RunAlgorithms run;
  const std::string path = options.run.dir + "/" + algorithms_file;
  if (world.main() && options.run.resume == "yes") run.table = kept_table(path);
  run.table = broadcast_text(world.comm(), run.table, 0);
  AlgorithmTable table = AlgorithmTable::of_text(run.table);
  int ranks = 0;
  for (const auto& row : table.rows) ranks = std::max(ranks, row.ranks);
  if (ranks != world.size()) {
    if (options.run.resume == "yes")
      run.note = ranks == 0 ? fmt::format("resume: {} is missing; all-reduce algorithms are measured again", path)
                            : fmt::format("resume: {} is of {} ranks; all-reduce algorithms are measured again on {}",
                                          path, ranks, world.size());
    table = collectives::measure_algorithms(world.comm(), {.kinds = {CallKind::all_reduce}});
    run.table = table.to_text();
  }
  world.use_all_reduce(table);
  return run;
}

}  // namespace trireme
