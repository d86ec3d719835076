// What the fuzzers of foreign formats share: a ZIP archive around bytes, and the promises that a reader keeps.
#pragma once
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "framework/io/file.h"
#include "framework/io/foreign/file_array.h"

namespace trireme::fuzz {

inline void require(bool promise) {
  if (!promise) std::abort();
}

inline void put(std::string& to, std::uint64_t value, int bytes) {
  for (; bytes > 0; --bytes, value >>= 8) to += static_cast<char>(value);
}

/// Stored entries with the checksums right, so that what the fuzzer invents is not refused for those.
inline std::string zip(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string file, directory;
  for (auto& [name, data] : entries) {
    std::string about;
    put(about, 20, 2);
    put(about, 0, 8);
    put(about, crc32(std::as_bytes(std::span(data))), 4);
    put(about, data.size(), 4);
    put(about, data.size(), 4);
    put(about, name.size(), 2);
    put(about, 0, 2);
    directory += "PK\1\2";
    put(directory, 20, 2);
    directory += about;
    put(directory, 0, 10);
    put(directory, file.size(), 4);
    directory += name;
    file += "PK\3\4" + about + name + data;
  }
  std::string end = "PK\5\6";
  put(end, 0, 4);
  put(end, entries.size(), 2);
  put(end, entries.size(), 2);
  put(end, directory.size(), 4);
  put(end, file.size(), 4);
  put(end, 0, 2);
  return file + directory + end;
}

/// What was thrown must be one line that begins "op: F: ".
inline void require_line(const Error& e, std::string_view op) {
  const std::string_view what = e.what();
  require(what.starts_with(std::string(op) + ": F: ") && what.size() < 500 && what.find('\n') == what.npos);
}

/// read(source, room) either fills room of at most 56 MB + 3 times the file for distinct names, or throws one line.
template <class Read>
void try_read(Read read, std::span<const std::byte> bytes, std::string_view op) {
  std::vector<std::vector<std::byte>> blocks;
  std::set<std::string> names;
  std::size_t total = 0;
  const auto room = [&](const FileArray& array) {
    total += array.bytes();
    require(total <= (std::size_t{56} << 20) + 3 * bytes.size() && names.insert(array.name).second);
    return blocks.emplace_back(array.bytes()).data();
  };
  try {
    read(NamedBytes{"F", bytes}, room);
  } catch (const Error& e) { require_line(e, op); }
}

}  // namespace trireme::fuzz
