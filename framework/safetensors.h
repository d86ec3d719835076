// Safetensors, read and written by the reference rules (huggingface/safetensors, format description and tensor.rs): every
// malformed file is refused with a reason, nothing is ever executed, and sizes are checked before memory is touched.
#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor.h"

namespace trireme {

struct SafetensorsEntry {
  std::string name, dtype;             ///< dtype as in the file: "F32", "BF16", ...
  std::vector<std::int64_t> shape;     ///< as in the file
  std::size_t begin = 0, end = 0;      ///< bytes from the start of the data section
};
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;            ///< by offset
  std::map<std::string, std::string> metadata;
  std::size_t data_offset = 0;                      ///< where the data section starts in the file
};
/// Parses and validates; file_size is the whole file's, bytes its beginning (at least the header). Throws Error with the
/// reference implementation's reason ("header too large", "invalid offset for tensor ...", ...).
SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, std::size_t file_size);

struct NamedTensor { std::string name; Tensor tensor; };
struct SafetensorsFile {
  std::vector<NamedTensor> tensors;                 ///< f32, f64, bf16, i32, i64, u8 (F16 becomes f32); shapes as in the file
  std::map<std::string, std::string> metadata;
  const Tensor* find(const std::string& name) const;
};
SafetensorsFile read_safetensors(const std::string& path);
/// Names sorted by alignment (largest first), then name; header padded to 8 bytes; written as temp + fsync + rename + directory
/// fsync. Throws Error with path and reason; a failed write leaves what was there.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata = {});
/// The bytes write_safetensors would write.
std::vector<std::byte> encode_safetensors(const std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata = {});

}  // namespace trireme
