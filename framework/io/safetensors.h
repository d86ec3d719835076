// Reads and writes safetensors files by the reference rules (huggingface/safetensors, format description and
// tensor.rs). Every malformed file throws Error with a reason, nothing is ever executed, and sizes are checked before
// memory is allocated.
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

/// SafetensorsReader::load() for an open file whose data section starts at data_offset.
Tensor load_entry(const FileReader&, std::size_t data_offset, const SafetensorsEntry&);

/// A safetensors file, opened and validated. Tensors are read on demand.
class SafetensorsReader {
 public:
  /// Reads and validates the header. Throws Error naming the path if the file is missing or malformed.
  explicit SafetensorsReader(const std::string& path);
  const SafetensorsHeader& header() const { return header_; }  ///< names, types, shapes and positions of the tensors
  /// Reads a tensor: f32, f64, bf16, i8, i16, i32, i64, u8 or boolean. Other types become the next wider one: F16 f32,
  /// U16 i32, U32 and U64 i64. Throws Error naming the tensor for types of 4 to 8 bits, C64, a number beyond i64, and
  /// more axes than Shape supports.
  Tensor load(const SafetensorsEntry& e) const { return load_entry(file_, header_.data_offset, e); }
  /// The tensor's bytes in the file, mapped by FileReader::map().
  std::span<const std::byte> map(const SafetensorsEntry&);

 private:
  FileReader file_;
  SafetensorsHeader header_;
};

/// A tensor and its name in a file.
struct NamedTensor {
  std::string name;  ///< unique in a file, UTF-8, not "__metadata__"
  Tensor tensor;     ///< of any type, on any device
};
/// The content of a file in memory.
struct SafetensorsFile {
  std::vector<NamedTensor> tensors;                   ///< types as in SafetensorsReader::load(); shapes as in the file
  std::map<std::string, std::string> metadata;        ///< "__metadata__"; empty if the file has none
  const Tensor* find(const std::string& name) const;  ///< null if there is none
  const Tensor& at(const std::string& name) const;    ///< throws Error if there is none
};
/// Reads every tensor of the file to the host. If path is an index (.json), reads all files that it lists
/// (framework/io/safetensors_shards.h). Throws Error as SafetensorsReader and its load().
SafetensorsFile read_safetensors(const std::string& path);

/// A tensor to be written.
struct TensorToWrite {
  TensorToWrite(NamedTensor t, std::function<Tensor()> in_order = nullptr)  // NOLINT: implicit
      : name(std::move(t.name)), tensor(std::move(t.tensor)), ordered(std::move(in_order)) {}
  std::string name;  ///< as in NamedTensor
  Tensor tensor;     ///< as in NamedTensor
  /// Computes the elements in the file's order when they are written, so that one tensor at a time is in memory twice.
  /// `tensor` then has the same elements in any order. Null: `tensor` is written.
  std::function<Tensor()> ordered;
};
/// Creates the bytes of a file, identical to the reference implementation's: largest types first, then by name; the
/// header is padded to 8 bytes. The caller writes them. Throws Error for a repeated name or an undefined tensor.
class SafetensorsWriter {
 public:
  /// Shares the tensors. metadata: stored under "__metadata__".
  SafetensorsWriter(std::vector<TensorToWrite> tensors, const std::map<std::string, std::string>& metadata = {});
  SafetensorsWriter(const std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata = {})
      : SafetensorsWriter(std::vector<TensorToWrite>(tensors.begin(), tensors.end()), metadata) {}
  std::size_t size() const { return size_; }  ///< of the whole file, in bytes
  /// Passes the file's bytes to sink, in order.
  void write(const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  std::vector<TensorToWrite> tensors_;
  std::string header_;
  std::size_t size_ = 0;
};
/// Writes a file atomically (temporary file, fsync, rename, fsync of the directory). Throws Error with path and reason;
/// a failed write leaves the old file.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace trireme
