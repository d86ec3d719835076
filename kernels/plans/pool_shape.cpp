// Checks of the operands of poolings, the same for all backends.
#include "kernels/plans/pool_shape.h"

namespace trireme {
Shape pool_output_shape(const Shape& x, const PoolOptions& o, std::string_view op) {
  check(x.rank() >= 3 && x.rank() <= 5, op, "input is {}, expected [N, spatial..., C] with 1 to 3 spatial axes", x);
  Shape y{x[0]};
  for (int axis = 1; axis < x.rank() - 1; ++axis) {
    const auto s = static_cast<std::size_t>(axis - 1);
    check(o.window[s] >= 1 && o.stride[s] >= 1 && o.dilation[s] >= 1, op,
          "window {}, stride {} and dilation {} must be at least 1", o.window[s], o.stride[s], o.dilation[s]);
    const Index reach = o.dilation[s] * (o.window[s] - 1) + 1, padded = x[axis] + o.pad_begin[s] + o.pad_end[s];
    check(o.pad_begin[s] >= 0 && o.pad_begin[s] < reach && o.pad_end[s] >= 0 && o.pad_end[s] < reach, op,
          "padding {} and {} must be smaller than the window, {}", o.pad_begin[s], o.pad_end[s], reach);
    check(padded >= reach, op, "input {} is too small: {} with padding, the window covers {} on spatial axis {}", x,
          padded, reach, s);
    y.push_back((padded - reach) / o.stride[s] + 1);
  }
  y.push_back(x[-1]);
  return y;
}

DType pool_index_type(const Shape& x, const PoolOptions& o) {
  Index cells = 1;
  for (int s = 0; s < x.rank() - 2; ++s) cells *= o.window[static_cast<std::size_t>(s)];
  return cells > 255 ? DType::i32 : DType::u8;
}

Shape pool_block_output_shape(const Shape& x, const PoolOptions& o, std::string_view op) {
  const Shape y = pool_output_shape(x, o, op);
  Index cells = 1;
  for (int d = 0; d < x.rank() - 2; ++d) {
    const auto s = static_cast<std::size_t>(d);
    check(o.stride[s] == o.window[s] && o.pad_begin[s] == 0 && o.pad_end[s] == 0 && o.dilation[s] == 1, op,
          "windows must not overlap and take no padding or dilation: use relu, max_pool and dropout");
    cells *= o.window[s];
  }
  check(cells < no_gradient, op, "a window has {} cells, at most {}: use max_pool", cells, no_gradient - 1);
  return y;
}

namespace {

PoolShape pool_shape(const View& x, const View& y, const Shape& expected, const PoolOptions& o, std::string_view op) {
  check(is_float(x.dtype) && x.dtype == y.dtype, op, "input is {} and output {}, expected the same floating type",
        x.dtype, y.dtype);
  check(y.shape == expected, op, "output is {}, expected {}", y.shape, expected);
  PoolShape s;
  s.n = x.shape[0];
  s.channels = x.shape[-1];
  const int dims = x.shape.rank() - 2;
  for (int d = 0; d < dims; ++d) {
    const auto at = static_cast<std::size_t>(3 - dims + d), from = static_cast<std::size_t>(d);
    s.in[at] = x.shape[d + 1];
    s.out[at] = expected[d + 1];
    s.window[at] = o.window[from];
    s.stride[at] = o.stride[from];
    s.dilation[at] = o.dilation[from];
    s.pad[at] = o.pad_begin[from];
  }
  return s;
}

void check_pool_index(const View& index, const View& x, const View& y, const PoolOptions& o, std::string_view op) {
  const DType wanted = pool_index_type(x.shape, o);
  check(index.dtype == wanted && index.shape == y.shape, op, "index is {} {}, expected {} {}", index.dtype, index.shape,
        wanted, y.shape);
}

PoolShape block_shape(const View& x, const View& y, const View& index, const PoolOptions& o, double p,
                      std::string_view op) {
  const PoolShape s = pool_shape(x, y, pool_block_output_shape(x.shape, o, op), o, op);
  check(p >= 0 && p <= 1, op, "got p = {}, expected 0 to 1", p);
  check_pool_index(index, x, y, o, op);
  return s;
}

}  // namespace

PoolShape max_pool_shape(const View& x, const View& y, const View& index, const PoolOptions& o, std::string_view op) {
  check_pool_index(index, x, y, o, op);
  return pool_shape(x, y, pool_output_shape(x.shape, o, op), o, op);
}

PoolShape avg_pool_shape(const View& x, const View& y, const PoolOptions& o, std::string_view op) {
  check(o.dilation == Extents{1, 1, 1}, op, "dilation is for max_pool only");
  return pool_shape(x, y, pool_output_shape(x.shape, o, op), o, op);
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
