// ByteSource: bytes at any offset, of a file or in memory, for the readers of foreign formats; and names from such
// files as messages show them.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "framework/io/file.h"
#include "kernels/core/error.h"

namespace trireme {

struct ByteSource {
  std::string name;  ///< in messages
  std::size_t size = 0;
  /// Fills `to` from offset on. Throws Error when size is less than that. May be called from several threads.
  std::function<void(std::size_t offset, std::span<std::byte> to)> read;
};

/// Throws Error when the file is missing or not a regular file.
inline ByteSource bytes_of_file(const std::string& path) {
  auto file = std::make_shared<const FileReader>(path);
  return {path, file->size(), [file](std::size_t offset, std::span<std::byte> to) { file->read(offset, to); }};
}

/// Borrows bytes.
inline ByteSource bytes_in_memory(std::span<const std::byte> bytes, const std::string& name) {
  auto read = [bytes](std::size_t offset, std::span<std::byte> to) {
    check(offset <= bytes.size() && to.size() <= bytes.size() - offset, "file", "{} bytes at offset {} of {}",
          to.size(), offset, bytes.size());
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
  };
  return {name, bytes.size(), read};
}

/// The little-endian number of type T at the front of bytes, which must hold it.
template <class T>
T little_endian(std::span<const std::byte> bytes) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;)
    value = static_cast<T>(value << (sizeof(T) > 1 ? 8 : 0)) | std::to_integer<T>(bytes[i]);
  return value;
}

/// A text of unknown origin, quoted for a message: what is not printable ASCII becomes '?', and it is cut at 80.
inline std::string shown(std::string_view text) {
  constexpr std::size_t longest = 80;
  std::string out = "\"";
  for (char c : text.substr(0, longest)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > longest ? "...\"" : "\"");
}

}  // namespace trireme
