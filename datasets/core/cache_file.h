// The file of cache(Dataset, path): all samples of a data set in one safetensors file. Its tensors and metadata:
//   "x", "y"         [size, shape...]   x and y of sample i in row i, of any type; no "y": samples have none
//   "x.NAME", ...    [size, shape...]   the field NAME of x, or of y
//   format           "trireme cache 1"
//   source           the data set's name, a JSON string
//   fingerprint      DatasetSource::fingerprint() of the data set
#pragma once
#include "datasets/core/tensors.h"

namespace trireme {

/// Writes all samples, some at a time, to a temporary file that then takes path's place. Throws Error naming the sample
/// that is not like the first one, and path where it cannot be written.
void write_cache_file(const Dataset&, const std::string& path);
/// The samples of the file, which must be one of data's. Throws Error naming path where it is not, or damaged.
Dataset open_cache_file(Dataset data, const std::string& path);

}  // namespace trireme
