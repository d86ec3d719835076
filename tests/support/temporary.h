// A directory for one test case, removed at its end.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "kernels/core/error.h"

namespace trireme::test {

class Temporary {
 public:
  Temporary() {
    path_ = (std::filesystem::temp_directory_path() / "trireme_test_XXXXXX").string();
    check(mkdtemp(path_.data()) != nullptr, "test", "cannot make a directory like {}", path_);
  }
  ~Temporary() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Temporary(const Temporary&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string slurp(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(bytes).str();
}
inline void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace trireme::test
