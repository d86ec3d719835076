// Tar archives for tests, made in memory.
#pragma once
#include <fmt/format.h>

#include <cstring>
#include <string>

namespace trireme::test {

/// The checksum field of a header, from its other bytes.
inline void put_checksum(char* header) {
  std::memset(header + 148, ' ', 8);
  unsigned sum = 0;
  for (int i = 0; i < 512; ++i) sum += static_cast<unsigned char>(header[i]);
  std::memcpy(header + 148, fmt::format("{:06o}", sum).c_str(), 7);
}

/// Header and data, padded to blocks of 512.
inline std::string tar_member(const std::string& name, const std::string& data, char type = '0',
                              const std::string& prefix = "") {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { text.copy(header.data() + at, text.size()); };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(124, fmt::format("{:011o}", data.size()));
  put(136, "00000000000");
  put(156, std::string(1, type));
  put(257, "ustar");
  put(263, "00");
  put(345, prefix);
  put_checksum(header.data());
  std::string whole = header + data;
  whole.resize((whole.size() + 511) / 512 * 512);
  return whole;
}

inline std::string tar_end() { return std::string(1024, '\0'); }

}  // namespace trireme::test
