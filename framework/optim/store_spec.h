// StoreSpec: the description of a ParameterStore without its numbers: names, shapes, types and positions of its tensors
// (like a list of TensorFlow's TensorSpec). It contains no pointers, and as text it can be sent to a rank that has no
// model.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "framework/layers/module.h"
#include "framework/tensor/flat_buffer.h"

namespace trireme {

/// One tensor of a store.
struct TensorSpec {
  std::string name;                                    ///< full name, as PyTorch's: "layer1.0.conv1.weight"
  StateKind kind = StateKind::weight;                  ///< weight, no_decay (no weight decay) or buffer (not trained)
  FileLayout layout = FileLayout::same;                ///< order of its axes in files
  Index begin = 0;                                     ///< first element in the flat buffers; 0 if use is buffer
  Shape shape = {};                                    ///< of this rank's part, if several ranks share the tensor
  DType dtype = DType::f32;                            ///< f32 or f64; the same for all trained tensors
  Device device = {};                                  ///< device of the tensor
  bool operator==(const TensorSpec&) const = default;  ///< all members are equal
};

struct StoreSpec {
  std::vector<TensorSpec> tensors;  ///< trained tensors, in the order of the flat buffers; the first begins at 0
  std::vector<TensorSpec> buffers;  ///< running statistics, each in separate memory
  Index size = 0;                   ///< number of elements of each flat buffer, padding included

  /// Throws Error for an impossible spec: no trained tensors, repeated names, mixed types, tensors that overlap or
  /// exceed size, more than 2^40 elements.
  void validate() const;
  bool operator==(const StoreSpec&) const = default;  ///< all members are equal
};

/// "weight same 16 [5,3] f32 cpu:0 0.weight": use, layout, begin, shape, dtype, device, name. Throws Error for a name
/// with a line break.
std::string to_string(const TensorSpec&);
/// "store", the size, and one line per tensor, trained tensors first.
std::string to_string(const StoreSpec&);
/// Parses such a text and validates it. Throws Error for any other text.
StoreSpec parse_store_spec(std::string_view text);

}  // namespace trireme
