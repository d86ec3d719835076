// Weights from files of other frameworks, as they are: same names, same values, the file's layout.
#pragma once
#include <string>
#include <vector>

#include "framework/io/safetensors.h"

namespace trireme {

struct ForeignWeights {
  std::vector<NamedTensor> tensors;   ///< in the file's order
  std::vector<std::string> left_out;  ///< what the file holds beside tensors: "epoch" (number)
};
/// NumPy's .npz, PyTorch's .pt, .pth and .bin, .safetensors, or the index of several of them (.json), by the path's ending. Types that are not ours become
/// wider ones that hold every value (f16: f32; bool: u8; i8, i16: i32). Nothing in a file is ever executed. Throws
/// Error naming file and tensor.
ForeignWeights read_foreign_weights(const std::string& path);

}  // namespace trireme
