// Reach: the cells of a layer's inputs that a box of its output depends on, by interval arithmetic through the ops of a
// Trace. A layer can then run on a patch of its input, and its result for the box equals that of the whole.
#pragma once
#include <string>
#include <vector>

#include "framework/autograd/trace.h"
#include "framework/ops/windows.h"

namespace trireme {

/// Cells [begin, end) along one axis.
struct CellInterval {
  Index begin = 0, end = 0;
  bool operator==(const CellInterval&) const = default;  ///< same cells
};
/// An op along one spatial axis. up: a transposed convolution; its window is that of the convolution that it
/// transposes.
struct AxisMap {
  enum class Kind : std::uint8_t { same, window, up };
  Kind kind = Kind::same;
  Window window = {};
  Index output_pad = 0;
  Index outputs(Index inputs) const;           ///< output cells for that many input cells; below 1: none
  CellInterval reads(CellInterval out) const;  ///< may be outside of the input, where only padding is read
  Index origin(Index in_begin) const {         ///< first output cell of inputs that begin there
    return kind == Kind::window ? in_begin / window.stride : kind == Kind::up ? in_begin * window.stride : in_begin;
  }
};

class Reach {
 public:
  /// From the traced ops between the inputs [N, spatial..., C] and the output. Throws Error with `layer` for an op
  /// whose result at one position depends on the whole tensor, and for unknown ops.
  Reach(const std::string& layer, const std::vector<TracedOp>& ops, const std::vector<Tensor>& inputs,
        const Tensor& output);
  /// Output shape for these input shapes. Throws Error if they do not match.
  Shape output(const std::vector<Shape>& inputs) const { return shapes(inputs)[output_]; }
  /// The patch of each input that gives `out`, a box of at least one cell. Patches begin at multiples of strides, and
  /// end there or at the end of the input.
  std::vector<Box> reads(const Box& out, const std::vector<Shape>& inputs) const;
  /// The box of the output that these patches give; it contains the `out` of reads(). Throws Error if an op would get
  /// operands of different positions.
  Box computed(const std::vector<Box>& patches, const std::vector<Shape>& inputs) const;
  /// Output cells per `scale.second` cells of input `input`: product of strides up, and of strides down.
  std::pair<Index, Index> scale(int input, int axis) const;

 private:
  struct Node {
    const char* op;
    std::vector<int> inputs;
    std::array<AxisMap, 3> axes;
    Index channels;
  };
  std::vector<Shape> shapes(const std::vector<Shape>& inputs) const;
  Index alignment(int input, int axis) const;  // smallest multiple at which all strides begin
  std::pair<Index, Index> scale(int input, int axis, Index* alignment) const;

  std::string layer_;
  int inputs_;
  std::vector<Node> nodes_;  // value inputs_ + i is the result of node i
  int output_ = 0;
};

}  // namespace trireme
