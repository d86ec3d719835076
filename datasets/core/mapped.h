// Tensors in a memory-mapped file: only pages that are accessed are read.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "framework/io/file.h"
#include "framework/io/safetensors_header.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// Maps the tensor of an .npy file: C order, little-endian, an element type of this library. Only pages that are
/// accessed are read; writes to the tensor do not change the file. Throws Error as read_npy(), and for another order or
/// a type that needs conversion.
Tensor map_npy(const std::string& path);
/// As above, for a tensor of a safetensors file. Throws Error as SafetensorsReader.
Tensor map_safetensors(const std::string& path, const std::string& name);

/// A mapped safetensors file. Header and elements are of the same file, even if another file replaces it meanwhile.
class MappedSafetensors {
 public:
  /// Throws Error that names path for a missing or malformed file.
  explicit MappedSafetensors(const std::string& path);
  /// Names, types and shapes of the tensors.
  const SafetensorsHeader& header() const { return header_; }
  /// The bytes of an entry as elements of this type, whose size must match. The tensor uses the file's pages and keeps
  /// them mapped; unaligned elements are copied.
  Tensor tensor(const SafetensorsEntry&, DType) const;

 private:
  std::shared_ptr<FileReader> file_;
  std::span<const std::byte> bytes_;
  SafetensorsHeader header_;
};

}  // namespace trireme
