// A worker of a search: takes a trial, runs `trireme train` for it, tells the store of every evaluation, and so on
// until nothing is left. Any number of them, on any hosts that have the folder, work on one search.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tools/tune/store.h"

namespace trireme {

/// Epochs and values of `key` in the evaluations of a run's metrics.jsonl. unreported: an evaluation without it, its
/// keys (empty: there is none).
struct ReportedValues {
  std::vector<std::pair<std::int64_t, double>> values = {};
  std::string unreported = {};
};
ReportedValues read_values(const std::string& metrics, const std::string& key);

/// share: workers of this host, which divide its cores. Returns 0: nothing is left; 1: the search was given up
/// (TuneStore::error()); 85: asked to stop. adopt_orphans() was called before any thread was started.
int run_worker(const std::string& directory, const TrainerOptions& settings, int share);

}  // namespace trireme
