// PerAxis: one number for all spatial axes of a layer, or one number per axis.
#pragma once
#include <initializer_list>

#include "kernels/contracts/conv.h"

namespace trireme {

/// Conv2d(3, 8, 3, {.stride = 2}) or Conv2d(3, 8, {3, 5}, {.stride = {2, 1}}); outermost axis first.
class PerAxis {
 public:
  /// The same number for all axes.
  PerAxis(Index all) : values_{all, all, all} {}  // NOLINT: implicit
  /// One number per axis. Throws Error for more than 3.
  PerAxis(std::initializer_list<Index> each) : given_(static_cast<int>(each.size())) {
    check(each.size() <= values_.size(), "per_axis", "got {} numbers, expected at most 3, one per spatial axis",
          each.size());
    const auto end = std::copy(each.begin(), each.end(), values_.begin());
    if (each.size() > 0) std::fill(end, values_.end(), *(each.end() - 1));
  }
  /// The numbers for `axes` spatial axes. Throws Error naming op unless one number or `axes` numbers were given. axes =
  /// 0: any number of axes; absent ones have the last number.
  const Extents& of(int axes, const char* op) const {
    check(given_ == 0 || axes == 0 || given_ == axes, op,
          "got {} numbers for {} spatial axes, expected one, or one per axis", given_, axes);
    return values_;
  }

 private:
  Extents values_{1, 1, 1};
  int given_ = 0;  // 0: one for all
};
/// Padding of a layer: numbers of cells before and after each axis, or the padding that keeps the extent ("same").
class LayerPadding {
 public:
  /// The same number before and after each axis.
  LayerPadding(Index all) : before_(all), behind_(all) {}  // NOLINT: implicit
  /// Numbers per axis, the same before and after: .pad = {1, 2}.
  LayerPadding(std::initializer_list<Index> each) : before_(each), behind_(each) {}
  LayerPadding(PerAxis before, PerAxis behind) : before_(before), behind_(behind) {}  ///< .pad = {{2, 1}, {1, 0}}
  /// The padding that keeps the extents, for stride 1 (PyTorch's padding="same").
  static LayerPadding same() {
    LayerPadding p(0);
    p.same_ = true;
    return p;
  }
  /// Sets pad_begin and pad_end of o from its stride and dilation. Throws Error naming op for same() with a stride
  /// other than 1.
  template <class Options>
  void apply(Options& o, const Extents& window, int axes, const char* op) const {
    o.pad_begin = before_.of(axes, op);
    o.pad_end = behind_.of(axes, op);
    for (int d = 0; same_ && d < axes; ++d) {
      const auto s = static_cast<std::size_t>(d);
      check(o.stride[s] == 1, op, "the stride is {}, but same() needs stride 1: give the padding as numbers",
            o.stride[s]);
      const Index all = o.dilation[s] * (window[s] - 1);
      o.pad_begin[s] = all / 2;
      o.pad_end[s] = all - all / 2;
    }
  }

 private:
  PerAxis before_, behind_;
  bool same_ = false;
};

}  // namespace trireme
