// What a study's numbers were made of, noted once before its first run, in facts.json: data by their contents (so that
// others are found out, and a test set that lies in the training set), input and operations of the model, the machine.
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
  /// SHA-256 of all samples' bytes in order of their ids, labels between them; "": they were not read.
  std::string train_sha256 = {}, test_sha256 = {};
  /// Test samples whose bytes are those of a training sample, whatever their labels; -1: not compared.
  std::int64_t shared_samples = -1;
  std::string not_compared = {};  ///< why they were not
  double forward_flops = 0;       ///< of one sample: LayerSummary::flops; 0: not counted
  std::int64_t parameters = 0;
  int cores = 0;    ///< of the machine
  double load = 0;  ///< the machine's load average over a minute, before the first run
};

/// Reads the data and looks at the model. What cannot be found out stays as it is above.
StudyFacts find_facts(const TrainerOptions&);
/// Writes the directory's facts.json where there is none.
void keep_facts(const std::string& directory, const TrainerOptions&);
/// Nothing where the directory has no facts.json, or a damaged one.
std::optional<StudyFacts> read_facts(const std::string& directory);

}  // namespace trireme
