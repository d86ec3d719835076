// The data of a run as they were when it was saved: data.json in its directory. A run that is resumed or evaluated is
// compared with it, since other files may have come under the same path.
#pragma once
#include <string>
#include <vector>

#include "datasets/core/dataset.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// In a run directory: {"train": {"samples": 12, "content": DatasetSource::fingerprint()}, "test": ...}.
inline constexpr const char* data_file = "data.json";

/// What data_file holds for two splits; null: nothing is known of it.
std::string data_record(const Dataset& train, const Dataset& test);
/// A sentence for each split whose samples or content in `now`, a data_record(), are not those of the run directory.
/// Empty where the directory has no record, and for what the record does not know.
std::vector<std::string> data_changes(const std::string& run, const std::string& now);
/// A sentence that names the first class in which data and class_file of the run directory differ; empty: they agree,
/// or one of the two has no names.
std::string class_change(const std::string& run, const DatasetSource& data);
/// Of text: the options with the tokenizer that the run directory keeps, where it keeps one. Characters have their ids
/// by the text that the run was trained on.
TrainerOptions with_kept_tokenizer(TrainerOptions, const std::string& run);
/// For the evaluation of a run on other data. Throws Error (data) where classes, or the tokenizer of a text, are not
/// the run's: its model's outputs stand for others.
void check_same_labels(const std::string& run, const Dataset&);

}  // namespace trireme
