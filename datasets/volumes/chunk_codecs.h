// Compressors of chunks that come from libraries of their own: c-blosc and zstd.
#pragma once
#include <cstddef>
#include <span>

namespace trireme {

/// Unpacks a chunk into `block`. False for one that is damaged, cut short or of another size.
using Unpack = bool (*)(std::span<const std::byte> packed, std::span<std::byte> block);
/// Blosc 1 ("Blosc chunk format", c-blosc's README_CHUNK_FORMAT): LZ4, LZ4HC, BloscLZ, Zlib and Zstandard, shuffled by
/// bytes, by bits or not at all. null: this library was built without libblosc and libzstd.
Unpack blosc_codec();
/// A frame of Zstandard (RFC 8878). null as blosc_codec().
Unpack zstd_codec();

}  // namespace trireme
