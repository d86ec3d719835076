// libFuzzer entry for the safetensors parser; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp framework/io/safetensors_header.cpp framework/io/json.cpp
// A file that is accepted must keep the promises that loading relies on.
#include <cstdlib>
#include <set>
#include <string>

#include "framework/io/safetensors.h"

namespace {

void require(bool promise) {
  if (!promise) std::abort();
}

void parse(std::span<const std::byte> bytes, std::size_t file_size) {
  trireme::SafetensorsHeader header;
  try {
    header = trireme::parse_safetensors(bytes, file_size);
  } catch (const trireme::Error& e) {
    std::string_view what = e.what();
    require(what.starts_with("safetensors: ") && what.size() < 1000 && what.find('\n') == what.npos);
    return;
  }
  std::set<std::string> names;
  std::size_t at = 0;
  for (auto& e : header.entries) {
    require(names.insert(e.name).second && e.begin == at && e.end >= at);
    std::size_t partial = 1;
    for (auto extent : e.shape) {
      require(extent >= 0);
      if (extent) require(!__builtin_mul_overflow(partial, static_cast<std::size_t>(extent), &partial));
    }
    at = e.end;
  }
  require(header.data_offset <= bytes.size() && header.data_offset + at == file_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  auto bytes = std::as_bytes(std::span(data, size));
  parse(bytes, size);
  // Again with the input as the header's text, so that mutations need not keep the length right: its first two bytes
  // say how much data follows in the file.
  if (size < 2) return 0;
  std::string file(8, '\0');
  for (std::size_t n = size - 2, i = 0; i < 8; ++i) file[i] = static_cast<char>(n >> (8 * i) & 255);
  file.append(reinterpret_cast<const char*>(data) + 2, size - 2);
  parse(std::as_bytes(std::span(file)), file.size() + data[0] + std::size_t{256} * data[1]);
  return 0;
}
