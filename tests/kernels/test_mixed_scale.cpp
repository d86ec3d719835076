// Mixed-scale dense layers: whole numbers against the definition; and the bits of an image computed as a whole, box by
// box, from tiles that hold a halo, and on other numbers of threads.
#include <cstring>

#include "kernels/contracts/mixed_scale.h"
#include "kernels/plans/mixed_scale_shape.h"
#include "tests/kernels/fenced.h"

namespace test_mixed_scale {

using namespace trireme;
using namespace trireme::test;

namespace {

struct Net {
  Shape block, w;
  MixedScaleOptions o;
  std::string words() const {
    std::string text =
        to_string(block) + " filter " + to_string(w) + " dilation " + std::to_string(o.dilation) + " box";
    for (std::size_t d = 0; d < 3; ++d) text += " " + std::to_string(o.begin[d]) + "+" + std::to_string(o.size[d]);
    return text;
  }
};

void draw_box(Net& net) {
  for (int d = 0; d < net.block.rank() - 2; ++d) {
    const auto i = static_cast<std::size_t>(d);
    const Index extent = net.block[d + 1];
    net.o.begin[i] = pick(0, extent - 1);
    net.o.size[i] = pick(0, 3) == 0 ? -1 : pick(1, extent - net.o.begin[i]);
  }
}

/// Channels beyond a vector's, rows beyond a stretch, dilations beyond the image, and the channels of later layers.
Net draw(int dims, bool part) {
  Net net{{pick(1, 2)}, {pick(1, 3)}, {}};
  net.o.outputs = net.w[0];
  net.o.channels = pick(0, 4) == 0 ? pick(17, 70) : pick(1, 16);
  net.o.dilation = pick(0, 2) == 0 ? pick(4, 10) : pick(1, 3);
  for (int d = 0; d < dims; ++d) {
    const bool last = d + 1 == dims;
    net.block.push_back(last && pick(0, 5) == 0 ? pick(45, 100) : pick(1, dims == 2 ? 18 : 6));
    net.w.push_back(3);
  }
  net.block.push_back(net.o.channels + net.o.outputs + pick(0, 3));
  net.w.push_back(net.o.channels);
  if (part) draw_box(net);
  return net;
}

/// f(position's cell, tap, the cell that the tap reads) for all taps that lie in the block, of positions of the box.
template <class F>
void for_taps(const MixedScaleShape& s, F f) {
  const auto cell = [&](Index n, Index z, Index y, Index x) {
    return ((n * s.extent[0] + z) * s.extent[1] + y) * s.extent[2] + x;
  };
  for (Index n = 0; n < s.n; ++n)
    for (Index z = s.begin[0]; z < s.begin[0] + s.size[0]; ++z)
      for (Index y = s.begin[1]; y < s.begin[1] + s.size[1]; ++y)
        for (Index x = s.begin[2]; x < s.begin[2] + s.size[2]; ++x)
          for (Index t = 0; t < s.taps(); ++t) {
            const Extents d = s.offset(t);
            const Index at[] = {z + d[0], y + d[1], x + d[2]};
            bool inside = true;
            for (std::size_t i = 0; i < 3; ++i) inside = inside && at[i] >= 0 && at[i] < s.extent[i];
            f(cell(n, z, y, x), t, inside ? cell(n, at[0], at[1], at[2]) : -1);
          }
}

void check_definition(const Net& net, DType type) {
  const DType wide = type == DType::f64 ? DType::f64 : DType::f32;
  const DType weights = pick(0, 1) ? type : wide;
  Fenced block(net.block, type), w(net.w, weights), bias({net.o.outputs}, weights), gradient(net.block, wide),
      dw(net.w, weights), db({net.o.outputs}, weights);
  const bool with_bias = pick(0, 1), accumulate = pick(0, 1);
  const MixedScaleShape s = mixed_scale_shape(block.view(), net.o, "test");
  const auto at = [](Index i) { return static_cast<std::size_t>(i); };
  const std::vector<double> x = block.numbers(), f = w.numbers(), b = bias.numbers(), g = gradient.numbers();
  std::vector<double> sum(x.size()), y = x, dx = g, ew(f.size()), eb(b.size());
  if (accumulate) {
    ew = dw.numbers();
    eb = db.numbers();
  }
  for_taps(s, [&](Index cell, Index tap, Index from) {
    for (Index o = 0; o < s.outputs; ++o) {
      const Index own = cell * s.width + s.channels + o, filter = (o * s.taps() + tap) * s.channels;
      if (tap == 0) {
        sum[at(own)] = with_bias ? b[at(o)] : 0;
        eb[at(o)] += g[at(own)];
      }
      for (Index c = 0; from >= 0 && c < s.channels; ++c) {
        sum[at(own)] += f[at(filter + c)] * x[at(from * s.width + c)];
        ew[at(filter + c)] += g[at(own)] * x[at(from * s.width + c)];
      }
      y[at(own)] = std::max(0.0, sum[at(own)]);
    }
  });
  // By input: taps the other way round.
  for_taps(s, [&](Index cell, Index tap, Index from) {
    for (Index o = 0; from >= 0 && o < s.outputs; ++o)
      for (Index c = 0; c < s.channels; ++c)
        dx[at(cell * s.width + c)] +=
            f[at((o * s.taps() + s.taps() - 1 - tap) * s.channels + c)] * g[at(from * s.width + s.channels + o)];
  });
  spoil_scratch();
  run<kernel::MixedScaleBackwardWeight>(dw.view(), with_bias ? db.view() : View{}, block.view(), gradient.view(), net.o,
                                        accumulate);
  CHECK(same(dw, ew, sizes_of(ew), weights));
  if (with_bias) CHECK(same(db, eb, sizes_of(eb), weights));
  run<kernel::MixedScaleBackwardInput>(gradient.view(), w.view(), net.o);
  CHECK(same(gradient, dx, sizes_of(dx), wide));
  run<kernel::MixedScaleLayer>(block.view(), w.view(), with_bias ? bias.view() : View{}, net.o);
  CHECK(same(block, y, sizes_of(y), type));
  std::vector<double> masked = dx;
  const std::vector<double> now = block.numbers();
  for_taps(s, [&](Index cell, Index, Index) {
    for (Index own = cell * s.width + s.channels, o = 0; o < s.outputs; ++o, ++own)
      if (!(now[at(own)] > 0)) masked[at(own)] = 0;
  });
  run<kernel::MixedScaleBackwardRelu>(gradient.view(), block.view(), net.o);
  CHECK(same(gradient, masked, sizes_of(masked), wide));
}

Array random_array(const Shape& shape, DType type) { return filled(shape, type, false); }

/// Boxes that together are the block's positions.
void cut(const Shape& block, const MixedScaleOptions& from, int axis, std::vector<MixedScaleOptions>& boxes) {
  if (axis == block.rank() - 1) return boxes.push_back(from);
  const auto i = static_cast<std::size_t>(axis - 1);
  for (Index at = 0; at < block[axis];) {
    MixedScaleOptions part = from;
    part.begin[i] = at;
    part.size[i] = pick(1, block[axis] - at);
    at += part.size[i];
    cut(block, part, axis + 1, boxes);
  }
}

/// from's cells [begin, begin + size) along the spatial axes.
Array tile(Array& from, const Shape& begin, const Shape& size) {
  Shape shape{from.shape[0]};
  for (int d = 0; d < size.rank(); ++d) shape.push_back(size[d]);
  shape.push_back(from.shape[-1]);
  Array to(shape, from.type);
  for (Index i = 0; i < to.size(); ++i) {
    Index rest = i / shape[-1], source = 0, step = 1;
    for (int d = size.rank(); d > 0; --d) {
      source += (begin[d - 1] + rest % shape[d]) * step;
      rest /= shape[d];
      step *= from.shape[d];
    }
    to.set(i, from.get((source + rest * step) * shape[-1] + i % shape[-1]));
  }
  return to;
}

}  // namespace

TEST_CASE("mixed-scale dense layers are their definition, in whole numbers") {
  for (int i = 0; i < 40; ++i) {
    const Net net = draw(2 + i % 2, i % 3 > 0);
    for (DType type : all_types) {
      INFO("number " << i << ": " << net.words() << " " << name_of(type));
      check_definition(net, type);
    }
  }
}

TEST_CASE("a mixed-scale dense layer has the same bits as a whole, in boxes, and on any number of threads") {
  const int before = threads();
  for (int i = 0; i < 12; ++i) {
    const Net net = draw(2 + i % 2, false);
    for (DType type : all_types) {
      INFO("number " << i << ": " << net.words() << " " << name_of(type));
      const DType wide = type == DType::f64 ? DType::f64 : DType::f32;
      Array block = random_array(net.block, type), w = random_array(net.w, type),
            bias = random_array({net.o.outputs}, type);
      Array gradient = random_array(net.block, wide), dw = random_array(net.w, wide),
            db = random_array({net.o.outputs}, wide);
      Array boxed = block, boxed_gradient = gradient, other_dw = dw, other_db = db;
      set_threads(1);
      run<kernel::MixedScaleLayer>(block.view(), w.view(), bias.view(), net.o);
      run<kernel::MixedScaleBackwardInput>(gradient.view(), w.view(), net.o);
      run<kernel::MixedScaleBackwardWeight>(dw.view(), db.view(), block.view(), gradient.view(), net.o, true);
      set_threads(static_cast<int>(pick(1, 4)));
      std::vector<MixedScaleOptions> boxes;
      cut(net.block, net.o, 1, boxes);
      for (const MixedScaleOptions& o : boxes) run<kernel::MixedScaleLayer>(boxed.view(), w.view(), bias.view(), o);
      for (const MixedScaleOptions& o : boxes) run<kernel::MixedScaleBackwardInput>(boxed_gradient.view(), w.view(), o);
      set_threads(static_cast<int>(pick(2, 4)));
      run<kernel::MixedScaleBackwardWeight>(other_dw.view(), other_db.view(), block.view(), gradient.view(), net.o,
                                            true);
      CHECK(boxed.bytes == block.bytes);
      CHECK(boxed_gradient.bytes == gradient.bytes);
      CHECK(other_dw.bytes == dw.bytes);
      CHECK(other_db.bytes == db.bytes);
    }
  }
  set_threads(before);
}

TEST_CASE("a tile that holds a halo has the bits of the whole") {
  for (int i = 0; i < 12; ++i) {
    Net net = draw(2 + i % 2, true);
    for (DType type : {DType::f32, DType::f64}) {
      INFO("number " << i << ": " << net.words() << " " << name_of(type));
      Array block = random_array(net.block, type), w = random_array(net.w, type),
            bias = random_array({net.o.outputs}, type);
      Array gradient = random_array(net.block, type);
      const MixedScaleShape s = mixed_scale_shape(block.view(), net.o, "test");
      // The box with a dilation of cells around it, as far as there are any, and some more.
      Shape begin, size;
      MixedScaleOptions inside = net.o;
      for (int d = 0; d < net.block.rank() - 2; ++d) {
        const auto axis = static_cast<std::size_t>(5 - net.block.rank() + d), own = static_cast<std::size_t>(d);
        const Index reach = s.dilation + pick(0, 2), first = std::max<Index>(0, s.begin[axis] - reach);
        begin.push_back(first);
        size.push_back(std::min(s.extent[axis], s.begin[axis] + s.size[axis] + reach) - first);
        inside.begin[own] = s.begin[axis] - first;
        inside.size[own] = s.size[axis];
      }
      Array part = tile(block, begin, size), part_gradient = tile(gradient, begin, size);
      run<kernel::MixedScaleLayer>(block.view(), w.view(), bias.view(), net.o);
      run<kernel::MixedScaleLayer>(part.view(), w.view(), bias.view(), inside);
      run<kernel::MixedScaleBackwardInput>(gradient.view(), w.view(), net.o);
      run<kernel::MixedScaleBackwardInput>(part_gradient.view(), w.view(), inside);
      Array expected = tile(block, begin, size), expected_gradient = tile(gradient, begin, size);
      CHECK(part.bytes == expected.bytes);
      CHECK(part_gradient.bytes == expected_gradient.bytes);
    }
  }
}

TEST_CASE("a mixed-scale dense layer refuses operands that do not fit") {
  Array block({1, 4, 5, 6}, DType::f32), w({2, 3, 3, 4}, DType::f32), bias({2}, DType::f32);
  const auto layer = [&](const MixedScaleOptions& o) {
    return [&, o] { run<kernel::MixedScaleLayer>(block.view(), w.view(), bias.view(), o); };
  };
  CHECK_NOTHROW(layer({.channels = 4, .outputs = 2})());
  CHECK_ERROR(layer({.channels = 5, .outputs = 2})(), usage, 5, 2);
  CHECK_ERROR(layer({.channels = 3, .outputs = 2})(), usage, "[2, 3, 3, 4]", "[2, 3, 3, 3]");
  CHECK_ERROR(layer({.channels = 4, .outputs = 2, .dilation = 0})(), usage, "mixed_scale_layer", 0);
  CHECK_ERROR(layer({.channels = 4, .outputs = 2, .begin = {2, 0}, .size = {3, 5}})(), usage, 2, 3, 0);
  CHECK_NOTHROW(layer({.channels = 4, .outputs = 2, .begin = {4, 0}, .size = {0, 5}})());
  Array half({1, 4, 5, 6}, DType::f16), line({1, 4, 6}, DType::f32), gradient({1, 4, 5, 6}, DType::bf16);
  const MixedScaleOptions o{.channels = 4, .outputs = 2};
  CHECK_THROWS_AS(run<kernel::MixedScaleLayer>(half.view(), w.view(), bias.view(), o), Error);
  CHECK_ERROR(run<kernel::MixedScaleLayer>(line.view(), w.view(), bias.view(), o), usage, "mixed_scale_layer",
              "[N, H, W, C]");
  CHECK_ERROR(run<kernel::MixedScaleBackwardRelu>(gradient.view(), block.view(), o), usage, "f32");
  CHECK_ERROR(run<kernel::MixedScaleBackwardInput>(gradient.view(), w.view(), o), usage, "f32", "f64");
}

}  // namespace test_mixed_scale
