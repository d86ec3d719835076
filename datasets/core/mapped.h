// Tensors whose elements lie in a mapped file: the kernel reads those of its pages that are touched.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "framework/io/file.h"
#include "framework/io/safetensors_header.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// The tensor of an .npy file (C order, an element type of ours, little-endian), or one of a safetensors file, of whose
/// pages the kernel reads those that are touched; what is written to it is not written to the file. Throws Error as
/// read_npy() and SafetensorsReader, for files in another order and tensors that are converted when read.
Tensor map_npy(const std::string& path);
Tensor map_safetensors(const std::string& path, const std::string& name);

/// A safetensors file, mapped whole, so that its header and its elements are those of one file, even when another takes
/// its place meanwhile.
class MappedSafetensors {
 public:
  /// Throws Error naming path for a file that is missing or malformed.
  explicit MappedSafetensors(const std::string& path);
  const SafetensorsHeader& header() const { return header_; }
  /// The elements of an entry, as if they were of this type, which they fill; on pages of the file, which they keep
  /// mapped, or copied where they are not aligned.
  Tensor tensor(const SafetensorsEntry&, DType) const;

 private:
  std::shared_ptr<FileReader> file_;
  std::span<const std::byte> bytes_;
  SafetensorsHeader header_;
};

}  // namespace trireme
