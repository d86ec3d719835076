// The locations of data set files, and the endings of image files.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Folders that may hold the files of a dataset, best first: $TRIREME_DATA/name, then share/trireme/name relative to
/// the library or the program, so that the installation can be moved. At least one; the first need not exist.
std::vector<std::string> data_folders(const std::string& name);

/// The first of folder/file and folder/file.gz that exists, searched in the folders in order. Throws Error of op with
/// the file, the folders and the remedy.
std::string find_data_file(const std::vector<std::string>& folders, const std::string& file, std::string_view op,
                           std::string_view remedy);

/// The name with letters A to Z in lower case.
std::string lower_case(std::string_view name);
/// Whether an ending (the part after the last dot, in lower case) is of a JPEG or PNG file.
inline bool is_image_ending(std::string_view ending) { return ending == "jpg" || ending == "jpeg" || ending == "png"; }

}  // namespace trireme
