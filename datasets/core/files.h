// A whole file as bytes.
#pragma once
#include <vector>

#include "framework/io/file.h"

namespace trireme {

/// Throws Error when the file is missing, unreadable or not a regular file.
inline std::vector<std::byte> read_bytes(const std::string& path) {
  const FileReader file(path);
  std::vector<std::byte> bytes(file.size());
  file.read(0, bytes);
  return bytes;
}

}  // namespace trireme
