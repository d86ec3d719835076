// Layers split over ranks against the undivided layer, bit by bit on integers.
#include "framework/layers/init.h"
#include "framework/ops/mixed_scale.h"
#include "framework/tensor/launch.h"
#include "tests/parallel/split_layers.h"

namespace test_split {

using namespace trireme;
using namespace trireme::test;

namespace {

Extents all(Index n) { return {n, n, n}; }

struct Case {
  Index extent, kernel, stride, dilation, pad;
  std::string text() const {
    return fmt::format("H {} kernel {} stride {} dilation {} pad {}", extent, kernel, stride, dilation, pad);
  }
  bool fits() const { return extent + 2 * pad >= dilation * (kernel - 1) + 1; }
  bool pools() const { return fits() && pad < dilation * (kernel - 1) + 1; }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (Index extent : {7, 14, 28, 57})
    for (Index kernel : {1, 3, 5, 7})
      for (Index stride : {1, 2})
        for (Index dilation : {1, 2, 10})
          for (Index pad : {Index{0}, kernel / 2, dilation * (kernel - 1) / 2, kernel + 1}) {
            const Case c{extent, kernel, stride, dilation, pad};
            if (c.fits()) all.push_back(c);
          }
  return all;
}

}  // namespace

TEST_CASE("what a window reads, by interval arithmetic") {
  const Window w{.size = 3, .stride = 2, .pad_begin = 1, .pad_end = 1};
  const Shape whole{1, 7, 1};
  const auto rows = [](Index begin, Index end) { return Box{{0, begin, 0}, {1, end - begin, 1}}; };
  const auto read = [&](Index begin, Index end) { return patch(rows(begin, end), rows(0, 7), {w}, whole); };
  CHECK(w.outputs(7) == 4);
  CHECK(outputs(whole, {w}) == Shape{1, 4, 1});
  CHECK(read(0, 2).inputs == rows(0, 4));
  CHECK(read(0, 2).before[0] == 1);
  CHECK(read(2, 4).inputs == rows(3, 7));
  CHECK(read(2, 4).extents == Shape{1, 4, 1});
  CHECK(read(2, 4).behind[0] == 1);
  CHECK(inner(rows(2, 4), rows(3, 7), {w}, whole) == rows(2, 4));
  CHECK(inner(rows(2, 4), rows(4, 7), {w}, whole) == rows(3, 4));
  CHECK(inner(rows(0, 2), rows(0, 3), {w}, whole) == rows(0, 1));
  CHECK(inner(rows(1, 2), rows(0, 1), {w}, whole).empty());
  // Outputs that read padding alone cover as many zeros as their windows.
  const Patch padding = patch(rows(0, 1), rows(0, 7), {{.size = 2, .pad_begin = 3}}, whole);
  CHECK(padding.inputs.empty());
  CHECK(padding.extents == Shape{1, 2, 1});
  // A halo may reach past the neighbour: 5 inputs of dilation 10 over shares of 7.
  const Window wide{.size = 5, .pad_begin = 20, .pad_end = 20, .dilation = 10};
  std::vector<Box> have, want;
  for (int r = 0; r < 4; ++r) {
    const auto [begin, end] = even_share(28, 4, r);
    have.push_back(rows(begin, end));
    want.push_back(patch(have.back(), have.back(), {wide}, {1, 28, 1}).inputs);
  }
  CHECK(route(have, want, 0).recvs.size() == 3);
  CHECK(even_share(7, 4, 0) == std::pair<Index, Index>{0, 1});
  CHECK(even_share(7, 4, 3) == std::pair<Index, Index>{5, 7});
  const auto pieces = around({{0, 0}, {4, 5}}, {{1, 2}, {2, 2}});
  Index cells = 0;
  for (auto& p : pieces) cells += p.size.numel();
  CHECK(pieces.size() == 4);
  CHECK(cells == 16);
}

TEST_CASE("convolution and pooling over split rows equal the undivided layer") {
  int compared = 0;
  for (int ranks : rank_counts({2, 3, 4}))
    compared += on_mesh({{"h", ranks}}, [&](Mesh& mesh) {
      const auto grid = grid_of(mesh);
      int done = 0;
      for (const Case& c : cases()) {
        const ConvOptions o{all(c.stride), {c.pad, c.kernel / 2, 0}, {c.pad, 0, 0}, {c.dilation, 1, 1}};
        const Shape filter{2, c.kernel, 2, 2};
        compare_layer(
            grid, {2, c.extent, 3, 2}, filter, over({{1, 0}}),
            [&](const Tensor& x, const Tensor& w) { return conv(x, w, {}, o); }, "conv " + c.text());
        ++done;
        if (!c.pools()) continue;
        const PoolOptions p{{c.kernel, 2, 1}, all(c.stride), {c.pad, 0, 0}, {c.pad, 1, 0}, {c.dilation, 1, 1}};
        compare_layer(
            grid, {2, c.extent, 3, 2}, {}, over({{1, 0}}),
            [&](const Tensor& x, const Tensor&) { return max_pool(x, p); }, "max_pool " + c.text());
        ++done;
        PoolOptions ceiled = p;  // whose padding follows from the whole extents
        ceiled.ceil_mode = true;
        compare_layer(
            grid, {2, c.extent, 3, 2}, {}, over({{1, 0}}),
            [&](const Tensor& x, const Tensor&) { return max_pool(x, ceiled); }, "max_pool, ceil, " + c.text());
        if (c.dilation > 1) continue;
        ceiled.count_padding = false;
        compare_layer(
            grid, {2, c.extent, 3, 2}, {}, over({{1, 0}}),
            [&](const Tensor& x, const Tensor&) { return avg_pool(x, ceiled); }, "avg_pool, ceil, " + c.text(), 1e-14);
        for (bool count : {true, false}) {
          // Of a power of two cells, so that shares of a gradient are exact; where padding is not counted, they are
          // not.
          PoolOptions mean = p;
          mean.window[0] = c.kernel > 5 ? 8 : c.kernel > 1 ? c.kernel - 1 : 1;
          if (c.pad >= mean.window[0] || c.extent + 2 * c.pad < mean.window[0]) continue;
          mean.count_padding = count;
          compare_layer(
              grid, {2, c.extent, 3, 2}, {}, over({{1, 0}}),
              [&](const Tensor& x, const Tensor&) { return avg_pool(x, mean); }, "avg_pool " + c.text(),
              count ? 0 : 1e-14);
          ++done;
        }
      }
      return done;
    });
  CHECK(compared >= 400);
}

TEST_CASE("grids of ranks over height, width and depth equal the undivided layer") {
  const std::vector<std::vector<Axis>> meshes = {
      {{"h", 2}, {"w", 2}}, {{"h", 3}, {"w", 2}}, {{"w", 4}}, {{"d", 2}, {"h", 2}}, {{"d", 2}, {"h", 2}, {"w", 2}}};
  int compared = 0;
  for (const auto& axes : meshes)
    compared += on_mesh(axes, [&](Mesh& mesh) {
      const auto grid = grid_of(mesh);
      const int d = grid->find("d"), h = grid->find("h"), w = grid->find("w");
      const Placements flat = over({{1, h}, {2, w}}), solid = over({{1, d}, {2, h}, {3, w}});
      int done = 0;
      for (Index kernel : {1, 3, 5})
        for (Index stride : {1, 2})
          for (Index dilation : {1, 3}) {
            const Case c{9, kernel, stride, dilation, dilation * (kernel - 1) / 2};
            const ConvOptions o{all(c.stride), all(c.pad), all(c.pad), all(c.dilation)};
            const PoolOptions p{all(c.kernel), all(c.stride), all(c.pad), all(c.pad), all(c.dilation)};
            if (d < 0) {
              compare_layer(
                  grid, {2, 9, 8, 2}, {3, kernel, kernel, 2}, flat,
                  [&](const Tensor& x, const Tensor& f) { return conv(x, f, {}, o); }, "2-D " + c.text());
              compare_layer(
                  grid, {2, 9, 8, 2}, {}, flat, [&](const Tensor& x, const Tensor&) { return max_pool(x, p); },
                  "2-D pool " + c.text());
            }
            compare_layer(
                grid, {2, 9, 8, 7, 1}, {2, kernel, kernel, kernel, 1}, solid,
                [&](const Tensor& x, const Tensor& f) { return conv(x, f, {}, o); }, "3-D " + c.text());
            compare_layer(
                grid, {2, 9, 8, 7, 1}, {}, solid, [&](const Tensor& x, const Tensor&) { return max_pool(x, p); },
                "3-D pool " + c.text());
            done += 2;
          }
      return done;
    });
  CHECK((under_mpi() || compared >= 100));
}

TEST_CASE("ops on a split image equal the whole: elementwise, dropout, global pooling, flatten") {
  for (int ranks : rank_counts({2, 3})) {
    const int compared = on_mesh({{"h", ranks}}, [&](Mesh& mesh) {
      const auto grid = grid_of(mesh);
      Shape shape{3, 7, 5, 3};
      int done = 0;
      const auto each = [&](const char* what, const std::function<Tensor(const Tensor&)>& layer) {
        done += 3;
        compare_layer(
            grid, shape, {}, over({{1, 0}}), [&](const Tensor& x, const Tensor&) { return layer(x); }, what);
        compare_layer(
            grid, shape, {}, over({{2, 0}}), [&](const Tensor& x, const Tensor&) { return layer(x); }, what);
        compare_layer(
            grid, shape, {}, over({{3, 0}}), [&](const Tensor& x, const Tensor&) { return layer(x); }, what);
      };
      for (Index rows : {3, 0}) {  // a micro-batch of a short batch may have none
        shape[0] = rows;
        each("relu", relu);
        each("skip", [](const Tensor& x) { return add(relu(x), x); });
        each("gate", [](const Tensor& x) { return mul(x, scale(x, 2)); });
        each("scaled by channel", [](const Tensor& x) { return mul(x, Tensor::of({{1, 2, 3}}, {3}, DType::f64)); });
        each("scaled by channel, from the left", [](const Tensor& x) {
          return mul(Tensor::of({{1, 2, 3}}, {3}, DType::f64), x);
        });
        each("dropout", [](const Tensor& x) {
          const StepScope first_call(StepContext{});  // so that the whole and the parts draw one mask
          return dropout(x, 0.5, 17);
        });
        each("flatten", flatten);
        each("global max", global_max_pool);
        each("adaptive max", [](const Tensor& x) { return adaptive_max_pool(x, {1, 1}); });
        each("global mean", [](const Tensor& x) { return scale(global_avg_pool(scale(x, 35)), 1); });
        // Squeeze and excite: a gate that all ranks compute from the whole, used by each on its own rows.
        each("excite", [](const Tensor& x) {
          return mul(x, conv(max_pool(x, {.window = {7, 5, 1}}), integers({3, 1, 1, 3}, 5)));
        });
      }
      return done;
    });
    CHECK(compared > 0);
  }
}

TEST_CASE("masks of a dimension of two ranges are the whole's") {
  for (int ranks : rank_counts({2, 3}))
    CHECK_NOTHROW(on_mesh({{"tensor", ranks}}, [&](Mesh& mesh) {
      const Tensor x = integers({3, 18}, 1);
      const ShardSpec::Ptr spec =
          ShardSpec::make(grid_of(mesh), x.shape(), over({{1, 0}}), {.ranges = {{12, 2}, {6}}}, 1);
      const auto masked = [](const Tensor& t) {
        const StepScope first_call(StepContext{});
        return dropout(t, 0.5, 17);
      };
      same(gathered(masked(relayout(x, *spec))), masked(x), "dropout");
      return 1;
    }));
}

TEST_CASE("a tensor that ops read beside parts along several axes gets the sum of their gradients") {
  const auto compare = [](const std::shared_ptr<const Grid>& grid, Tensor (*op)(const Tensor&, const Tensor&)) {
    const auto run = [&](bool divided) {
      std::vector<Tensor> leaves{integers({1, 3}, 1), integers({2, 3}, 2), integers({2, 3}, 3)};
      for (Tensor& t : leaves) t.require_grad();
      const auto laid = [&](const Tensor& t, int axis) {
        return divided ? relayout(t, *ShardSpec::make(grid, t.shape(), over({{0, axis}}))) : t;
      };
      // Parts of one row: the gradient of a sum's operands is one tensor.
      const Tensor shared = scale(leaves[0], 2), a = scale(laid(leaves[1], 0), 3), b = scale(laid(leaves[2], 1), 5);
      const Tensor y = add(gathered(op(shared, a)), gathered(op(shared, b)));
      y.backward(integers(y.shape(), 4));
      return leaves;
    };
    const auto parts = run(true), whole = run(false);
    for (std::size_t i = 0; i < whole.size(); ++i)
      same(parts[i].grad(), whole[i].grad(), "gradient " + std::to_string(i));
  };
  CHECK_NOTHROW(on_mesh({{"data", 2}, {"tensor", 2}}, [&](Mesh& mesh) {
    compare(grid_of(mesh), add);
    compare(grid_of(mesh), mul);
    return 1;
  }));
}

namespace {

/// A grid that lists its sums, messages and waits, with the products between them.
class ListingMesh final : public RankMesh {
 public:
  ListingMesh(std::shared_ptr<const Grid> grid, bool sequence)
      : RankMesh({{grid->name(0), grid->size(0), grid->index(0)}},
                 {.summed = sequence ? 1u : 0u, .sequence = sequence ? 1u : 0u}),
        grid_(std::move(grid)) {}
  Wait start_sum(const View& x, AxisMask axes) const override {
    return axes == 0 ? Wait([] {}) : listed("sum", grid_->start_sum(x, axes));
  }
  Wait send(const Tensor& x, int rank) const override { return listed("send", grid_->send(x, rank)); }
  Wait recv(const Tensor& into, int rank) const override { return listed("receive", grid_->recv(into, rank)); }
  std::shared_ptr<const NormRanks> norm_ranks(AxisMask axes, std::shared_ptr<const NormRanks> outer) const override {
    return grid_->norm_ranks(axes, std::move(outer));
  }
  void list(const std::string& what) const {
    if (events_.empty() || events_.back() != what) events_.push_back(what);
  }
  std::vector<std::string> taken() const { return std::exchange(events_, {}); }

 private:
  Wait listed(const std::string& what, Wait wait) const {
    list(what);
    return [this, wait = std::move(wait)] {
      list("wait");
      wait();
    };
  }
  std::shared_ptr<const Grid> grid_;
  mutable std::vector<std::string> events_;  // without repetitions
};

/// Two products that read one tensor, and a product of their result, as in Llama's MLP under tensor parallelism. x [2,
/// 10, 12]. The gradients of x and the three weights; later: those of weights come after the whole backward.
std::vector<Tensor> mlp_gradients(const std::shared_ptr<const ListingMesh>& mesh, DType type, Device device,
                                  bool later) {
  const auto numbers = [&](const Shape& shape, std::uint64_t seed, const Box& box, DType as) {
    return trireme::test::cut(normal(shape, 0, 1, seed).to(as), box).to(device).require_grad();
  };
  const Shape shape{2, 10, 12};
  const ShardSpec::Ptr tokens = ShardSpec::make(mesh, shape, mesh->sequence() ? over({{1, 0}}) : Placements{});
  std::vector<Tensor> leaves{numbers(shape, 1, tokens->box(), type)}, weights;
  for (const auto& [of, dim] : std::vector<std::pair<Shape, int>>{{{14, 12}, 0}, {{14, 12}, 0}, {{12, 14}, 1}}) {
    const ShardSpec::Ptr spec = ShardSpec::of_weight(mesh, of, over({{dim, 0}}));
    leaves.push_back(numbers(of, 1 + leaves.size(), spec->box(), type == DType::bf16 ? DType::f32 : type));
    weights.push_back(leaves.back().with_shard_spec(spec));
  }
  const Tensor x = scale(mesh->sequence() ? leaves[0].with_shard_spec(tokens) : leaves[0], 0.5);  // no leaf: one copy
  const Tensor y = linear(mul(linear(x, weights[0]), linear(x, weights[1])), weights[2]);
  const Tensor dy = numbers(shape, 7, tokens->box(), type).detach();
  (void)mesh->taken();
  {
    const LaunchWatch products(
        [&](const LaunchWatch::Call& call) {
          if (const std::string op = call.op; op.starts_with("linear_backward_")) mesh->list(op.substr(16));
        },
        LaunchWatch::Mode::untimed);
    Deferred halves;
    backward({&y, 1}, {&dy, 1}, {.defer_weights = later ? &halves : nullptr});
    halves.run();
  }
  std::vector<Tensor> gradients;
  for (const Tensor& t : leaves) gradients.push_back(t.grad());
  return gradients;
}

}  // namespace

TEST_CASE("the sum of an input's gradient travels while a weight's gradient is computed, with the same bits",
          "[device]") {
  using Events = std::vector<std::string>;
  for (const int ranks : rank_counts({2, 3, 4}))
    for (const bool sequence : {false, true})
      for (const DType type : {DType::f64, DType::f32, DType::bf16})
        CHECK_NOTHROW(on_mesh({{"tensor", ranks}}, [&](Mesh& axes) {
          const auto mesh = std::make_shared<const ListingMesh>(grid_of(axes), sequence);
          const auto at_once = mlp_gradients(mesh, type, test_device(axes.world()), false);
          Events expected{"input", "weight", "input", "weight", "input", "sum", "weight", "wait"};
          if (sequence)  // gathers dy; scatters dx
            expected = {"receive", "send",  "wait",    "input", "weight", "input",
                        "weight",  "input", "receive", "send",  "weight", "wait"};
          if (sequence && test_device(axes.world()).kind == DeviceKind::cpu)
            expected = {"receive", "send",  "wait",   "input",   "weight", "input",
                        "weight",  "input", "weight", "receive", "send",   "wait"};
          const Events listed = mesh->taken();
          check(listed == expected, "test", "{}", fmt::join(listed, " "));
          const auto later = mlp_gradients(mesh, type, test_device(axes.world()), true);
          for (std::size_t i = 0; i < later.size(); ++i)
            same(at_once[i], later[i], fmt::format("gradient {} of {} ranks, {}", i, ranks, type));
          return 1;
        }));
}

TEST_CASE("ranks that have unequal numbers of groups have whole groups of queries") {
  CHECK_NOTHROW(on_mesh({{"tensor", 3}}, [](Mesh& mesh) {
    Tensor whole = uniform({2, 5, 16, 4}, -1, 1, 1, DType::f64), parts = whole.clone();
    whole.require_grad();
    parts.require_grad();
    const ShardSpec::Ptr spec = ShardSpec::make(grid_of(mesh), whole.shape(), over({{2, 0}}));
    const Tensor y = attention_packed(whole, 8, 4), dy = integers(y.shape(), 2);
    const Tensor z = gathered(attention_packed(relayout(parts, *spec), 8, 4));
    same(z, y, "attention", 1e-12);
    y.backward(dy);
    z.backward(dy);
    same(parts.grad(), whole.grad(), "gradient", 1e-12);
    return 1;
  }));
}

namespace {

/// A stack of layers: random extents, depths, widths and dilations, those beyond a rank's part and the image among
/// them.
struct Stack {
  Shape x;
  std::vector<Shape> filters;
  std::vector<Index> dilations;
};
Stack draw_stack(std::uint64_t seed, int dims, int least) {
  std::uint64_t draws = 0;
  const auto pick = [&](Index from, Index to) {
    return from + static_cast<Index>(test::mix(seed * 1009 + ++draws) % static_cast<std::uint64_t>(to - from + 1));
  };
  Stack s{{pick(1, 2)}, {}, {}};
  for (int d = 0; d < dims; ++d) s.x.push_back(pick(least, dims == 2 ? 17 : 9));
  Index channels = pick(1, 3);
  s.x.push_back(channels);
  for (Index i = pick(1, 5); i > 0; --i) {
    Shape filter{pick(1, 2)};
    for (int d = 0; d < dims; ++d) filter.push_back(3);
    filter.push_back(channels);
    channels += filter[0];
    s.filters.push_back(filter);
    s.dilations.push_back(pick(0, 1) ? pick(1, 3) : pick(1, 10));
  }
  return s;
}

/// The stack whole and over ranks: the same bits of outputs and gradients of x, of whole numbers or not; of weights'
/// gradients up to what the order of the sums rounds.
void compare_stack(const std::shared_ptr<const Grid>& grid, const Stack& s, const Placements& layout, bool whole) {
  const auto numbers = [&](const Shape& shape, std::uint64_t seed) {
    return whole ? integers(shape, seed) : uniform(shape, -0.5, 0.5, seed, DType::f64);
  };
  const auto run = [&](const Tensor& x, std::vector<Tensor>& w, std::vector<Tensor>& b) {
    w.clear();
    b.clear();
    for (std::size_t i = 0; i < s.filters.size(); ++i) {
      w.push_back(numbers(s.filters[i], 10 + i).require_grad());
      b.push_back(numbers({s.filters[i][0]}, 30 + i).require_grad());
    }
    return mixed_scale_dense(x, w, b, s.dilations);
  };
  const std::string what = "mixed_scale_dense of " + to_string(s.x) + (whole ? ", whole numbers" : "");
  std::vector<Tensor> w, b, w2, b2;
  Tensor x = numbers(s.x, 1), x2 = numbers(s.x, 1);
  const Tensor y = run(x.require_grad(), w, b), dy = numbers(y.shape(), 3);
  y.backward(dy);
  const Tensor part = run(relayout(x2.require_grad(), *ShardSpec::make(grid, s.x, layout)), w2, b2);
  const ShardSpec::Ptr out = spec_of(part, *ShardSpec::make(grid, s.x, layout));
  same(part, cut(y, out->box()), what + ": output");
  part.backward(cut(dy, out->box()));
  same(x2.grad(), x.grad(), what + ": input gradient");
  for (std::size_t i = 0; i < w.size(); ++i)
    for (const auto& [one, all] : {std::pair{w2[i], w[i]}, {b2[i], b[i]}})
      same(one.grad(), all.grad(), what + ": weight gradient",
           whole ? 0 : 1e-11 * (1 + trireme::max(trireme::abs(all.grad())).item()));
}

}  // namespace

TEST_CASE("mixed-scale dense layers over ranks have the bits of the whole") {
  const std::vector<std::vector<Axis>> meshes = {{{"h", 2}},           {{"h", 3}},           {{"w", 4}},
                                                 {{"h", 2}, {"w", 2}}, {{"d", 2}, {"h", 2}}, {{"d", 3}}};
  int compared = 0;
  for (const auto& axes : meshes)
    compared += on_mesh(axes, [&](Mesh& mesh) {
      const auto grid = grid_of(mesh);
      const int d = grid->find("d"), h = grid->find("h"), w = grid->find("w");
      for (std::uint64_t i = 0; i < 8; ++i) {
        const bool solid = d >= 0 || i % 2 == 0;
        const Stack s = draw_stack(i + 100 * static_cast<std::uint64_t>(mesh.axes()[0].size), solid ? 3 : 2, 4);
        Placements layout;
        if (d >= 0) layout = layout.with(1, 1u << d);
        if (h >= 0) layout = layout.with(solid ? 2 : 1, 1u << h);
        if (w >= 0) layout = layout.with(solid ? 3 : 2, 1u << w);
        compare_stack(grid, s, layout, i % 4 < 2);
      }
      if (d < 0) {  // deep, as the paper's
        Stack deep{{1, 13, 17, 1}, {}, {}};
        for (Index i = 0; i < 100; ++i) {
          deep.filters.push_back({1, 3, 3, 1 + i});
          deep.dilations.push_back(i % 10 + 1);
        }
        Placements layout;
        if (h >= 0) layout = layout.with(1, 1u << h);
        if (w >= 0) layout = layout.with(2, 1u << w);
        compare_stack(grid, deep, layout, false);
      }
      return 8;
    });
  CHECK((under_mpi() || compared >= 48));
}

TEST_CASE("ops along axes that are whole on each rank equal the whole, on parts along others") {
  on_mesh({{"h", rank_counts({2})[0]}}, [&](Mesh& mesh) {
    const auto grid = grid_of(mesh);
    const auto each = [&](const char* what, int divided, auto&& layer, double tolerance = 0) {
      compare_layer(
          grid, {3, 8, 6, 4}, {}, over({{divided, 0}}), [&](const Tensor& x, const Tensor&) { return layer(x); }, what,
          tolerance);
    };
    each("cumsum", 1, [](const Tensor& x) { return cumsum(x, 2); });
    each("cumsum of channels", 2, [](const Tensor& x) { return cumsum(x, -1); });
    each(
        "softmax", 1, [](const Tensor& x) { return softmax(x); }, 1e-14);
    each("clone", 1, [](const Tensor& x) { return x.clone() + x; });
    for (const int divided : {1, 3}) {
      const Tensor slopes = Tensor::of({{2, 1, 0, 3}}, {4}, DType::f64);
      each("prelu", divided, [&](const Tensor& x) { return prelu(x, slopes); });
      each("channel dropout", divided, [](const Tensor& x) {
        const StepScope first_call(StepContext{});  // so that the whole and the parts draw one mask
        return channel_dropout(x, 0.5, 17);
      });
      each("row dropout", divided, [](const Tensor& x) {
        const StepScope first_call(StepContext{});
        return row_dropout(x, 0.5, 17);
      });
    }
    return 1;
  });
  SUCCEED("compare_layer throws");
}

TEST_CASE("extents that may be a part's or the whole's are refused") {
  on_mesh({{"h", rank_counts({2})[0]}}, [&](Mesh& mesh) {
    const Tensor x = integers({2, 8, 4, 2}, 1);
    const Tensor part = relayout(x, *ShardSpec::make(grid_of(mesh), x.shape(), over({{1, 0}})));
    CHECK_ERROR(part.reshape({part.dim(0), part.dim(1), -1}), usage, "reshape", "[2, 8, 4, 2]");
    // An operand as large as this rank's part does not broadcast to the whole.
    if (part.dim(1) > 1) CHECK_ERROR(part * Tensor::full({part.dim(1), 1, 1}, 2, DType::f64), usage, "[2, 8, 4, 2]");
    return 1;
  });
}

TEST_CASE("an op without a rule refuses a part of a tensor") {
  CHECK_ERROR(on_mesh({{"h", rank_counts({2})[0]}},
                      [&](Mesh& mesh) {
                        Tensor x = integers({2, 8, 4, 2}, 1);
                        x.require_grad();
                        const Tensor part = relayout(x, *ShardSpec::make(grid_of(mesh), x.shape(), over({{1, 0}})));
                        const Tensor y = record("own_op", Tensor::zeros(part.shape(), part.dtype()), {part},
                                                [](const Tensor&, Gradients&) {});
                        return static_cast<int>(y.rank());
                      }),
              usage, "own_op", "[2, 8, 4, 2]");
}

}  // namespace test_split
