// Where the files of data sets lie, and which of them are images.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Folders that may hold the files of a dataset, best first: $TRIREME_DATA/name; share/trireme/name beside
/// the library or the program, wherever the installation was moved to. At least one; the first need not exist.
std::vector<std::string> data_folders(const std::string& name);

/// The first of folder/file and folder/file.gz that exists, over the folders in order. Throws Error naming
/// op, the file, the folders and the remedy.
std::string find_data_file(const std::vector<std::string>& folders, const std::string& file, std::string_view op,
                           std::string_view remedy);

/// Letters A to Z of a file's name as a to z.
std::string lower_case(std::string_view name);
/// Of the part of a file's name after its last dot, in lower case: JPEG and PNG.
inline bool is_image_ending(std::string_view ending) { return ending == "jpg" || ending == "jpeg" || ending == "png"; }

}  // namespace trireme
