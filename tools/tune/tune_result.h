// TuneResult: what a search has come to, read from its folder, whole or not.
#pragma once
#include <string>
#include <vector>

#include "tools/scaling/ledger.h"
#include "tools/tune/store.h"

namespace trireme {

struct TuneResult {
  std::string directory = {};
  TuneQuestion question = {};
  std::map<std::string, std::string> settings = {};  ///< of the training: read_own_toml()
  std::vector<TrialRow> trials = {};
  std::vector<TrialReport> reports = {};
  std::vector<int> order = {};  ///< places in `trials`, the best first; those without a value last
  LedgerTotals totals = {};     ///< of all that was ever started
  std::string ledger_head = {}, error = {};
  std::vector<std::string> faults = {};  ///< of the ledger; or where it, tune.db and the trials contradict each other

  const TrialRow* best() const;  ///< null: none has reported anything
  double value(const TrialRow& t) const { return question.options.sign() * t.last(); }  ///< of its last epoch
  int count(TrialStatus) const;
  bool is_synthetic() const;  ///< data made up: to be said beside every number
};
/// Throws Error where the folder holds no search.
TuneResult tune_result(const std::string& directory);
/// As text: what was spent, and the best trials first, `most` of them.
std::string table_of(const TuneResult&, int most = 20);

}  // namespace trireme
