// Every op of the op table, with each operand divided over ranks along each of its dimensions: values and gradients are
// those of the whole tensors, or the op refuses. Rules that no op of the table has are tried, too.
#include <array>
#include <limits>
#include <optional>

#include "framework/ops/place.h"
#include "tests/framework/case_outcome.h"
#include "tests/parallel/split_layers.h"

namespace test_placed_ops {
using namespace trireme;
using namespace trireme::test;

/// How the operands of a case lie: of each mesh axis the operand that it divides, and the dimension.
struct Division {
  std::vector<std::pair<std::size_t, int>> over;
  bool as_weights = false;  ///< operands without rows are weights
  Index rows = -1;          ///< >= 0: replaces the count of samples
};

std::string text(const Case& c, const Division& d) {
  std::string all = c.name;
  for (const auto& [operand, dim] : d.over) all += fmt::format(", operand {} along {}", operand, dim);
  return all + (d.as_weights ? ", weights" : "") + (d.rows == 0 ? ", no rows" : "");
}

/// Runs a case with divided operands. Each rank compares the whole result and the gradients of the whole operands.
void compare_divided(const std::shared_ptr<const Grid>& grid, const Case& c, const Division& d) {
  const CaseOutcome serial = outcome(c, DType::f64, -1, d.rows);
  const StepScope scope(a_pass(d.rows >= 0 ? d.rows : rows_of(c)));
  Inputs leaves = draw(c, DType::f64, d.rows), x = leaves;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!x[i]) continue;
    if (c.inputs[i].grad) leaves[i].require_grad();
    Placements placements;
    for (std::size_t axis = 0; axis < d.over.size(); ++axis)
      if (d.over[axis].first == i) placements.dims[axis] = static_cast<std::int8_t>(d.over[axis].second);
    const bool weight = d.as_weights && !c.inputs[i].rows;
    x[i] = leaves[i];
    if (placements.axes() != 0)
      x[i] = relayout(leaves[i], weight ? *ShardSpec::of_weight(grid, leaves[i].shape(), placements)
                                        : *ShardSpec::make(grid, leaves[i].shape(), placements));
  }
  leave_nan();
  const Tensor y = gathered(c.op(x));
  const auto close = [&](const Values& a, const Values& b, const std::string& what) {
    check(a.size() == b.size(), "placed", "{}: {} has {} elements instead of {}", text(c, d), what, a.size(), b.size());
    double most = 0;
    for (const double v : b)
      if (std::isfinite(v)) most = std::max(most, std::abs(v));
    for (std::size_t i = 0; i < a.size(); ++i)
      check(std::abs(a[i] - b[i]) <= 1e-11 * (most + 1e-3) || (std::isnan(a[i]) && std::isnan(b[i])) || a[i] == b[i],
            "placed", "{}: element {} of {} is {} instead of {}", text(c, d), i, what, a[i], b[i]);
  };
  check(y.shape() == serial.shape, "placed", "{}: the result is {} instead of {}", text(c, d), y.shape(), serial.shape);
  close(y.to_vector(), serial.y, "the result");
  check(y.requires_grad() == serial.differentiable, "placed", "{}: the result is {}recorded", text(c, d),
        serial.differentiable ? "not " : "");
  if (!serial.differentiable) return;
  y.backward(seed_for(y));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const bool reached = leaves[i] && leaves[i].requires_grad() && has_grad(leaves[i]);
    close(reached ? leaves[i].grad().to_vector() : Values{}, serial.dx[i], "gradient " + std::to_string(i));
  }
}

/// Runs a case on a mesh, one operand and dimension divided by each axis.
void run_divisions(const std::vector<Axis>& axes, const std::vector<std::pair<const Case*, Division>>& all) {
  for (const auto& [c, d] : all) {
    try {
      on_mesh(axes, [&](Mesh& mesh) {
        compare_divided(grid_of(mesh), *c, d);
        return 1;
      });
    } catch (const Error& e) {
      INFO(text(*c, d) << ": " << e.what());
      // An extent of -1 that may be a part's or the whole's; running statistics that lie otherwise than the weights.
      const bool refuses = c->name == "reshape" || c->name.starts_with("batch_norm");
      CHECK(
          (refuses && e.kind() == ErrorKind::usage && std::string_view(e.what()).find("placed") == std::string::npos));
    }
  }
}

/// All divisions of the floating operands of the cases into shares for `ranks`.
std::vector<std::pair<const Case*, Division>> divisions(int ranks, Index samples = -1) {
  std::vector<std::pair<const Case*, Division>> all;
  for (const Case& c : cases())
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      for (int d = 0; d < c.inputs[i].shape.rank(); ++d) {
        const bool rows = c.inputs[i].rows && d == 0;
        if (c.inputs[i].shape[d] < ranks || rows) continue;
        for (const bool as_weights : {false, true})
          if (!as_weights || !c.inputs[i].rows) all.push_back({&c, {{{i, d}}, as_weights, samples}});
      }
  return all;
}

TEST_CASE("ops on operands that ranks divide equal the ops on whole ones") {
  if (threads_only()) return;
  for (const int ranks : brief() ? std::vector<int>{3} : std::vector<int>{2, 3})
    run_divisions({{"tensor", ranks}}, divisions(ranks));
}

TEST_CASE("ranks without rows run ops on operands that they divide") {
  if (threads_only()) return;
  run_divisions({{"tensor", 2}}, divisions(2, 0));
}

namespace {

using Op = std::function<Tensor(const Tensor&, const Tensor&)>;

/// op(x, w) of tensors that lie as given equals op of whole ones to the bit: result and gradients. Returns this rank's
/// block of the result, divided or whole.
Tensor compare_laid(const ShardSpec::Ptr& of_x, const ShardSpec::Ptr& of_w, const Op& op) {
  std::vector<Tensor> grads;
  Tensor whole, block;
  for (const bool divided : {false, true}) {
    Tensor x = integers(of_x->global_shape(), 1), w = integers(of_w->global_shape(), 2);
    x.require_grad();
    w.require_grad();
    const Tensor y = divided ? op(relayout(x, *of_x), relayout(w, *of_w)) : op(x, w), all = gathered(y);
    all.backward(integers(all.shape(), 3));
    if (divided) same(all, whole, "result");
    whole = all.detach();
    block = y;
    grads.push_back(x.grad().clone());
    grads.push_back(w.grad().clone());
  }
  same(grads[2], grads[0], "gradient of x");
  same(grads[3], grads[1], "gradient of w");
  return block;
}

Tensor product(const Tensor& x, const Tensor& w) { return linear(x, w); }

/// x [n, g * c] summed over g, times w [c].
Tensor sum_of_groups(const Tensor& x, const Tensor& w) {
  if (ops::is_divided({&x, &w})) {
    const ops::Placed p = ops::place({.op = "sum_of_groups", .dims = "n (g c), c -> n c", .sums = "g"}, {x, w}, {},
                                     {{'c', w.global_shape()[0]}});
    return p.put(sum_of_groups(p[0], p[1]));
  }
  const Index c = w.dim(0);
  return sum(x.reshape({x.dim(0), x.dim(1) / c, c}), {1}) * w;
}

}  // namespace

TEST_CASE("a factor that another operand has within a dimension stays whole") {
  CHECK_NOTHROW(on_mesh({{"tensor", 2}}, [](Mesh& mesh) {
    const auto grid = grid_of(mesh);
    const auto x = [&](const Placements& p) { return ShardSpec::make(grid, {3, 12}, p); };
    const auto w = [&](const Placements& p) { return ShardSpec::of_weight(grid, {4}, p); };
    compare_laid(x({}), w(over({{0, 0}})), sum_of_groups);
    compare_laid(x(over({{1, 0}})), w({}), sum_of_groups);
    compare_laid(x(over({{1, 0}})), w(over({{0, 0}})), sum_of_groups);
    return 1;
  }));
}

TEST_CASE("a divided weight decides what ranks divide, however large the input is") {
  CHECK_NOTHROW(on_mesh({{"tensor", 2}}, [](Mesh& mesh) {
    const auto grid = grid_of(mesh);
    const Tensor y = compare_laid(ShardSpec::make(grid, {64, 6}, over({{0, 0}})),
                                  ShardSpec::of_weight(grid, {4, 6}, over({{0, 0}})), product);
    check(y.shape() == Shape{64, 2}, "test", "the block is {}", y.shape());
    return 1;
  }));
}

TEST_CASE("each of the ranks along two axes has a part, whatever the units") {
  CHECK_NOTHROW(on_mesh({{"a", 2}, {"b", 2}}, [](Mesh& mesh) {
    const auto grid = grid_of(mesh);
    const Tensor y =
        compare_laid(ShardSpec::make(grid, {3, 6}, {}),
                     ShardSpec::of_weight(grid, {8, 6}, over({{0, 0}}).with(0, 3), {.ranges = {{8, 4}}}), product);
    check(y.shape() == Shape{3, 2}, "test", "the block is {}", y.shape());
    return 1;
  }));
}

TEST_CASE("the first of several axes cuts a dimension into the largest pieces") {
  CHECK_NOTHROW(on_mesh({{"a", 2}, {"b", 3}}, [](Mesh& mesh) {
    const ShardSpec::Ptr spec = ShardSpec::make(grid_of(mesh), {12}, Placements().with(0, 3));
    check(spec->box({1, 0}).at[0] == 6 && spec->box({0, 1}).at[0] == 2, "test", "the pieces begin at {} and {}",
          spec->box({1, 0}).at, spec->box({0, 1}).at);
    return 1;
  }));
}

TEST_CASE("a divided weight has room for the largest block, and no sum over its own axis") {
  CHECK_NOTHROW(on_mesh({{"part", 2}}, [](Mesh& mesh) {
    const auto grid =
        std::make_shared<const Grid>(mesh, std::vector<std::string>{"part"}, std::vector<std::string>{"part"});
    const ShardSpec::Ptr copies = ShardSpec::of_weight(grid, {5}, {}),
                         parts = ShardSpec::of_weight(grid, {5}, over({{0, 0}}));
    check(copies->summed() == 1 && copies->max_local_numel() == 5, "test", "copies are not summed");
    check(parts->summed() == 0 && parts->max_local_numel() == 3, "test", "parts are summed over {}, room is {}",
          parts->summed(), parts->max_local_numel());
    return 1;
  }));
}

TEST_CASE("operands that are each divided into uneven shares") {
  CHECK_NOTHROW(on_mesh({{"rows", 2}, {"tensor", 2}}, [](Mesh& mesh) {
    const auto grid = grid_of(mesh);
    compare_laid(ShardSpec::make(grid, {4, 6}, over({{0, 0}}), {.borders = {0, 1, 4}}),
                 ShardSpec::of_weight(grid, {9, 6}, over({{0, 1}}), {.ranges = {{9, 3}}}), product);
    compare_laid(ShardSpec::make(grid, {4, 6}, over({{1, 0}}), {.borders = {0, 1, 6}}, 1),
                 ShardSpec::of_weight(grid, {9, 6}, over({{0, 1}}), {.ranges = {{9, 3}}}), product);
    return 1;
  }));
}

/// Attention of tokens that ranks divide: the largest deviations of the result, dq, dk and dv from those of one rank,
/// which computes in another type if one is given.
std::array<double, 4> context_deviations(Mesh& mesh, ContextMode mode, ContextCut cut, DType type, Index groups,
                                         const AttentionOptions& o, std::optional<DType> exact = {},
                                         const Tensor& ids = {}) {
  const std::vector<std::string> axes{"context"};
  const auto grid = std::make_shared<const Grid>(
      mesh, axes, axes, Grid::Roles{.context = "context", .context_mode = mode, .context_cut = cut});
  std::array<Tensor, 3> whole, leaves;
  for (std::size_t i = 0; i < 3; ++i) {
    const Shape shape{2, 10, i == 0 ? 6 : groups, 8};
    leaves[i] = normal(shape, 0, 1, i + 1).to(type);
    whole[i] = leaves[i].clone().to(exact.value_or(type));
    whole[i].require_grad();
    leaves[i].require_grad();
  }
  const Tensor lengths = Tensor::of({{10, 7}}, {2}, DType::i64), seed = normal({2, 10, 6, 8}, 0, 1, 9).to(type);
  const auto lie = [&](const Tensor& x) { return relayout(x, *ShardSpec::make(grid, x.shape(), over({{1, 0}}))); };
  const auto attend = [&](const auto& at, const Tensor& text) {  // dropout counts the calls of a pass
    const StepScope scope(a_pass(2));
    const Tensor first = text ? document_starts(text, 0) : Tensor();
    return gathered(attention(at(0), at(1), at(2), o, lengths, {}, first));
  };
  const Tensor y = attend([&](std::size_t i) { return whole[i]; }, ids),
               got = attend([&](std::size_t i) { return lie(leaves[i]); }, ids ? lie(ids) : ids);
  y.backward(seed.to(y.dtype()));
  leave_nan();
  got.backward(seed);
  std::array<double, 4> most{};
  const auto compare = [&](std::size_t i, const Tensor& a, const Tensor& b) {
    const auto x = a.to_vector(), z = b.to_vector();
    for (std::size_t k = 0; k < x.size(); ++k) most[i] = std::max(most[i], std::abs(x[k] - z[k]));
  };
  compare(0, got, y);
  for (std::size_t i = 0; i < 3; ++i) compare(i + 1, leaves[i].grad(), whole[i].grad());
  return most;
}

namespace {
/// Compares attention in each mode with one rank's: results of gather and ulysses that must have its bits, others to
/// the bar.
void judge_modes(Mesh& mesh, ContextCut cut, DType type, Index groups, const AttentionOptions& o,
                 const Tensor& documents = {}) {
  const int ranks = mesh.size("context");
  const double bar = type == DType::f64 ? 1e-14 : 4e-6;
  const auto judge = [&](ContextMode mode, std::size_t exact) {
    const auto most = context_deviations(mesh, mode, cut, type, groups, o, {}, documents);
    for (std::size_t i = 0; i < 4; ++i)
      check(most[i] <= (i < exact ? 0 : bar), "test", "{} {} of {} ranks, {} groups: result {} deviates by {}",
            to_string(mode), to_string(cut), ranks, groups, i, most[i]);
  };
  judge(ContextMode::gather, 2);
  if (ranks <= 6) judge(ContextMode::ulysses, ranks <= groups ? 4 : 2);
  judge(ContextMode::ring, 0);
}
}  // namespace

TEST_CASE("attention of divided tokens has the bits of one rank, or is as near in a ring of any length") {
  for (const int ranks : {2, 3, 5, 7})
    for (const Index groups : {6, 2, 1})
      for (const DType type : {DType::f64, DType::f32})
        CHECK_NOTHROW(on_mesh({{"context", ranks}}, [&](Mesh& mesh) {
          for (const AttentionOptions& o :
               {AttentionOptions{}, AttentionOptions{.causal = true}, AttentionOptions{.causal = true, .alibi = true},
                AttentionOptions{.causal = true, .dropout = 0.3}, AttentionOptions{.causal = true, .window = 3}})
            for (const ContextCut cut : {ContextCut::contiguous, ContextCut::zigzag, ContextCut::striped})
              judge_modes(mesh, cut, type, groups, o);
          return 1;
        }));
}

TEST_CASE("attention inside documents has the bits of one rank, wherever these begin") {
  // Separators: first, last, of documents of one token, none, and in different places of the samples.
  std::vector<std::vector<double>> texts{{0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                         {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0}};
  std::mt19937_64 draws(5);
  texts.emplace_back();
  for (int i = 0; i < 20; ++i) texts.back().push_back(static_cast<double>(draws() % 4));
  for (const int ranks : {2, 3, 5, 7})
    for (const Index groups : {6, 2, 1})
      CHECK_NOTHROW(on_mesh({{"context", ranks}}, [&](Mesh& mesh) {
        for (const auto& text : texts)
          for (const AttentionOptions& o :
               {AttentionOptions{.causal = true}, AttentionOptions{.causal = true, .dropout = 0.3, .alibi = true},
                AttentionOptions{.causal = true, .window = 3}})
            for (const ContextCut cut : {ContextCut::contiguous, ContextCut::zigzag, ContextCut::striped})
              judge_modes(mesh, cut, DType::f64, groups, o, Tensor::of(text, {2, 10}, DType::i64));
        return 1;
      }));
}

TEST_CASE("heads that ranks divide attend inside documents") {
  CHECK_NOTHROW(on_mesh({{"rows", 2}, {"tensor", 2}}, [](Mesh& mesh) {
    const auto grid = grid_of(mesh);
    const AttentionOptions causal{.causal = true};
    for (const Index groups : {1, 2}) {
      const Index heads = 4 + 2 * groups;
      const Tensor x = uniform({4, 6, heads, 4}, -1, 1, 1, DType::f64),
                   ids = remainder(integers({4, 6}, 3), 3).to(DType::i64);
      for (const Placements& lies :
           {over({{2, 1}}), over({{0, 0}, {2, 1}}), over({{1, 0}, {2, 1}}), over({{0, 0}, {1, 1}})}) {
        const auto attend = [&](const Tensor& qkv, const Tensor& text) {
          return gathered(attention_packed(qkv, 4, groups, causal, {}, document_starts(text, 0)));
        };
        Tensor whole = x.clone().require_grad(), parts = x.clone().require_grad();
        const Tensor y = attend(whole, ids), dy = integers(y.shape(), 2);
        const Tensor z = attend(relayout(parts, *ShardSpec::make(grid, x.shape(), lies)), ids);
        same(z, y, "result", 1e-12);
        y.backward(dy);
        z.backward(dy);
        same(parts.grad(), whole.grad(), "gradient", 1e-12);
      }
    }
    return 1;
  }));
}

/// Of each rank: the tokens that it has, ascending.
std::vector<std::vector<Index>> tokens_of_ranks(Mesh& mesh, ContextCut cut, Index tokens) {
  const std::vector<std::string> axes{"context"};
  const auto grid =
      std::make_shared<const Grid>(mesh, axes, axes, Grid::Roles{.context = "context", .context_cut = cut});
  const ShardSpec::Ptr spec = ShardSpec::make(grid, {2, tokens}, over({{1, 0}}));
  std::vector<std::vector<Index>> all;
  for (const auto& place : grid->line(1).at) {
    all.emplace_back();
    for (const auto& [begin, end] : spec->runs(1, place))
      for (Index i = begin; i < end; ++i) all.back().push_back(i);
    check(std::ssize(all.back()) == spec->block(place)[1], "test", "a block of {}", spec->block(place));
  }
  return all;
}

TEST_CASE("each token is on one rank, no rank is without, and a zig-zag is equal work") {
  if (threads_only()) return;
  for (const int ranks : {2, 3, 4, 7})
    CHECK_NOTHROW(on_mesh({{"context", ranks}}, [&](Mesh& mesh) {
      for (const ContextCut cut : {ContextCut::contiguous, ContextCut::zigzag, ContextCut::striped})
        for (const Index tokens : {Index{10}, Index{ranks}, Index{6 * ranks}}) {
          std::vector<int> found(static_cast<std::size_t>(tokens));
          Index least = tokens * tokens, most = 0;
          for (const auto& mine : tokens_of_ranks(mesh, cut, tokens)) {
            Index pairs = 0;
            for (const Index i : mine) {
              ++found[static_cast<std::size_t>(i)];
              pairs += i + 1;
            }
            check(!mine.empty() && std::ranges::is_sorted(mine), "test", "{} tokens in order", mine.size());
            least = std::min(least, pairs);
            most = std::max(most, pairs);
          }
          check(std::ranges::all_of(found, [](int n) { return n == 1; }), "test", "a token is not on one rank");
          if (tokens != 6 * ranks) continue;
          if (cut == ContextCut::zigzag)
            check(least == most && most == (2 * ranks - 1) * 9 + 12, "test", "{} to {} pairs", least, most);
          if (cut == ContextCut::striped) check(most - least <= tokens, "test", "{} to {} pairs", least, most);
        }
      return 1;
    }));
}

TEST_CASE("layers that read neighbouring tokens ask for a contiguous cut, and other cuts are unknown") {
  CHECK_ERROR(parse_strategy("context(cut=zag)"), usage, "context", "zag", "zigzag");
  CHECK(parse_strategy("context(mode=ring, cut=zigzag)").split.context_cut == ContextCut::zigzag);
  if (threads_only()) return;
  CHECK_ERROR(on_mesh({{"context", 2}},
                      [&](Mesh& mesh) {
                        const std::vector<std::string> axes{"context"};
                        const auto grid = std::make_shared<const Grid>(
                            mesh, axes, axes, Grid::Roles{.context = "context", .context_cut = ContextCut::zigzag});
                        const Tensor x = Tensor::zeros({2, 12, 3}), w = Tensor::zeros({4, 3, 3});
                        (void)conv(relayout(x, *ShardSpec::make(grid, x.shape(), over({{1, 0}}))), w);
                        return 1;
                      }),
              usage, "cut=contiguous");
}

TEST_CASE("in bf16 a ring of eight ranks is as near to the exact attention as one of two") {
  if (threads_only()) return;
  for (const bool causal : {false, true}) {
    std::array<std::array<double, 4>, 2> off{};
    for (const int ranks : {2, 8})
      CHECK_NOTHROW(on_mesh({{"context", ranks}}, [&](Mesh& mesh) {
        const auto most = context_deviations(mesh, ContextMode::ring, ContextCut::zigzag, DType::bf16, 2,
                                             {.causal = causal}, DType::f64);
        if (mesh.world().main()) off[ranks == 8] = most;
        return 1;
      }));
    for (std::size_t i = 0; i < 4; ++i) {
      CAPTURE(causal, i);
      CHECK(off[0][i] > 0);
      CHECK(off[1][i] <= 2 * off[0][i]);
    }
  }
}

TEST_CASE("more ranks than query heads are refused") {
  if (threads_only()) return;
  const AttentionOptions causal{.causal = true};
  CHECK_ERROR(on_mesh({{"context", 7}},
                      [&](Mesh& mesh) {
                        (void)context_deviations(mesh, ContextMode::ulysses, ContextCut::zigzag, DType::f32, 6, causal);
                        return 1;
                      }),
              usage, "context", 7, 6);
}

TEST_CASE("rows stay on the ranks that have their samples") {
  CHECK_NOTHROW(on_mesh({{"rows", 2}, {"tensor", 2}}, [](Mesh& mesh) {
    const auto grid = grid_of(mesh);
    const Shares uneven{.borders = {0, 1, 4}};
    const Tensor lengths = Tensor::of({{5, 2, 3, 4}}, {4}, DType::i64), x = uniform({4, 5, 6, 4}, -1, 1, 1, DType::f64);
    for (const bool heads : {false, true}) {
      const Placements lies = heads ? over({{0, 0}, {2, 1}}) : over({{0, 0}});
      const Tensor parts = relayout(x, *ShardSpec::make(grid, x.shape(), lies, uneven));
      const auto look = [&](const Tensor& got, const Tensor& want) {
        same(gathered(got), want, "result", 1e-12);
        check(got.dim(0) == parts.dim(0), "test", "there are {} rows instead of {}", got.dim(0), parts.dim(0));
      };
      look(attention_packed(parts, 2, 2, {}, lengths), attention_packed(x, 2, 2, {}, lengths));
      for (std::size_t i = 0; i < 2; ++i) look(split(parts, {2, 4}, 2)[i], split(x, {2, 4}, 2)[i]);
    }
    return 1;
  }));
}

TEST_CASE("ranges that end within a row of a new shape are brought together") {
  CHECK_NOTHROW(on_mesh({{"tensor", 3}}, [](Mesh& mesh) {
    const auto grid = grid_of(mesh);
    compare_laid(ShardSpec::make(grid, {2, 18}, over({{1, 0}}), {.ranges = {{9}, {9}}}, 1),
                 ShardSpec::make(grid, {2}, {}), [](const Tensor& x, const Tensor& w) {
                   return x.reshape({2, 9, 2}) * w;
                 });
    return 1;
  }));
}

TEST_CASE("a piece of several ranges has a share of each") {
  CHECK_NOTHROW(on_mesh({{"tensor", 2}}, [](Mesh& mesh) {
    compare_laid(ShardSpec::make(grid_of(mesh), {2, 18}, over({{1, 0}}), {.ranges = {{4}, {6}, {8}}}, 1),
                 ShardSpec::make(grid_of(mesh), {10}, {}), [](const Tensor& x, const Tensor& w) {
                   return gathered(split(x, {10, 8}, 1)[0]) * w;
                 });
    return 1;
  }));
}

TEST_CASE("a leaf beside parts may be read by several graphs, each with its own backward") {
  CHECK_NOTHROW(on_mesh({{"tensor", 2}}, [](Mesh& mesh) {
    const auto grid = grid_of(mesh);
    Tensor gradient;
    for (const bool divided : {false, true}) {
      Tensor x = integers({4}, 1);
      x.require_grad();
      const auto times = [&](std::uint64_t seed) {
        const Tensor w = integers({3, 4}, seed);
        return gathered((divided ? relayout(w, *ShardSpec::make(grid, w.shape(), over({{0, 0}}))) : w) * x);
      };
      const Tensor first = times(2), second = times(3);
      first.backward(integers(first.shape(), 4));
      second.backward(integers(second.shape(), 5));
      if (divided) same(x.grad(), gradient, "gradient");
      gradient = x.grad().clone();
    }
    return 1;
  }));
}

namespace {
/// The loss of logits whose classes the ranks divide equals the loss of whole ones, with its gradient.
void compare_losses(int ranks, const Tensor& logits, const Tensor& labels, const Loss& loss) {
  CHECK_NOTHROW(on_mesh({{"tensor", ranks}}, [&](Mesh& mesh) {
    Tensor whole = logits.clone(), parts = logits.clone();
    whole.require_grad();
    parts.require_grad();
    const ShardSpec::Ptr spec = ShardSpec::make(grid_of(mesh), parts.shape(), over({{1, 0}}));
    const Tensor y = loss(whole, labels), z = loss(relayout(parts, *spec), labels);
    same(z, y, "loss", 1e-13);
    y.backward();
    z.backward();
    same(parts.grad(), whole.grad(), "gradient", 1e-13);
    return 1;
  }));
}
}  // namespace

TEST_CASE("a rank may have no class that is possible") {
  Tensor logits = uniform({3, 7}, -3, 3, 1, DType::f64);
  for (Index i = 0; i < 6; ++i) logits.data<double>()[i] = -std::numeric_limits<double>::infinity();
  for (const int ranks : {2, 3}) compare_losses(ranks, logits, Tensor::of({{6, 6, 0}}, {3}, DType::i64), cross_entropy);
}

TEST_CASE("a row with an ignored label counts nothing, whatever its divided logits are") {
  Tensor logits = uniform({3, 5}, -3, 3, 1, DType::f64);
  for (Index i = 0; i < 5; ++i) {
    logits.data<double>()[i] = -std::numeric_limits<double>::infinity();
    logits.data<double>()[10 + i] = std::numeric_limits<double>::infinity();
  }
  compare_losses(2, logits, Tensor::of({{-100, 2, -100}}, {3}, DType::i64),
                 cross_entropy_with({.label_smoothing = 0.1}));
}

TEST_CASE("z-loss and label smoothing of divided logits are those of whole ones") {
  const Tensor logits = uniform({5, 11}, -3, 3, 1, DType::f64);
  const Tensor labels = Tensor::of({{3, -100, 10, 0, 7}}, {5}, DType::i64);
  for (const int ranks : {2, 3, 4})
    for (const double smoothing : {0.0, 0.1}) {
      if (other_ranks(ranks)) continue;
      compare_losses(ranks, logits, labels, cross_entropy_with({.label_smoothing = smoothing, .z_loss = 0.2}));
    }
}

TEST_CASE("lookups of one divided table are in use at once, and go backward in any order") {
  const std::array<Tensor, 2> ids{Tensor::of({{6, 0, 3, 0}}, {4}, DType::i64),
                                  Tensor::of({{1, 6, 2, 5}}, {4}, DType::i64)};
  CHECK_NOTHROW(on_mesh({{"tensor", 3}}, [&](Mesh& mesh) {
    for (const std::size_t first : {0, 1}) {
      Tensor whole = integers({7, 3}, 1);
      const auto spec = ShardSpec::of_weight(grid_of(mesh), whole.shape(), over({{0, 0}}));
      Tensor parts = plain(relayout(whole, *spec)).clone();
      whole.require_grad();
      parts.require_grad();
      parts.impl()->shard_spec = spec;
      for (const Tensor& table : {whole, parts}) {
        const std::array<Tensor, 2> rows{gathered(take(table, ids[0])), gathered(take(table, ids[1]))};
        for (const std::size_t i : {first, 1 - first}) {
          same(rows[i].detach(), take(whole.detach(), ids[i]), "rows");
          rows[i].backward(integers(rows[i].shape(), i + 3));
        }
      }
      same(parts.grad(), plain(relayout(whole.grad(), *spec)), "gradient");
    }
    return 1;
  }));
}

TEST_CASE("a divided table refuses rows that no rank has") {
  if (threads_only()) return;
  for (const double id : {-1, 6})
    CHECK_ERROR(on_mesh({{"tensor", 2}},
                        [&](Mesh& mesh) {
                          const Tensor table = integers({6, 3}, 1);
                          const auto spec = ShardSpec::of_weight(grid_of(mesh), table.shape(), over({{0, 0}}));
                          (void)take(relayout(table, *spec), Tensor::of({{2, id}}, {2}, DType::i64));
                          return 1;
                        }),
                data, id);
}

}  // namespace test_placed_ops
