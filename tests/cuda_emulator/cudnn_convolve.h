// The three directions of a convolution in plain loops, the innermost over channels.
#pragma once
#include "tests/cuda_emulator/cublas_product.h"
#include "tests/cuda_emulator/cudnn_memory.h"

namespace emulator::dnn {

template <class A>
class Convolver {
 public:
  explicit Convolver(const Convolution& c) : c_(c), in_(extents(c.x)), out_(extents(c.y)), window_(extents(c.w)) {}

  void run(Memory<A>& memory, bool coarse) const {
    const bool to_x = c_.written().id == c_.x.id, to_w = c_.written().id == c_.w.id;
    auto input = [&](const Tensor& t) {
      auto numbers = memory.read(t);
      for (A& v : numbers) v = coarse ? to_tf32(v) : v;
      return numbers;
    };
    std::vector<A> result(static_cast<std::size_t>(c_.written().count()));
    if (to_x)
      backward_data(result, input(c_.w), input(c_.y));
    else if (to_w)
      backward_filter(result, input(c_.x), input(c_.y));
    else
      forward(result, input(c_.x), input(c_.w));
    const auto alpha = static_cast<A>(c_.alpha), beta = static_cast<A>(c_.beta);
    for (A& v : result) v *= alpha;
    if (beta != A(0)) {
      const auto before = memory.read(c_.written());
      for (std::size_t i = 0; i < result.size(); ++i) result[i] += beta * before[i];
    }
    memory.write(c_.written(), std::move(result));
  }

 private:
  using Numbers = std::vector<A>;
  static Triple extents(const Tensor& t) {
    Triple e{1, 1, 1};
    std::copy(t.dims.begin() + 2, t.dims.end(), e.end() - (std::ssize(t.dims) - 2));
    return e;
  }
  static Index cells(const Triple& e) { return e[0] * e[1] * e[2]; }
  Index x_channels() const { return c_.x.dims[1]; }
  Index y_channels() const { return c_.y.dims[1]; }
  Index group_in() const { return c_.w.dims[1]; }
  Index group_out() const { return y_channels() / c_.groups(); }

  /// f(place of x, place of y, cell of the filter) for all that meet.
  template <class F>
  void walk(const F& f) const {
    for (Index n = 0; n < c_.x.dims[0]; ++n)
      for (Index o = 0; o < cells(out_); ++o)
        for (Index r = 0; r < cells(window_); ++r) {
          const Index x = meets(o, r);
          if (x >= 0) f(n * cells(in_) + x, n * cells(out_) + o, c_.turned ? cells(window_) - 1 - r : r);
        }
  }
  /// The place of the input that output place o sees through cell r; below 0: padding.
  Index meets(Index o, Index r) const {
    Index place = 0;
    const Triple at{o / (out_[1] * out_[2]), o / out_[2] % out_[1], o % out_[2]};
    const Triple cell{r / (window_[1] * window_[2]), r / window_[2] % window_[1], r % window_[2]};
    for (std::size_t d = 0; d < 3; ++d) {
      const Index i = at[d] * c_.stride[d] - c_.begin[d] + cell[d] * c_.dilation[d];
      if (i < 0 || i >= in_[d]) return -1;
      place = place * in_[d] + i;
    }
    return place;
  }
  /// f(first channel of x, first channel of y) for each group.
  template <class F>
  void each_group(const F& f) const {
    for (Index g = 0; g < c_.groups(); ++g) f(g * group_in(), g * group_out());
  }

  void forward(Numbers& y, const Numbers& x, const Numbers& w) const {
    Numbers turned(w.size());  // cell, c, k: output channels side by side
    const Index channels = group_in(), outputs = y_channels(), all = cells(window_) * channels;
    for (Index k = 0; k < outputs; ++k)
      for (Index i = 0; i < all; ++i)
        turned[static_cast<std::size_t>(i * outputs + k)] = w[static_cast<std::size_t>(k * all + i)];
    walk([&](Index px, Index py, Index cell) {
      each_group([&](Index cx, Index ky) {
        A* to = y.data() + py * outputs + ky;
        for (Index c = 0; c < channels; ++c) {
          const A v = x[static_cast<std::size_t>(px * x_channels() + cx + c)];
          const A* row = turned.data() + (cell * channels + c) * outputs + ky;
          for (Index k = 0; k < group_out(); ++k) to[k] += v * row[k];
        }
      });
    });
  }

  void backward_data(Numbers& dx, const Numbers& w, const Numbers& dy) const {
    const Index channels = group_in(), all = cells(window_) * channels;
    walk([&](Index px, Index py, Index cell) {
      each_group([&](Index cx, Index ky) {
        A* to = dx.data() + px * x_channels() + cx;
        for (Index k = ky; k < ky + group_out(); ++k) {
          const A v = dy[static_cast<std::size_t>(py * y_channels() + k)];
          const A* row = w.data() + k * all + cell * channels;
          for (Index c = 0; c < channels; ++c) to[c] += v * row[c];
        }
      });
    });
  }

  void backward_filter(Numbers& dw, const Numbers& x, const Numbers& dy) const {
    const Index channels = group_in(), all = cells(window_) * channels;
    walk([&](Index px, Index py, Index cell) {
      each_group([&](Index cx, Index ky) {
        const A* row = x.data() + px * x_channels() + cx;
        for (Index k = ky; k < ky + group_out(); ++k) {
          const A v = dy[static_cast<std::size_t>(py * y_channels() + k)];
          A* to = dw.data() + k * all + cell * channels;
          for (Index c = 0; c < channels; ++c) to[c] += v * row[c];
        }
      });
    });
  }

  Convolution c_;
  Triple in_, out_, window_;
};

}  // namespace emulator::dnn
