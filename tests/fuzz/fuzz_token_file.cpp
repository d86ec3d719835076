// libFuzzer entry for token files; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp framework/io/file.cpp datasets/core/fingerprint.cpp datasets/text/text_files.cpp
// libraries: -ldeflate
// A file that is accepted has its tokens where it says, and every part of it can be read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "datasets/text/text_files.h"
#include "kernels/core/error.h"

namespace {

void require(bool promise) {
  if (!promise) std::abort();
}

void read(std::span<const std::byte> bytes) {
  static const int fd = memfd_create("tokens", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  require(ftruncate(fd, 0) == 0 && pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  trireme::TokenFileLayout layout;
  try {
    if (!bytes.empty()) layout = trireme::token_file_layout(bytes, bytes.size(), path);
    const trireme::TokenSequence all(std::vector<std::string>{path, path});
    require(layout.begin + static_cast<std::size_t>(layout.count * layout.width) == bytes.size());
    require(all.size() == 2 * layout.count);
    std::vector<std::int64_t> ids(static_cast<std::size_t>(all.size()));
    all.read(0, ids);
    std::int64_t most = -1;
    for (const std::int64_t id : ids) {
      require(id >= 0);
      most = std::max(most, id);
    }
    require(all.largest() == most);
    require(ids == [&] {
      std::vector<std::int64_t> twice(ids.begin(), ids.begin() + layout.count);
      twice.insert(twice.end(), twice.begin(), twice.begin() + layout.count);
      return twice;
    }());
    if (layout.count == 0) return;
    const auto part = all.part(layout.count - 1, layout.count + 1);
    std::vector<std::int64_t> two(2);
    part.read(0, two);
    require(two[0] == ids[static_cast<std::size_t>(layout.count) - 1] && two[1] == ids[0] &&
            part.place(1).ends_with(": token 0"));
  } catch (const trireme::Error& error) {
    const std::string_view what = error.what();
    require(what.starts_with("tokens: " + path + ": ") && what.size() < 300 && what.find('\n') == what.npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  // Again as the words that begin a header, which fuzzing would not make long enough.
  std::string file(reinterpret_cast<const char*>(data), std::min<std::size_t>(size, 12));
  file.resize(1024);
  if (size > 12) file.append(reinterpret_cast<const char*>(data) + 12, size - 12);
  read(std::as_bytes(std::span(file)));
  return 0;
}
