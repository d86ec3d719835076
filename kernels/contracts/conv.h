// Convolution over 1 to 3 spatial axes (F.conv1d to F.conv3d). x [N, spatial..., I], w [O, spatial..., I/groups], y as
// conv_output_shape() (kernels/plans/conv_shape.h) says, one floating type; bias and the filter's gradient may be f32
// beside bf16 and f16. Throw Error for operands that do not fit.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "kernels/core/view.h"

namespace trireme {

using Extents = std::array<Index, 3>;  ///< one number per spatial axis, outermost first; unused ones are ignored

/// Packed or transformed copies of filters that do not change, by the filter's address. Its owner promises that the
/// filters stay as they are while it lives, and that one thread uses it at a time.
class FilterCache {
 public:
  /// Memory that is released when the last copy of the pointer is gone.
  using Allocate = std::function<std::shared_ptr<void>(std::size_t bytes)>;
  /// Empty; allocate is called for each packed filter.
  explicit FilterCache(Allocate allocate) : allocate_(std::move(allocate)) {}
  FilterCache(const FilterCache&) = delete;
  FilterCache& operator=(const FilterCache&) = delete;

  /// The block that pack(block) filled from the filter, now or earlier. form: one number per layout that kernels make.
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

/// Options of a convolution, PyTorch's; extents per spatial axis, outermost first, in cells.
struct ConvOptions {
  Extents stride{1, 1, 1};         ///< >= 1
  Extents pad_begin{0, 0, 0},      ///< >= 0; zeros before each spatial axis
      pad_end{0, 0, 0};            ///< >= 0; zeros after each spatial axis: may differ from pad_begin
  Extents dilation{1, 1, 1};       ///< >= 1; 1 = dense filter
  Index groups = 1;                ///< >= 1; divides I and O
  bool relu = false;               ///< y = max(0, conv + bias)
  FilterCache* filters = nullptr;  ///< where kernels keep what they make of the filter; null: it may change
  bool operator==(const ConvOptions&) const = default;  ///< all axes, used or not, and the address of filters
};

namespace kernel {
/// y = conv(x, w) + bias (+ residual), then ReLU if asked. bias [O] or none; residual: y's shape, or none;
/// it may be y's own block.
struct Conv {
  static constexpr char name[] = "conv";  ///< in errors, profiles and census()
  /// y is the output; bias and residual may be View{}; y may be the block of residual.
  using Fn = void(View y, View x, View w, View bias, View residual, const ConvOptions&);
};
/// y as Conv writes it, and of that, for the batch norm behind it, mean [C] and m2 [C] (sum of squared deviations from
/// mean; both f32, f64 for f64), as BatchNormMoments gives them.
///
/// For bf16 and f16 a backend may take them from sums of y and of y^2 in f32, gathered while y is computed, of y as
/// stored or as it was before it was rounded (cuDNN does not say): m2 = max(0, sum y^2 - (sum y)^2 / rows). With d the
/// relative error of such a sum (1e-5 for a million rows added in tiles) the mean is off by d times the mean of |y|,
/// and m2 by the share 3 d (1 + mean^2 / variance). For comparison, to round y to bf16 adds noise of 3e-6 mean^2 to its
/// variance, to f16 of 4e-8 mean^2.
struct ConvMoments {
  static constexpr char name[] = "conv_moments";  ///< in errors, profiles and census()
  /// y, mean and m2 are outputs; bias may be View{}.
  using Fn = void(View y, View x, View w, View bias, View mean, View m2, const ConvOptions&);
};
/// dx (+)= gradient of y by x, times dy. Ignores options.relu (dy is already masked).
struct ConvBackwardInput {
  static constexpr char name[] = "conv_backward_input";  ///< in errors, profiles and census()
  /// dx is the output; accumulate adds to it (the + of (+)=).
  using Fn = void(View dx, View dy, View w, const ConvOptions&, bool accumulate);
};
/// dw (+)= gradient of y by w, times dy; dbias [O] (+)= sum of dy over rows and cells, if given.
struct ConvBackwardWeight {
  static constexpr char name[] = "conv_backward_weight";  ///< in errors, profiles and census()
  /// dw and dbias are outputs, dbias of dw's type or View{}; accumulate adds to both.
  using Fn = void(View dw, View dbias, View x, View dy, const ConvOptions&, bool accumulate);
};

}  // namespace kernel
}  // namespace trireme
