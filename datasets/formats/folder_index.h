// The files of class folders, listed and remembered: a million names are listed once.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The images directly in one folder. Names are in byte order, each followed by '\0' in one text.
struct FolderFiles {
  std::string folder;        ///< its name, without a path
  std::int64_t changed = 0;  ///< the folder's time of change in ns since 1970; 0: too fresh to rely on
  std::size_t count = 0;
  std::string names;
};

/// Lists one folder. Throws Error when it cannot be read.
FolderFiles list_images(const std::string& parent, const std::string& folder);
/// The folder's time of change now.
std::int64_t changed_time(const std::string& path);

/// As text: a line of magic, then per folder "changed count folder" and its names, a line each, and at the end the
/// CRC-32 of all before. Nothing if a name cannot be written so (a line feed in it).
std::optional<std::string> index_text(const std::vector<FolderFiles>&);
/// Reads it back; nothing unless every byte is as index_text() writes it.
std::optional<std::vector<FolderFiles>> parse_index(std::string_view text);

}  // namespace trireme
