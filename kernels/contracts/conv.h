// Contracts of convolution over 1 to 3 spatial axes (F.conv1d to F.conv3d): x [N, spatial..., I], w [O, spatial...,
// I/groups], y as in conv_output_shape() (kernels/plans/conv_shape.h), all of the same floating type. With bf16 and
// f16, the bias and the filter's gradient may be f32. Kernels throw Error for operands that do not fit.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "kernels/core/view.h"

namespace trireme {

/// One number per spatial axis, outermost first; numbers of absent axes are ignored.
using Extents = std::array<Index, 3>;

/// Packed or transformed copies of constant filters, by the filter's address. The owner guarantees that the filters do
/// not change while the cache exists, and that only one thread uses the cache at a time.
class FilterCache {
 public:
  /// Allocates memory that is released with the last copy of the pointer.
  using Allocate = std::function<std::shared_ptr<void>(std::size_t bytes)>;
  /// An empty cache; allocate is called once for each packed filter.
  explicit FilterCache(Allocate allocate) : allocate_(std::move(allocate)) {}
  FilterCache(const FilterCache&) = delete;
  FilterCache& operator=(const FilterCache&) = delete;

  /// The packed block of a filter: from the cache, or newly allocated and filled by pack(block). form: number of the
  /// layout.
  template <class Pack>
  const void* get(const void* filter, int form, std::size_t bytes, Pack&& pack) {
    auto& block = made_[{filter, form}];
    if (!block) {
      auto fresh = allocate_(bytes);
      pack(fresh.get());
      block = std::move(fresh);
    }
    return block.get();
  }
  std::size_t size() const { return made_.size(); }  ///< packed blocks: one per filter and form

 private:
  Allocate allocate_;
  std::map<std::pair<const void*, int>, std::shared_ptr<void>> made_;
};

/// Options of a convolution, as PyTorch; extents per spatial axis, outermost first, in cells.
struct ConvOptions {
  Extents stride{1, 1, 1};         ///< >= 1
  Extents pad_begin{0, 0, 0},      ///< >= 0; zeros before the input
      pad_end{0, 0, 0};            ///< >= 0; zeros after the input; may differ from pad_begin
  Extents dilation{1, 1, 1};       ///< >= 1; 1: adjacent filter cells
  Index groups = 1;                ///< >= 1; divides I and O
  bool relu = false;               ///< y = max(0, conv + bias)
  FilterCache* filters = nullptr;  ///< cache of packed filters; null: the filter may change
  /// Compares all axes, absent ones too, and the address of filters.
  bool operator==(const ConvOptions&) const = default;
};

namespace kernel {
/// y = conv(x, w) + bias (+ residual), followed by ReLU if options.relu. bias [O] or none; residual: y's shape, or
/// none.
struct Conv {
  static constexpr char name[] = "conv";  ///< in errors, profiles and census()
  /// y is the output, and may be the same block as residual; bias and residual may be View{}.
  using Fn = void(View y, View x, View w, View bias, View residual, const ConvOptions&);
};
/// y = conv(x, w) + bias, and the moments of y for a batch norm that follows: mean [C] and m2 [C] (sum of squared
/// deviations from mean), both f32, or f64 for f64, as BatchNormMoments computes them.
///
/// For bf16 and f16 a backend may compute the moments from f32 sums of y and y^2 during the convolution, from y before
/// or after rounding (cuDNN does not say which): m2 = max(0, sum y^2 - (sum y)^2 / rows). Let d be the relative error
/// of such a sum (1e-5 for a million rows added in tiles). Then the error of mean is d times the mean of |y|, and the
/// relative error of m2 is 3 d (1 + mean^2 / variance). For comparison: rounding y adds noise to its variance, 3e-6
/// mean^2 for bf16 and 4e-8 mean^2 for f16.
struct ConvMoments {
  static constexpr char name[] = "conv_moments";  ///< in errors, profiles and census()
  /// y, mean and m2 are outputs; bias may be View{}.
  using Fn = void(View y, View x, View w, View bias, View mean, View m2, const ConvOptions&);
};
/// dx (+)= gradient with respect to x. Ignores options.relu: dy must be masked already.
struct ConvBackwardInput {
  static constexpr char name[] = "conv_backward_input";  ///< in errors, profiles and census()
  /// dx is the output; with accumulate the gradient is added to it.
  using Fn = void(View dx, View dy, View w, const ConvOptions&, bool accumulate);
};
/// dw (+)= gradient with respect to w; dbias [O] (+)= sum of dy over samples and cells, if given.
struct ConvBackwardWeight {
  static constexpr char name[] = "conv_backward_weight";  ///< in errors, profiles and census()
  /// dw and dbias are outputs; dbias has dw's type, or is View{}; with accumulate the gradients are added to both.
  using Fn = void(View dw, View dbias, View x, View dy, const ConvOptions&, bool accumulate);
};

}  // namespace kernel
}  // namespace trireme
