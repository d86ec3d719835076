// The file of cache(Dataset, path): all samples of a data set in one safetensors file. Its tensors and metadata:
//   "x", "y"         [size, shape...]   row i: x and y of sample i, any type; no "y": samples have no target
//   "x.NAME", ...    [size, shape...]   the field NAME of x, or of y
//   format           "trireme cache 1"
//   source           the data set's name, a JSON string
//   fingerprint      DatasetSource::fingerprint() of the data set
#pragma once
#include "datasets/core/tensors.h"

namespace trireme {

/// Writes all samples, in groups, to a temporary file and renames it to path. Throws Error with a sample whose layout
/// differs from the first one, and with path if it cannot be written.
void write_cache_file(const Dataset&, const std::string& path);
/// The samples in the file, which must be of this data set. Throws Error that names path if it is of another data set,
/// or damaged.
Dataset open_cache_file(Dataset data, const std::string& path);

}  // namespace trireme
