// TuneResult: the state of a search, complete or not, read from its folder.
#pragma once
#include <string>
#include <vector>

#include "tools/study/ledger.h"
#include "tools/study/store.h"

namespace trireme {

struct TuneResult {
  std::string directory = {};
  Question question = {};
  std::map<std::string, std::string> settings = {};  ///< read_own_toml() of the training
  std::vector<TrialRow> trials = {};
  std::vector<TrialReport> reports = {};
  std::vector<int> order = {};  ///< indices into `trials`, best first; trials without a value last
  LedgerTotals totals = {};     ///< of all processes that were started
  std::string ledger_head = {}, error = {};
  std::string trials_asked = {};         ///< StudyStore::trials_asked()
  std::vector<std::string> faults = {};  ///< of the ledger, and contradictions between ledger, tune.db and trials

  const TrialRow* best() const;  ///< null: no trial has reported a value
  double value(const TrialRow& t) const { return question.options.sign() * t.last(); }  ///< of its last epoch
  /// A sentence about the numbers of the best trial: whether the test set was used to choose it.
  std::string about_best() const;
  int count(TrialStatus) const;
  bool is_synthetic() const;  ///< whether the data are synthetic, which every report must state
};
/// Throws Error if the folder holds no search.
TuneResult tune_result(const std::string& directory);
/// As text: the cost, and the best `most` trials.
std::string table_of(const TuneResult&, int most = 20);

}  // namespace trireme
