// StudyFacts: facts about data, model and machine, recorded before the study's first run in facts.json. Data are
// recorded by content: this detects changed data, and test samples that occur in the training set.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "tools/training/trainer_options.h"

namespace trireme {

inline constexpr const char* facts_file = "facts.json";

struct StudyFacts {
  std::int64_t train_samples = 0, test_samples = 0;
  std::string input = {};  ///< a sample's shape: "28 x 28 x 1"
  /// SHA-256 of all samples' bytes with their labels, in the order of ids; "": not computed.
  std::string train_sha256 = {}, test_sha256 = {};
  /// Test samples whose bytes, without labels, equal a training sample's; -1: not compared.
  std::int64_t shared_samples = -1;
  std::string not_compared = {};  ///< why they were not compared
  double forward_flops = 0;       ///< of one sample: LayerSummary::flops; 0: not counted
  std::int64_t parameters = 0;
  int cores = 0;    ///< of the machine
  double load = 0;  ///< one-minute load average of the machine before the first run
};

/// Reads the data and inspects the model. Unknown facts keep their defaults.
StudyFacts find_facts(const TrainerOptions&);
/// Writes the directory's facts.json unless it exists.
void keep_facts(const std::string& directory, const TrainerOptions&);
/// None if the directory's facts.json is missing or damaged.
std::optional<StudyFacts> read_facts(const std::string& directory);

}  // namespace trireme
