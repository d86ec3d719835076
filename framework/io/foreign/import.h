// Reads weights from files of other frameworks, with their names, values and layout.
#pragma once
#include <string>
#include <vector>

#include "framework/io/safetensors.h"

namespace trireme {

/// The tensors of a foreign file.
struct ForeignWeights {
  std::vector<NamedTensor> tensors;   ///< in the file's order
  std::vector<std::string> left_out;  ///< entries that are no tensors: "epoch" (number)
};
/// Reads NumPy's .npz, PyTorch's .pt, .pth and .bin, .safetensors, or an index of several of these (.json), by the
/// path's ending. Other element types are widened to types that hold every value (f16 to f32; bool to u8; i8 and i16 to
/// i32). Nothing in a file is ever executed. Throws Error naming file and tensor.
ForeignWeights read_foreign_weights(const std::string& path);

}  // namespace trireme
