// The header of a safetensors file (huggingface/safetensors, format description): an 8-byte little-endian length,
// followed by JSON with each tensor's name, dtype, shape and byte range, and metadata. It is parsed by the reference
// rules (tensor.rs).
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace trireme {

/// A tensor's entry in the header.
struct SafetensorsEntry {
  std::string name,                 ///< unique in the file
      dtype;                        ///< as in the file: "F32", "BF16", ...
  std::vector<std::int64_t> shape;  ///< as in the file; empty: a scalar
  std::size_t begin = 0,            ///< first byte, from the start of the data section
      end = 0;                      ///< past the last byte
};
/// A parsed header.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        ///< in the order of their offsets
  std::map<std::string, std::string> metadata;  ///< "__metadata__"; empty if there is none
  std::size_t data_offset = 0;                  ///< start of the data section in the file
};
/// Size of the header with its 8-byte length, from the file's first 8 bytes. Throws Error if that size is impossible.
std::size_t safetensors_header_size(std::span<const std::byte> bytes, std::size_t file_size);
/// Parses and validates a header. bytes: beginning of the file, at least the header; file_size: size of the whole file.
/// Throws Error with the reference implementation's reason ("header too large", "invalid offset for tensor ...", ...).
/// Accepts every legal dtype.
SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, std::size_t file_size);
/// The bytes of a header with its 8-byte length: entries in the given order, padded with spaces to a multiple of 8
/// bytes. Writes the entries' offsets as they are. Throws Error for names or metadata that are not UTF-8, and for a
/// header above the format's limit of 100,000,000 bytes.
std::string encode_safetensors_header(const std::vector<SafetensorsEntry>&,
                                      const std::map<std::string, std::string>& metadata);

}  // namespace trireme
