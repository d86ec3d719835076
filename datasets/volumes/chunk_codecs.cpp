#include "datasets/volumes/chunk_codecs.h"

#include <blosc.h>
#include <zstd.h>

namespace trireme {

Unpack blosc_codec() {
  return [](std::span<const std::byte> packed, std::span<std::byte> block) {
    std::size_t bytes = 0;
    if (blosc_cbuffer_validate(packed.data(), packed.size(), &bytes) != 0 || bytes != block.size()) return false;
    return blosc_decompress_ctx(packed.data(), block.data(), block.size(), 1) == static_cast<int>(block.size());
  };
}

Unpack zstd_codec() {
  return [](std::span<const std::byte> packed, std::span<std::byte> block) {
    return ZSTD_decompress(block.data(), block.size(), packed.data(), packed.size()) == block.size();
  };
}

}  // namespace trireme
