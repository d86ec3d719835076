// Checks of the operands of poolings, the same for all backends.
#include "kernels/plans/pool_shape.h"

namespace trireme {
namespace {

PoolShape pool_shape(const View& x, const View& y, const PoolOptions& o, std::string_view op) {
  int rank = x.shape.rank(), dims = rank - 2;
  check(rank >= 3 && rank <= 5, op, "input is {}: expected N, 1 to 3 spatial axes, C", x.shape);
  check(is_float(x.dtype) && x.dtype == y.dtype, op, "input is {} and output {}: one floating type is expected",
        x.dtype, y.dtype);
  PoolShape s;
  s.n = x.shape[0], s.channels = x.shape[-1];
  Shape expected{s.n};
  for (int d = 0; d < dims; ++d) {
    auto at = static_cast<std::size_t>(3 - dims + d), from = static_cast<std::size_t>(d);
    s.in[at] = x.shape[d + 1], s.window[at] = o.window[from], s.stride[at] = o.stride[from];
    s.dilation[at] = o.dilation[from], s.pad[at] = o.pad_begin[from];
    check(s.window[at] >= 1 && s.stride[at] >= 1 && s.dilation[at] >= 1, op,
          "window {}, stride {} and dilation {} must be at least 1", s.window[at], s.stride[at], s.dilation[at]);
    Index reach = (s.window[at] - 1) * s.dilation[at] + 1, room = s.in[at] + s.pad[at] + o.pad_end[from] - reach;
    check(room >= 0, op, "input {} with its padding is smaller than a window of {}", x.shape, reach);
    check(s.pad[at] < reach && o.pad_end[from] < reach, op, "padding {} and {} must be smaller than the window {}",
          s.pad[at], o.pad_end[from], reach);
    s.out[at] = room / s.stride[at] + 1;
    expected.push_back(s.out[at]);
  }
  expected.push_back(s.channels);
  check(y.shape == expected, op, "output is {}, expected {}", y.shape, expected);
  return s;
}

void check_pool_index(const View& index, const View& y, const PoolShape& s, std::string_view op) {
  DType wanted = s.window_cells() > 255 ? DType::i32 : DType::u8;
  check(index.dtype == wanted && index.shape == y.shape, op, "index is {} {}, expected {} {}", index.dtype, index.shape,
        wanted, y.shape);
}

PoolShape block_shape(const View& x, const View& y, const View& index, const PoolOptions& o, double p,
                      std::string_view op) {
  PoolShape s = pool_shape(x, y, o, op);
  constexpr Extents none{0, 0, 0}, dense{1, 1, 1};
  bool plain = s.window == s.stride && o.pad_begin == none && o.pad_end == none && s.dilation == dense;
  check(plain, op, "windows must not overlap (stride == window), without padding or dilation");
  check(s.window_cells() <= 254, op, "a window of {} cells; at most 254 are possible", s.window_cells());
  check(p >= 0 && p <= 1, op, "got p = {}, expected 0 to 1", p);
  check_pool_index(index, y, s, op);
  return s;
}

}  // namespace

PoolShape max_pool_shape(const View& x, const View& y, const View& index, const PoolOptions& o, std::string_view op) {
  PoolShape s = pool_shape(x, y, o, op);
  check_pool_index(index, y, s, op);
  return s;
}

PoolShape avg_pool_shape(const View& x, const View& y, const PoolOptions& o, std::string_view op) {
  PoolShape s = pool_shape(x, y, o, op);
  check(o.dilation == Extents{1, 1, 1}, op, "dilation is for max pooling only");
  return s;
}

PoolShape pool_block_shape(const View& y, const View& index, const View& x, const View& bias, const View& sample,
                           const PoolOptions& o, double p) {
  constexpr auto op = kernel::BiasReluPoolDropout::name;
  PoolShape s = block_shape(x, y, index, o, p, op);
  check(!bias || (bias.dtype == x.dtype && bias.shape == Shape{s.channels}), op, "bias is {} {}, expected {} [{}]",
        bias.dtype, bias.shape, x.dtype, s.channels);
  check(!sample || (sample.dtype == DType::i64 && sample.numel() == s.n), op,
        "got {} {} sample ids for {} rows, expected i64 [{}]", sample.dtype, sample.shape, s.n, s.n);
  return s;
}

PoolShape pool_block_backward_shape(const View& dx, const View& dbias, const View& dy, const View& index,
                                    const PoolOptions& o, double p) {
  constexpr auto op = kernel::BiasReluPoolDropoutBackward::name;
  PoolShape s = block_shape(dx, dy, index, o, p, op);
  check(!dbias || dbias.shape == Shape{s.channels}, op, "bias gradient is {}, expected [{}]", dbias.shape, s.channels);
  return s;
}

}  // namespace trireme
