// Transposed convolution and joining over ranks against the undivided ops, bit by bit on integers.
#include <fmt/ranges.h>

#include "tests/parallel/split_layers.h"

namespace test_split_transposed {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Small numbers that follow from a seed.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  Index between(Index least, Index most) {
    return least + static_cast<Index>(mix(seed_ * 1009 + ++draws_) % static_cast<std::uint64_t>(most - least + 1));
  }
  bool chance() { return between(0, 1) == 1; }

 private:
  std::uint64_t seed_, draws_ = 0;
};

/// An op of x [N, spatial..., C] and weights, and how x and the weights lie.
struct Divided {
  std::string text;
  Shape x;
  Placements layout;
  std::vector<Shape> weights;
  std::vector<Placements> weight_layouts;
  std::function<Tensor(const Tensor& x, const std::vector<Tensor>& w)> op;
};

/// A weight as split() leaves it, whole or divided.
Tensor as_weight(const std::shared_ptr<const Grid>& grid, const Tensor& w, const Placements& layout) {
  const ShardSpec::Ptr spec = ShardSpec::of_weight(grid, w.shape(), layout);
  return layout.axes() == 0 ? w.with_shard_spec(spec) : relayout(w, *spec);
}

/// Output, and gradients of x and the weights, equal those of the whole.
void compare(const std::shared_ptr<const Grid>& grid, const Divided& c) {
  const auto leaves = [&] {
    std::vector<Tensor> w;
    for (std::size_t i = 0; i < c.weights.size(); ++i) w.push_back(integers(c.weights[i], 10 + i).require_grad());
    return w;
  };
  const std::vector<Tensor> w = leaves(), w2 = leaves();
  Tensor x = integers(c.x, 1).require_grad(), x2 = integers(c.x, 1).require_grad();
  const Tensor y = c.op(x, w), dy = integers(y.shape(), 3);
  y.backward(dy);

  std::vector<Tensor> laid;
  for (std::size_t i = 0; i < w2.size(); ++i) laid.push_back(as_weight(grid, w2[i], c.weight_layouts[i]));
  const ShardSpec::Ptr shard = ShardSpec::make(grid, c.x, c.layout);
  const Tensor part = c.op(relayout(x2, *shard), laid);
  const ShardSpec::Ptr out = spec_of(part, *shard);
  same(part, trireme::test::cut(y, out->box()), c.text + ": output");
  {
    const NoGrad off;  // as an evaluation has it
    const Tensor again = c.op(relayout(x2.detach(), *shard), laid);
    same(again, part, c.text + ": output without gradients");
  }
  part.backward(trireme::test::cut(dy, out->box()));
  same(x2.grad(), x.grad(), c.text + ": input gradient");
  for (std::size_t i = 0; i < w.size(); ++i) {
    const Tensor sum = w2[i].grad().clone();
    grid->sum(sum, grid->summed());
    same(sum, w[i].grad(), c.text + ": gradient of weight " + std::to_string(i));
  }
}

/// An image of random extents, of at least as many cells as there are ranks, divided over the grid's axes.
void draw_image(Draw& draw, const Grid& grid, int dims, Index channels, Divided& c) {
  c.x = {draw.between(1, 2)};
  for (int d = 0; d < dims; ++d) {
    const int over = grid.find(std::array{"w", "h", "d"}[static_cast<std::size_t>(dims - 1 - d)]);
    const Index least = over < 0 ? 1 : grid.size(over);
    c.x.push_back(draw.between(least, least + (dims == 1 ? 12 : dims == 2 ? 7 : 4)));
    if (over >= 0) c.layout = c.layout.with(d + 1, 1u << over);
  }
  c.x.push_back(channels);
}

Divided draw_transposed(Draw& draw, const Grid& grid, int dims) {
  Divided c;
  const int tensor = grid.find("tensor");
  const Index groups = tensor < 0 ? draw.between(1, 3) : 1, least = tensor < 0 ? 1 : grid.size(tensor);
  const Index in = groups * draw.between(least, least + 2), out = groups * draw.between(least, least + 2);
  draw_image(draw, grid, dims, in, c);
  ConvOptions o{.groups = groups};
  Extents more{0, 0, 0};
  Shape w{in};
  for (int d = 0; d < dims; ++d) {
    const auto at = static_cast<std::size_t>(d);
    const Index kernel = draw.between(1, 5);
    o.stride[at] = draw.between(1, 4);
    o.dilation[at] = draw.chance() ? 1 : draw.between(1, 3);
    Index room = (c.x[d + 1] - 1) * o.stride[at] + o.dilation[at] * (kernel - 1);  // cells, and one that stays
    o.pad_begin[at] = draw.between(0, std::min(room, o.dilation[at] * kernel));
    room -= o.pad_begin[at];
    o.pad_end[at] = draw.between(0, std::min(room, o.dilation[at] * kernel));
    more[at] = draw.between(0, o.stride[at] - 1);
    w.push_back(kernel);
  }
  w.push_back(out / groups);
  const bool bias = draw.chance();
  c.weights = {w};
  c.weight_layouts = {Placements()};
  if (bias) {
    c.weights.push_back({out});
    c.weight_layouts.emplace_back();
  }
  if (tensor >= 0) {
    const Index way = draw.between(0, 2);  // by inputs, by outputs, not at all
    if (way < 2) c.weight_layouts[0] = c.weight_layouts[0].with(way == 0 ? 0 : dims + 1, 1u << tensor);
    if (bias && draw.chance()) c.weight_layouts[1] = c.weight_layouts[1].with(0, 1u << tensor);
    if (draw.chance()) c.layout = c.layout.with(dims + 1, 1u << tensor);
  }
  c.text = fmt::format("conv_transpose of {} by {}, stride {}, dilation {}, padding {} and {}, output padding {}{}",
                       c.x, w, fmt::join(o.stride, ","), fmt::join(o.dilation, ","), fmt::join(o.pad_begin, ","),
                       fmt::join(o.pad_end, ","), fmt::join(more, ","), bias ? ", bias" : "");
  c.op = [=](const Tensor& x, const std::vector<Tensor>& t) {
    return conv_transpose(x, t[0], t.size() > 1 ? t[1] : Tensor{}, o, more);
  };
  return c;
}

/// x beside a convolution of it that lies in another way, and x pooled and brought back to its size.
Divided draw_joined(Draw& draw, const Grid& grid, int dims) {
  Divided c;
  const Index channels = draw.between(2, 5);
  draw_image(draw, grid, dims, channels, c);
  for (int d = 0; d < dims; ++d) c.x[d + 1] += c.x[d + 1] % 2;
  if (const int tensor = grid.find("tensor"); tensor >= 0 && draw.chance())
    c.layout = c.layout.with(dims + 1, 1u << tensor);
  const int axis = static_cast<int>(draw.between(0, dims + 1));
  Shape w{channels}, up{channels};
  for (int d = 0; d < dims; ++d) {
    w.push_back(3);
    up.push_back(2);
  }
  w.push_back(channels);
  up.push_back(draw.between(1, 3));
  c.weights = {w};
  c.weight_layouts = {Placements()};
  if (const int tensor = grid.find("tensor"); tensor >= 0 && draw.chance())
    c.weight_layouts[0] = c.weight_layouts[0].with(0, 1u << tensor);
  if (axis == dims + 1) {
    c.weights.push_back(up);
    c.weight_layouts.emplace_back();
  }
  const bool reversed = draw.chance();
  c.text = fmt::format("concat along {} of parts of {}", axis, c.x);
  c.op = [=](const Tensor& x, const std::vector<Tensor>& t) {
    std::vector<Tensor> parts{conv(x, t[0], {}, {.pad_begin = {1, 1, 1}, .pad_end = {1, 1, 1}}), x, relu(x)};
    PoolOptions halves{.window = {2, 2, 2}, .stride = {2, 2, 2}};
    if (axis == dims + 1) {
      parts.push_back(conv_transpose(max_pool(x, halves), t[1], {}, {.stride = {2, 2, 2}}));
    } else if (axis > 0) {  // of another extent along the axis
      halves = {};
      halves.window[static_cast<std::size_t>(axis - 1)] = halves.stride[static_cast<std::size_t>(axis - 1)] = 2;
      parts.push_back(max_pool(x, halves));
    }
    if (reversed) std::swap(parts.front(), parts.back());
    return concat(parts, axis);
  };
  return c;
}

/// As of a training: the ranks' shares of a weight's gradient are summed over the image axes.
std::shared_ptr<const Grid> image_grid(Mesh& mesh) {
  std::vector<std::string> names;
  for (auto& a : mesh.axes()) names.push_back(a.name);
  return std::make_shared<Grid>(mesh, names, std::vector<std::string>{"d", "h", "w"});
}

const std::vector<std::vector<Axis>> meshes = {{{"h", 2}},           {{"h", 3}},      {{"h", 4}},
                                               {{"w", 2}},           {{"w", 3}},      {{"h", 2}, {"w", 2}},
                                               {{"d", 2}, {"h", 2}}, {{"d", 3}},      {{"d", 2}, {"w", 2}},
                                               {{"tensor", 2}},      {{"tensor", 3}}, {{"h", 2}, {"tensor", 2}}};

/// Compares so many cases on each mesh; returns how many.
int compare_drawn(int cases, const std::function<Divided(Draw&, const Grid&, int dims)>& make) {
  int compared = 0;
  std::uint64_t number = 0;
  for (const auto& axes : meshes) {
    const std::uint64_t seed = ++number;
    compared += on_mesh(axes, [&](Mesh& mesh) {
      const auto grid = image_grid(mesh);
      for (int i = 0; i < cases; ++i) {
        Draw draw(seed * 1000 + static_cast<std::uint64_t>(i));
        compare(grid, make(draw, *grid, 1 + i % 3));
      }
      return cases;
    });
  }
  return compared;
}

}  // namespace

TEST_CASE("what a transposed window is made from, by interval arithmetic") {
  const Shape whole{1, 5, 1};
  const auto rows = [](Index begin, Index end) { return Box{{0, begin, 0}, {1, end - begin, 1}}; };
  const auto from = [&](const Window& w, Index begin, Index end) {
    return transposed_patch(rows(begin, end), rows(0, 5), {w}, whole);
  };
  const Window tiles{.size = 2, .stride = 2};
  CHECK(transposed_outputs(whole, {tiles}, {0, 0, 0}) == Shape{1, 10, 1});
  CHECK(from(tiles, 0, 5).inputs == rows(0, 3));
  CHECK(from(tiles, 0, 5).pad_end[0] == 1);
  CHECK(from(tiles, 5, 10).inputs == rows(2, 5));
  CHECK(from(tiles, 5, 10).pad_begin[0] == 1);
  CHECK(from(tiles, 4, 8).inputs == rows(2, 4));
  CHECK(from(tiles, 4, 8).pad_begin[0] == 0);
  // Cells between windows that no input reaches, and those that output padding adds.
  const Window apart{.size = 1, .stride = 3};
  CHECK(transposed_outputs(whole, {apart}, {2, 0, 0}) == Shape{1, 15, 1});
  CHECK(from(apart, 4, 6).inputs == rows(1, 3));
  CHECK(from(apart, 13, 15).inputs == rows(4, 5));
  CHECK(from(apart, 13, 15).output_pad[0] == 2);
  CHECK_ERROR(transposed_outputs(whole, {{.size = 2, .pad_begin = 3, .pad_end = 3}}, {0, 0, 0}), usage, 2, 1, 0);
}

TEST_CASE("transposed convolutions over ranks equal the whole, drawn at random") {
  const int compared = compare_drawn(brief() ? 12 : 60, draw_transposed);
  CHECK((under_mpi() || compared == (brief() ? 12 : 60) * static_cast<int>(meshes.size())));
}

TEST_CASE("parts that lie in different ways over ranks are joined as the whole are") {
  const int compared = compare_drawn(brief() ? 6 : 15, draw_joined);
  CHECK((under_mpi() || compared == (brief() ? 6 : 15) * static_cast<int>(meshes.size())));
}

TEST_CASE("what cannot be transposed or joined over ranks says why") {
  const auto refusal = [](const std::function<void(const std::shared_ptr<const Grid>&)>& body) {
    try {
      on_mesh({{"h", rank_counts({2})[0]}}, [&](Mesh& mesh) {
        body(grid_of(mesh));
        return 1;
      });
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  const auto image = [](const std::shared_ptr<const Grid>& grid, const Shape& shape, int axis) {
    return relayout(integers(shape, 1), *ShardSpec::make(grid, shape, over({{axis, 0}})));
  };
  CHECK_THAT(refusal([&](const auto& grid) {
               conv_transpose(image(grid, {1, 8, 8, 4}, 1), integers({4, 2, 4}, 2));
             }),
             Catch::Contains("input is [1, 8, 8, 4], the filter [4, 2, 4]"));
  CHECK_THAT(refusal([&](const auto& grid) {
               concat({image(grid, {1, 8, 8, 4}, 1), image(grid, {1, 8, 9, 4}, 1)}, -1);
             }),
             Catch::Contains("[1, 8, 8, 4] and [1, 8, 9, 4]"));
}

}  // namespace test_split_transposed
