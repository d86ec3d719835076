// Safetensors, read and written by the reference rules (huggingface/safetensors, format description and tensor.rs):
// every malformed file is refused with a reason, nothing is ever executed, and sizes are checked before memory is
// touched.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/io/file.h"
#include "framework/io/safetensors_header.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// SafetensorsReader::load() of an open file whose data section starts at data_offset.
Tensor load_entry(const FileReader&, std::size_t data_offset, const SafetensorsEntry&);

/// A safetensors file, opened and validated; tensors are read when asked for.
class SafetensorsReader {
 public:
  /// Reads and validates the header. Throws Error naming path for a file that is missing or malformed.
  explicit SafetensorsReader(const std::string& path);
  const SafetensorsHeader& header() const { return header_; }  ///< names, types, shapes and places of the tensors
  /// f32, f64, bf16, i8, i16, i32, i64, u8, boolean. Other types become the next wider one: F16 f32, U16 i32, U32 and
  /// U64 i64. Throws Error naming the tensor for types of 4 to 8 bits, for C64, for a number beyond i64, and for
  /// more axes than Shape holds.
  Tensor load(const SafetensorsEntry& e) const { return load_entry(file_, header_.data_offset, e); }
  /// The tensor's bytes as they are in the file, mapped as FileReader::map() says.
  std::span<const std::byte> map(const SafetensorsEntry&);

 private:
  FileReader file_;
  SafetensorsHeader header_;
};

/// A tensor and its name in a file.
struct NamedTensor {
  std::string name;  ///< unique in a file, UTF-8, not "__metadata__"
  Tensor tensor;     ///< of any type, on the host or on a device
};
/// The content of a file, read.
struct SafetensorsFile {
  std::vector<NamedTensor> tensors;                   ///< types as SafetensorsReader::load says; shapes as in the file
  std::map<std::string, std::string> metadata;        ///< of "__metadata__"; empty: the file has none
  const Tensor* find(const std::string& name) const;  ///< null when there is none
  const Tensor& at(const std::string& name) const;    ///< throws Error when there is none
};
/// Every tensor of the file, on the host; of several files, where path is their index (.json;
/// framework/io/safetensors_shards.h). Throws Error as SafetensorsReader and its load().
SafetensorsFile read_safetensors(const std::string& path);

/// Writes to a file that the caller finishes: types in the reference's order (largest first), then names; header padded
/// to 8 bytes. Byte for byte what the reference implementation writes. Throws Error for a name met twice or an
/// undefined tensor.
class SafetensorsWriter {
 public:
  /// Shares the tensors; metadata goes under "__metadata__".
  SafetensorsWriter(std::vector<NamedTensor> tensors, const std::map<std::string, std::string>& metadata = {});
  std::size_t size() const { return size_; }  ///< of the whole file
  /// Hands the file's bytes to sink, in order.
  void write(const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  std::vector<NamedTensor> tensors_;
  std::string header_;
  std::size_t size_ = 0;
};
/// Written as temp + fsync + rename + directory fsync. Throws Error with path and reason; a failed write leaves what
/// was there.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace trireme
