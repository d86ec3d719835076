// The header of a safetensors file (huggingface/safetensors, format description): an 8-byte little-endian length, then
// JSON that names each tensor with its dtype, shape and bytes, and metadata. Parsed by the reference rules (tensor.rs).
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace trireme {

/// What a header says of one tensor.
struct SafetensorsEntry {
  std::string name,                 ///< unique in the file
      dtype;                        ///< as in the file: "F32", "BF16", ...
  std::vector<std::int64_t> shape;  ///< as in the file; empty: a scalar
  std::size_t begin = 0,            ///< of its bytes, from the start of the data section
      end = 0;                      ///< behind its bytes
};
/// A header, parsed.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        ///< by offset
  std::map<std::string, std::string> metadata;  ///< of "__metadata__"; empty: none
  std::size_t data_offset = 0;                  ///< where the data section starts in the file
};
/// Size of the header with its 8-byte length, from the file's first 8 bytes. Throws Error when there cannot be such a
/// header.
std::size_t safetensors_header_size(std::span<const std::byte> bytes, std::size_t file_size);
/// Parses and validates; file_size is the whole file's, bytes its beginning (at least the header). Throws Error with
/// the reference implementation's reason ("header too large", "invalid offset for tensor ...", ...). Every legal dtype
/// is accepted.
SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, std::size_t file_size);
/// The bytes of a header with its 8-byte length: entries in their order, padded with spaces to a multiple of 8 bytes.
/// The offsets of the entries are written as they are. Throws Error for names or metadata that are not UTF-8, and for a
/// header above the format's limit of 100,000,000 bytes.
std::string encode_safetensors_header(const std::vector<SafetensorsEntry>&,
                                      const std::map<std::string, std::string>& metadata);

}  // namespace trireme
