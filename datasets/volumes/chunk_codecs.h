// Decompressors of chunks from optional libraries: c-blosc and zstd.
#pragma once
#include <cstddef>
#include <span>

namespace trireme {

/// Decompresses a chunk into `block`. Returns false for a chunk that is damaged, truncated or of another size.
using Unpack = bool (*)(std::span<const std::byte> packed, std::span<std::byte> block);
/// Blosc 1 ("Blosc chunk format", c-blosc's README_CHUNK_FORMAT): LZ4, LZ4HC, BloscLZ, Zlib and Zstandard, with byte,
/// bit or no shuffle. null: the library was built without libblosc and libzstd.
Unpack blosc_codec();
/// A Zstandard frame (RFC 8878). null as for blosc_codec().
Unpack zstd_codec();

}  // namespace trireme
