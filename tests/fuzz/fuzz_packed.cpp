// libFuzzer entry for packed files and the index of an image folder; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp datasets/formats/packed.cpp datasets/formats/folder_index.cpp framework/io/file.cpp
// libraries: -lz
// What is accepted is consistent; with the checksum put right, what is behind it is tried too.
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "datasets/formats/folder_index.h"
#include "datasets/formats/packed.h"
#include "framework/io/file.h"

using namespace trireme;

namespace {

void require(bool promise) {
  if (!promise) std::abort();
}

void try_packed(std::span<const std::byte> bytes) {
  try {
    const PackedHeader header = parse_packed(bytes, "F");
    const auto pixels = static_cast<std::size_t>(header.samples * header.height * header.width * header.channels);
    require(header.pixels_at + pixels + 4 * header.labels.size() + 4 == bytes.size());
    require(std::cmp_equal(header.labels.size(), header.samples) && header.training <= header.samples);
    for (std::uint32_t label : header.labels) require(label < header.classes.size());
  } catch (const Error& error) {
    const std::string_view what = error.what();
    require(what.starts_with("packed: F: ") && what.size() < 400 && what.find('\n') == what.npos);
  }
}

/// The fuzzer's bytes as header and names, then the pixels and labels that the header asks for if they are few, and the
/// right checksum.
void try_completed(std::span<const std::byte> bytes) {
  if (bytes.size() < 72) return;
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  const auto number = [&](std::size_t at) { return std::to_integer<std::size_t>(file[at]); };
  std::memcpy(file.data(), "TRIREMEP\1\0\0\0", 12);
  for (const std::size_t high : {13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 33, 34, 35, 37, 38, 39, 41, 42, 43})
    file[high] = {};
  const std::size_t text = number(12), samples = number(16) % 8, each = number(32) % 8 * (number(36) % 8) * number(40);
  file[16] = static_cast<std::byte>(samples), file[32] &= std::byte{7}, file[36] &= std::byte{7};
  file.resize(72 + text);
  std::uint32_t sum = crc32(file);
  file.resize(4096 + samples * each);
  std::vector<std::byte> labels(4 * samples);
  for (std::size_t i = 0; i < samples; ++i) labels[4 * i] = static_cast<std::byte>(i % 3);
  sum = crc32(labels, sum);
  file.insert(file.end(), labels.begin(), labels.end());
  for (int i = 0; i < 4; ++i) file.push_back(static_cast<std::byte>(sum >> (8 * i)));
  try_packed(file);
}

void try_index(std::string_view text) {
  if (const auto folders = parse_index(text)) require(index_text(*folders) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try_packed(bytes);
  try_completed(bytes);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_index(text);
  // With its magic and the right checksum.
  std::string index = "trireme folder index 1\n" + std::string(text);
  index += fmt::format("{:08x}\n", crc32(std::as_bytes(std::span(index))));
  try_index(index);
  return 0;
}
