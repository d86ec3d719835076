// libFuzzer entry for the readers of tar archives and of the samples in them; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp framework/io/file.cpp datasets/formats/tar.cpp datasets/formats/webdataset.cpp
// sources: datasets/core/fingerprint.cpp datasets/formats/data_paths.cpp framework/io/json.cpp kernels/core/environment.cpp
// libraries: -ldeflate
// The input is an archive; then the same one with its headers' checksums set right.
#include "datasets/formats/webdataset.h"
#include "tests/datasets/tar_files.h"
#include "tests/fuzz/foreign_fuzz.h"

namespace {

using namespace trireme;

void scan(const std::string& archive) {
  const NamedBytes source{"F", std::as_bytes(std::span(archive))};
  std::size_t end = 0;
  try {
    scan_tar(source, [&](const TarMember& m) {
      fuzz::require(!m.name.empty() && m.offset >= end + 512 && m.offset <= archive.size() &&
                    m.size <= archive.size() - m.offset);
      end = m.offset + m.size;
    });
  } catch (const Error& e) { fuzz::require_line(e, "tar"); }
  try {
    scan_shard(source, [](const ShardSample& s) { fuzz::require(s.label >= 0); });
  } catch (const Error& e) {
    fuzz::require_line(e, std::string_view(e.what()).starts_with("tar") ? "tar" : "webdataset");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  std::string archive(reinterpret_cast<const char*>(data), size);
  scan(archive);
  for (std::size_t at = 0; at + 512 <= archive.size(); at += 512)
    if (archive.compare(at + 257, 5, "ustar") == 0) test::put_checksum(archive.data() + at);
  scan(archive);
  try {
    expand_shards(archive.substr(0, 60));
  } catch (const Error& e) { fuzz::require(std::string_view(e.what()).starts_with("webdataset: shards ")); }
  return 0;
}
