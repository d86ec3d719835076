// libFuzzer entry for the IDX parser; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp datasets/formats/idx.cpp framework/io/file.cpp
// libraries: -lz -ldeflate
// What is accepted is consistent; the same bytes inside gzip are accepted just when they are outside, with the same
// values.
#include <zlib.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "datasets/formats/idx.h"

namespace {

void require(bool promise) {
  if (!promise) std::abort();
}

std::optional<trireme::Idx> parse(std::span<const std::byte> bytes) {
  try {
    auto idx = trireme::parse_idx(bytes, "F");
    std::size_t count = 1;
    for (auto extent : idx.extents) count *= static_cast<std::size_t>(extent);
    require(count == idx.values.size() && !idx.extents.empty());
    return idx;
  } catch (const trireme::Error& error) {
    const std::string_view what = error.what();
    require(what.starts_with("idx: F: ") && what.size() < 300 && what.find('\n') == what.npos);
    return {};
  }
}

/// One stored gzip member: its checksum is right whatever the fuzzer invents.
std::span<const std::byte> stored(const unsigned char* data, std::size_t size) {
  static std::array<unsigned char, 70000> out;
  static constexpr unsigned char header[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1};
  require(size < 65536);
  auto* at = std::copy(std::begin(header), std::end(header), out.begin());
  const auto little = [&](unsigned long value, int bytes) {
    for (int i = 0; i < bytes; ++i) *at++ = static_cast<unsigned char>(value >> (8 * i));
  };
  little(size, 2);
  little(~size, 2);
  at = std::copy_n(data, size, at);
  little(crc32(0, data, static_cast<uInt>(size)), 4);
  little(size, 4);
  return std::as_bytes(std::span(out.begin(), at));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto plain = parse(std::as_bytes(std::span(data, size)));
  if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b) return 0;  // gzip already; gzip in gzip is not read
  const auto packed = parse(stored(data, size));
  require(plain.has_value() == packed.has_value());
  if (plain) require(plain->extents == packed->extents && plain->values == packed->values);
  return 0;
}
