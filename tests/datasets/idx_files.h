// IDX files for tests: made in memory, written to a folder that goes away.
#pragma once
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace trireme::test {

using Bytes = std::vector<std::uint8_t>;

inline Bytes idx_bytes(const std::vector<std::uint32_t>& extents, const Bytes& values, std::uint8_t type = 8) {
  Bytes out{0, 0, type, static_cast<std::uint8_t>(extents.size())};
  for (std::uint32_t extent : extents)
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<std::uint8_t>(extent >> shift));
  out.insert(out.end(), values.begin(), values.end());
  return out;
}

inline Bytes gzip(const Bytes& bytes) {
  Bytes out(compressBound(bytes.size()) + 64);
  z_stream z{};
  deflateInit2(&z, 1, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  z.next_in = const_cast<Bytef*>(bytes.data());
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = out.data();
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path(const std::string& file = "") const { return file.empty() ? path_ : path_ + "/" + file; }
  std::string write(const std::string& file, const Bytes& bytes) const {
    std::ofstream(path(file), std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    return path(file);
  }

 private:
  std::string path_;
};

}  // namespace trireme::test
