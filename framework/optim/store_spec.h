// StoreSpec: what a ParameterStore holds but for the numbers: names, shapes, element types and places of its tensors
// (a list of TensorFlow's TensorSpec). Nothing in it is a pointer: as text it goes to a rank that has no model.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "framework/layers/module.h"
#include "framework/tensor/flat_buffer.h"

namespace trireme {

/// A tensor of a store.
struct TensorSpec {
  std::string name;                      ///< full, as PyTorch's: "layer1.0.conv1.weight"
  StateKind use = StateKind::weight;     ///< whether weight decay applies; buffer: not trained
  FileLayout layout = FileLayout::same;  ///< how files order its axes
  Index begin = 0;                       ///< its first element in the flat buffers; 0 where use is buffer
  Shape shape = {};                      ///< of the part that is here, where several ranks hold the tensor together
  DType dtype = DType::f32;              ///< f32 or f64, and of trained tensors the same for all
  Device device = {};                    ///< where it lies
  bool operator==(const TensorSpec&) const = default;  ///< all members agree
};

struct StoreSpec {
  std::vector<TensorSpec> tensors;  ///< trained ones, in the order of the flat buffers; the first begins at 0
  std::vector<TensorSpec> buffers;  ///< running statistics, each with memory of its own
  Index size = 0;                   ///< elements of each flat buffer, padding included

  /// Throws Error when no store can be so: without trained tensors, a name that comes twice, mixed types, tensors that
  /// overlap or lie beyond size, more than 2^40 elements.
  void validate() const;
  bool operator==(const StoreSpec&) const = default;  ///< all members agree
};

/// "weight same 16 [5,3] f32 cpu:0 0.weight": use, layout, begin, shape, dtype, device, name. Throws Error for a name
/// of several lines.
std::string to_string(const TensorSpec&);
/// "store", the size, and a line for each tensor, trained ones first.
std::string to_string(const StoreSpec&);
/// The spec of such a text, validated. Throws Error of one line for any other text.
StoreSpec parse_store_spec(std::string_view text);

}  // namespace trireme
