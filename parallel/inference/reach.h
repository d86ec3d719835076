// Reach: which cells of its inputs a box of a layer's output reads, found by interval arithmetic through the ops that a
// Trace saw. So a layer runs on a patch of its input, and what it gives for the box equals what it gives for the whole.
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
/// An op along one spatial axis. up: that of a transposed convolution, whose window is that of the convolution that it
/// transposes.
struct AxisMap {
  enum class Kind : std::uint8_t { same, window, up };
  Kind kind = Kind::same;
  Window window = {};
  Index output_pad = 0;
  Index outputs(Index inputs) const;           ///< cells of the output over so many of the input; below 1: none
  CellInterval reads(CellInterval out) const;  ///< may lie outside of the input, where only padding is read
  Index origin(Index in_begin) const {         ///< first cell that is computed from inputs that begin there
    return kind == Kind::window ? in_begin / window.stride : kind == Kind::up ? in_begin * window.stride : in_begin;
  }
};

class Reach {
 public:
  /// Of ops that a Trace saw between the inputs [N, spatial..., C] and the output. Throws Error, naming `layer`, for an
  /// op whose result at one place depends on the whole tensor, or of which that is not known.
  Reach(const std::string& layer, const std::vector<TracedOp>& ops, const std::vector<Tensor>& inputs,
        const Tensor& output);
  /// The output's shape over inputs of these shapes. Throws Error where they do not go together.
  Shape output(const std::vector<Shape>& inputs) const { return shapes(inputs)[output_]; }
  /// The patch of each input that gives `out` of the output: a box of cells, at least one, which begins where strides
  /// begin, and ends so unless it ends where the input does.
  std::vector<Box> reads(const Box& out, const std::vector<Shape>& inputs) const;
  /// What comes of these patches: the box of the output, of which reads()'s `out` is a part. Throws Error where an op
  /// would get operands of different places.
  Box computed(const std::vector<Box>& patches, const std::vector<Shape>& inputs) const;
  /// Cells of the output for `scale.second` cells of input `input`: the product of strides up, and of those down.
  std::pair<Index, Index> scale(int input, int axis) const;

 private:
  struct Node {
    const char* op;
    std::vector<int> inputs;
    std::array<AxisMap, 3> axes;
    Index channels;
  };
  std::vector<Shape> shapes(const std::vector<Shape>& inputs) const;
  Index alignment(int input, int axis) const;  // the least multiple where all strides begin
  std::pair<Index, Index> scale(int input, int axis, Index* alignment) const;

  std::string layer_;
  int inputs_;
  std::vector<Node> nodes_;  // value inputs_ + i is what node i makes
  int output_ = 0;
};

}  // namespace trireme
