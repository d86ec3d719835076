// A layer whole and split over ranks, compared bit by bit on integers.
#pragma once
#include <cmath>
#include <limits>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "parallel/split/grid.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace trireme::test {

/// Whole numbers in [-3, 3]: every sum of their products is exact.
inline Tensor integers(const Shape& shape, std::uint64_t seed) {
  std::vector<double> v(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(test::mix(seed * 7919 + i) % 7) - 3;
  return Tensor::of(v, shape, DType::f64);
}

/// Small blocks of memory that are allocated next hold NaN, so that a number shows which nothing has written.
inline void leave_nan() {
  std::vector<Tensor> blocks;
  for (Index unit = 8; unit <= 64; unit *= 2)  // the allocator's sizes: multiples of 64 bytes, then of more
    for (Index n = unit == 8 ? 1 : 9; n <= 16; ++n)
      for (int i = 0; i < 6; ++i)
        blocks.push_back(Tensor::full({n * unit}, std::numeric_limits<double>::quiet_NaN(), DType::f64));
}

inline Tensor cut(const Tensor& whole, const Box& box) {
  const Tensor part = Tensor::empty(box.size, whole.dtype());
  Shape zero = box.at;
  for (int i = 0; i < zero.rank(); ++i) zero[i] = 0;
  copy_box(part, box.at, whole, zero, box);
  return part;
}

/// Throws unless every bit is the same, or the difference is within a tolerance.
inline void same(const Tensor& a, const Tensor& b, const std::string& what, double tolerance = 0) {
  check(a.shape() == b.shape(), what, "{} instead of {}", a.shape(), b.shape());
  const auto x = a.to_vector(), y = b.to_vector();
  for (std::size_t i = 0; i < x.size(); ++i)
    check(std::abs(x[i] - y[i]) <= tolerance, what, "element {} is {} instead of {}", i, x[i], y[i]);
}

/// How a result lies: its ShardSpec, or that of a whole tensor on the same mesh.
inline ShardSpec::Ptr spec_of(const Tensor& t, const ShardSpec& other) {
  return t.shard_spec() ? t.shard_spec()->shared_from_this() : other.with(t.shape(), {});
}

inline Placements over(std::initializer_list<std::pair<int, int>> axes) {
  Placements layout;
  for (auto [dim, axis] : axes) layout = layout.with(dim, 1u << axis);
  return layout;
}

/// Runs layer(x, w) whole and split and compares output, input gradient and weight gradient.
inline void compare_layer(const std::shared_ptr<const Grid>& grid, const Shape& shape, const Shape& filter,
                          const Placements& layout, const std::function<Tensor(const Tensor&, const Tensor&)>& layer,
                          const std::string& what, double tolerance = 0) {
  Tensor x = integers(shape, 1), w = filter.rank() ? integers(filter, 2) : Tensor();
  x.require_grad();
  if (w) w.require_grad();
  const Tensor y = layer(x, w), dy = integers(y.shape(), 3);
  y.backward(dy);

  Tensor x2 = integers(shape, 1), w2 = w ? w.clone() : w;
  x2.require_grad();
  if (w2) w2.require_grad();
  const ShardSpec::Ptr shard = ShardSpec::make(grid, shape, layout);
  const Tensor part = layer(relayout(x2, *shard), w2);
  const ShardSpec::Ptr out = spec_of(part, *shard);
  same(part, cut(y, out->box()), what + ": output");
  part.backward(cut(dy, out->box()));
  same(x2.grad(), x.grad(), what + ": input gradient", tolerance);
  if (!w) return;
  same(w2.grad(), w.grad(), what + ": weight gradient");
}

/// Runs body on a mesh of named axes, by rank; returns what it counted.
inline int on_mesh(const std::vector<Axis>& axes, const std::function<int(Mesh&)>& body) {
  int ranks = 1;
  for (auto& a : axes) ranks *= a.size;
  if (other_ranks(ranks)) return 0;
  return on_ranks(ranks, [&](World& world) {
    Mesh mesh(world, axes);
    return body(mesh);
  });
}

inline std::shared_ptr<const Grid> grid_of(Mesh& mesh) {
  std::vector<std::string> names;
  for (auto& a : mesh.axes()) names.push_back(a.name);
  return std::make_shared<Grid>(mesh, names, std::vector<std::string>{});
}

}  // namespace trireme::test
