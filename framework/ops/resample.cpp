// Interpolation and adaptive pooling.
#include <cmath>

#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"

namespace trireme {
namespace {

Shape with_spatial(const char* op, const Tensor& x, const Shape& size) {
  ops::check_float(op, x);
  check(x.rank() >= 3 && x.rank() <= 5, op, "input is {}, expected [N, spatial..., C] with 1 to 3 spatial axes",
        x.shape());
  check(size.rank() == x.rank() - 2, op, "size is {} for {}, expected one extent per spatial axis", size, x.shape());
  Shape y = x.shape();
  for (int d = 0; d < size.rank(); ++d) {
    check(size[d] > 0 && x.dim(d + 1) > 0, op, "cannot resize {} to {}, expected at least one cell", x.shape(), size);
    y[d + 1] = size[d];
  }
  return y;
}

/// f(x) on whole images: each rank makes all of them, of its channels.
template <class F>
Tensor on_whole_images(const char* op, const Tensor& x, F&& f) {
  std::vector<int> spatial;
  for (int d = 1; d < x.rank() - 1; ++d) spatial.push_back(d);
  const ops::Placed p = ops::place(op, ops::same_dims({x}, spatial), {x});
  return p.put(f(p[0]));
}

Tensor resampled(const char* op, const Tensor& x, const Shape& shape, const ResampleAxes& axes) {
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  launch<kernel::Resample>(y, x, axes);
  if (!needs_record(op, y, {&x})) return y;
  return record(op, std::move(y), {x}, axes, ops::twice([op, axes](const Tensor& dy, Gradients& g) {
                  const auto back = [axes](const Tensor& dx, const Tensor& dy) {
                    launch<kernel::ResampleBackward>(dx, dy, axes);
                  };
                  if (!g.records()) return write_grad(g, 0, [&](const Tensor& dx) { back(dx, dy); });
                  const auto there = [axes](const Tensor& y, const Tensor& x) { launch<kernel::Resample>(y, x, axes); };
                  g.set_grad(0, ops::linear_map(op, dy, g.input(0), back, there));
                }));
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& o) {
  const char* op = "interpolate";
  ops::check_float(op, x);
  check((o.size.rank() > 0) != (o.scale > 0), op, "got size {} and scale {}, expected one of them", o.size, o.scale);
  check(!o.align_corners || o.mode == ResampleMode::linear, op, "align_corners is for linear interpolation");
  if (x.shard_spec()) return on_whole_images(op, x, [&](const Tensor& t) { return interpolate(t, o); });
  Shape size = o.size;
  for (int d = 0; o.scale > 0 && d < x.rank() - 2; ++d)
    size.push_back(static_cast<Index>(std::floor(static_cast<double>(x.dim(d + 1)) * o.scale)));
  const Shape shape = with_spatial(op, x, size);
  ResampleAxes axes;
  for (int d = 0; d < size.rank(); ++d) {
    const Index in = x.dim(d + 1);
    double step = o.scale > 0 ? 1 / o.scale : static_cast<double>(in) / static_cast<double>(size[d]);
    // PyTorch: an axis that keeps its extent is copied, and nearest repeats each cell of one that doubles.
    if (size[d] == in) step = 1;
    if (size[d] == 2 * in && o.mode == ResampleMode::nearest) step = 0.5;
    axes[static_cast<std::size_t>(d)] = {in, size[d], o.mode, o.align_corners, step};
  }
  return resampled(op, x, shape, axes);
}

Tensor adaptive_avg_pool(const Tensor& x, const Shape& size) {
  if (x.shard_spec())
    return on_whole_images("adaptive_avg_pool", x, [&](const Tensor& t) { return adaptive_avg_pool(t, size); });
  const Shape shape = with_spatial("adaptive_avg_pool", x, size);
  if (shape == x.shape()) return x;
  ResampleAxes axes;
  for (int d = 0; d < size.rank(); ++d)
    axes[static_cast<std::size_t>(d)] = {.in = x.dim(d + 1), .out = size[d], .mode = ResampleMode::area};
  return resampled("adaptive_avg_pool", x, shape, axes);
}

Tensor adaptive_max_pool(const Tensor& x, const Shape& size) {
  (void)with_spatial("adaptive_max_pool", x, size);
  const Shape& whole = ops::global_shape(x);
  // One axis after another, until each box is one window; axes with windows of one size at once.
  for (int d = 0; d < size.rank(); ++d) {
    const Index in = whole[d + 1], out = size[d];
    if (in % out == 0) continue;
    std::vector<Tensor> slabs;
    for (Index o = 0; o < out; ++o) {
      Shape one = size;
      one[d] = 1;
      slabs.push_back(adaptive_max_pool(slice(x, d + 1, o * in / out, ((o + 1) * in + out - 1) / out), one));
    }
    return concat(slabs, d + 1);
  }
  PoolOptions o;
  for (int d = 0; d < size.rank(); ++d)
    o.window[static_cast<std::size_t>(d)] = o.stride[static_cast<std::size_t>(d)] = whole[d + 1] / size[d];
  return max_pool(x, o);
}

}  // namespace trireme
