// Where the files of datasets lie.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Folders that may hold the files of a dataset, best first: $TRIREME_DATA/name; share/trireme/name beside
/// the library or the program, wherever the installation was moved to; the source tree's datasets/name. They
/// need not exist.
std::vector<std::string> data_folders(const std::string& name);

/// The first of folder/file and folder/file.gz that exists, over the folders in order. Throws Error naming
/// op, the file, the folders and the remedy.
std::string find_data_file(const std::vector<std::string>& folders, const std::string& file, std::string_view op,
                           std::string_view remedy);

}  // namespace trireme
