// The data record of a run: data.json in its directory. A resumed or evaluated run compares its data with the record,
// since files may have changed under the same path.
#pragma once
#include <string>
#include <vector>

#include "datasets/core/dataset.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// In a run directory: {"train": {"samples": 12, "content": DatasetSource::fingerprint()}, "test": ...}.
inline constexpr const char* data_file = "data.json";

/// The contents of data_file for two splits; a null data set is recorded as unknown.
std::string data_record(const Dataset& train, const Dataset& test);
/// A sentence for each split whose samples or content in `now` (a data_record()) differ from the run directory's
/// record. Unknown or missing records give no sentence.
std::vector<std::string> data_changes(const std::string& run, const std::string& now);
/// A sentence with the first class in which data and the run directory's class_file differ; empty: they agree, or one
/// has no names.
std::string class_change(const std::string& run, const DatasetSource& data);
/// For text: the options with the tokenizer stored in the run directory, if any. So characters keep the ids of the
/// training text.
TrainerOptions with_kept_tokenizer(TrainerOptions, const std::string& run);
/// For evaluating a run on other data: throws Error (data) if the classes, or the tokenizer of a text, differ from the
/// run's, since the model's outputs would have another meaning.
void check_same_labels(const std::string& run, const Dataset&);

}  // namespace trireme
