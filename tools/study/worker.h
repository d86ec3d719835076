// A worker of a study or search: takes a trial, runs `trireme train` for it, and reports its evaluations to the store,
// until nothing is left. Any number of workers, on any hosts that share the folder, work on one search.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tools/study/store.h"

namespace trireme {

/// Epochs and values of `key` in the evaluations of a run's metrics.jsonl. unreported: the keys of an evaluation
/// without it; empty: none.
struct ReportedValues {
  std::vector<std::pair<std::int64_t, double>> values = {};
  std::string unreported = {};
};
ReportedValues read_values(const std::string& metrics, const std::string& key);

/// share: number of workers that divide this host's cores. Returns 0: nothing is left; 1: the search was given up
/// (StudyStore::error()); 85: asked to stop. Call adopt_orphans() before the first thread starts.
int run_worker(const std::string& directory, const TrainerOptions& settings, int share);

}  // namespace trireme
