#include "parallel/split/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "framework/ops/place.h"
#include "framework/tensor/storage.h"

namespace trireme {
namespace {

using ops::Factors;

/// A tensor of the model, under all of its names.
struct Leaf {
  std::vector<std::string> names;
  Tensor tensor;
  Shape shape;                           ///< of the whole
  std::vector<Shares> shares;            ///< of its dimensions, as its layer states them
  Placements placements = {};            ///< how ranks will divide it
  AxisMask settled = 0;                  ///< axes along which that is decided
  bool buffer = false, experts = false;  ///< experts: of a MixtureOfExperts, one along each index of dimension 0
  // Axes along which ranks used it for different work, so that they find terms of its gradient, and for the same work.
  AxisMask differs = 0, alike = 0;

  /// "fc1." of "fc1.weight".
  std::string layer() const { return names[0].substr(0, names[0].rfind('.') + 1); }
  std::string own_name() const { return names[0].substr(names[0].rfind('.') + 1); }
};

/// The tensors of a model.
class Leaves {
 public:
  Leaves(Module& model, std::shared_ptr<const Grid> grid) : grid(std::move(grid)) {
    model.visit(StateVisitor([&](const NamedState& state) {
      const auto [at, first] = places_.try_emplace(state.tensor->id(), all.size());
      if (first)
        all.push_back({.names = {},
                       .tensor = *state.tensor,
                       .shape = state.tensor->shape(),
                       .shares = state.shares,
                       .buffer = state.kind == StateKind::buffer,
                       .experts = state.layout == FileLayout::listed});
      all[at->second].names.push_back(state.name);
    }));
  }

  std::vector<Leaf> all;
  const std::shared_ptr<const Grid> grid;

  /// Null: no tensor of the model.
  Leaf* of(const Tensor& t) {
    const auto at = t ? places_.find(t.id()) : places_.end();
    return at == places_.end() ? nullptr : &all[at->second];
  }
  Leaf* named(const std::string& name) {
    const auto at = std::ranges::find(all, name, [](const Leaf& leaf) { return leaf.names[0]; });
    return at == all.end() ? nullptr : &*at;
  }
  /// Whether each rank along an axis would have a part of the dimension.
  bool has_room(const Leaf& leaf, int dim, int over) const {
    return leaf.shape[dim] >= Index{grid->size(over)} * grid->ranks(leaf.placements.over(dim));
  }
  static void settle(Leaf& leaf, int dim, int over) {
    if (dim >= 0) leaf.placements = leaf.placements.with(dim, leaf.placements.over(dim) | 1u << over);
    leaf.settled |= 1u << over;
  }
  /// In the ranges and units of the layer, if they give each rank a share.
  ShardSpec::Ptr spec(const Leaf& leaf) const {
    for (int dim = 0; dim < std::min(leaf.shape.rank(), static_cast<int>(std::ssize(leaf.shares))); ++dim) {
      const Shares& shares = leaf.shares[static_cast<std::size_t>(dim)];
      const AxisMask over = leaf.placements.over(dim);
      if (over == 0 || shares.empty()) continue;
      Index all = 0, units = leaf.shape[dim];
      bool whole = dim == 0 || shares.ranges.size() == 1;
      for (const Shares::Range& r : shares.ranges) {
        all += r.extent;
        whole = whole && r.unit > 0 && r.extent % r.unit == 0;
        if (whole) units = std::min(units, r.extent / r.unit);
      }
      check(whole && all == leaf.shape[dim] && shares.borders.empty(), "split",
            "'{}' {} has {} ranges of {} elements in all along dimension {}, expected whole units of all its elements, "
            "and one range of any dimension but the first: correct the layer's shares",
            leaf.names[0], leaf.shape, shares.ranges.size(), all, dim);
      if (units >= grid->ranks(over))
        return ShardSpec::of_weight(grid, leaf.shape, leaf.placements, shares.divided_by(1), dim);
    }
    for (int dim = 0; dim < leaf.shape.rank(); ++dim)  // experts: they are no tokens, which may be cut in another way
      if ((leaf.placements.over(dim) & grid->context()) != 0)
        return ShardSpec::of_weight(grid, leaf.shape, leaf.placements, {.tokens = false}, dim);
    return ShardSpec::of_weight(grid, leaf.shape, leaf.placements);
  }

 private:
  std::map<const void*, std::size_t> places_;
};

/// One pattern of a row of the table.
void settle_row(Leaves& leaves, const WeightPlacement& row, const std::string& pattern) {
  const int over = leaves.grid->find(row.axis);
  bool any = false;
  for (Leaf& leaf : leaves.all) {
    const auto fits = [&](const std::string& name) { return matches(pattern, name); };
    if (std::ranges::none_of(leaf.names, fits)) continue;
    any = true;
    if (over < 0) continue;  // an axis of one rank
    check(!(leaf.settled >> over & 1), "place", "'{}' is named twice for mesh axis '{}', by '{}' too: name it once",
          leaf.names[0], row.axis, pattern);
    const int dim = row.dim < 0 ? row.dim + leaf.shape.rank() : row.dim;
    const bool divides = !row.whole && dim >= 0 && dim < leaf.shape.rank();
    check(
        !divides || leaves.has_room(leaf, dim, over), "place",
        "'{}' {} has {} elements along dimension {} for the {} ranks of mesh axis '{}': at most {} ranks would work",
        leaf.names[0], leaf.shape, [&] { return leaf.shape[dim]; }, dim, leaves.grid->size(over), row.axis,
        [&] { return leaf.shape[dim] / leaves.grid->ranks(leaf.placements.over(dim)); });
    Leaves::settle(leaf, divides ? dim : Placements::copy, over);
  }
  check(any, "place", "there is no weight '{}' to place; there are: {}", pattern, [&] {
    return fmt::format(
        "{}", fmt::join(leaves.all | std::views::transform([](const Leaf& leaf) { return leaf.names[0]; }), ", "));
  });
}

/// Divides experts over an axis.
void settle_experts(Leaves& leaves, const std::string& axis) {
  const int over = leaves.grid->find(axis);
  bool any = false;
  for (Leaf& leaf : leaves.all) {
    if (!leaf.experts) continue;
    any = true;
    if (over < 0 || leaf.settled >> over & 1) continue;
    check(leaves.has_room(leaf, 0, over), "experts",
          "'{}' has {} experts for the {} ranks of mesh axis '{}': at most {} ranks would work", leaf.names[0],
          leaf.shape[0], leaves.grid->size(over), axis, leaf.shape[0] / leaves.grid->ranks(leaf.placements.over(0)));
    Leaves::settle(leaf, 0, over);
  }
  check(any, "experts", "the model has no experts: use one with a MixtureOfExperts, or leave the strategy out");
}

/// Settles what the table leaves open, while the model runs dry. Meanwhile the tensors look divided.
class Flow final : ops::PlaceWatch {
 public:
  /// own: the axis along which weights divide their outputs if no input is divided; -1: none.
  Flow(Leaves& leaves, AxisMask axes, int own) : leaves_(leaves), axes_(axes), own_(own) {
    for (const Leaf& leaf : leaves.all) show(leaf);
  }
  ~Flow() override {
    for (const Leaf& leaf : leaves_.all) {
      leaf.tensor.impl()->shape = leaf.shape;
      leaf.tensor.impl()->shard_spec = nullptr;
    }
  }
  /// The first weight without a divided input that could divide its outputs; null: none.
  Leaf* first() const { return first_; }
  Index gathered() const { return gathered_; }  ///< elements of the operands that ranks gather

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  void show(const Leaf& leaf) {
    kept_.push_back(leaves_.spec(leaf));  // an op may refer to the one before
    leaf.tensor.impl()->shard_spec = kept_.back();
    leaf.tensor.impl()->shape = leaf.tensor.shard_spec()->block();
  }

  void decide(const Factors& f, const std::vector<Tensor>& operands) override {
    for (int over = 0; over < leaves_.grid->axes(); ++over) {
      if (!(axes_ >> over & 1)) continue;
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (Leaf* leaf = open(operands[i], over); leaf && leaf->shape.rank() > 1)
          settle(*leaf, dim_of_product(f, operands, i, over), over);
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (Leaf* leaf = open(operands[i], over); leaf && leaf->shape.rank() == 1 && !f.in[i][0].empty())
          if (const int n = f.in[i][0][0]; leads(f.out, n) && may_divide(f, n) && continues(f, operands, i, n, over))
            settle(*leaf, 0, over);
    }
  }
  void gathers(Index elements) override { gathered_ += elements; }
  void used(const Tensor& weight, AxisMask axes) override {
    if (Leaf* leaf = leaves_.of(weight)) {
      leaf->differs |= weight.shard_spec()->summed() & axes;
      leaf->alike |= weight.shard_spec()->summed() & ~axes;
    }
  }

  Leaf* open(const Tensor& t, int over) {
    Leaf* leaf = leaves_.of(t);
    return leaf && !(leaf->settled >> over & 1) ? leaf : nullptr;
  }
  void settle(Leaf& leaf, int dim, int over) {
    if (dim < 0 || !leaves_.has_room(leaf, dim, over)) return;
    Leaves::settle(leaf, dim, over);
    show(leaf);
  }

  static bool leads(const std::vector<Factors::Dim>& dims, int n) {
    return std::ranges::any_of(dims, [n](const Factors::Dim& dim) { return !dim.empty() && dim[0] == n; });
  }
  /// Whether another operand is divided along a factor. An input in several ranges does not count: a weight would be
  /// cut elsewhere.
  bool continues(const Factors& f, const std::vector<Tensor>& operands, std::size_t own, int n, int over) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const ShardSpec* spec = operands[i] ? operands[i].shard_spec() : nullptr;
      const int d = spec && i != own ? spec->placements()[over] : Placements::copy;
      if (d >= 0 && (leaves_.of(operands[i]) || spec->shares(d).ranges.size() < 2) && !f.in[i][at(d)].empty() &&
          f.in[i][at(d)][0] == n)
        return true;
    }
    return false;
  }
  /// Whether ranks may divide a factor.
  static bool may_divide(const Factors& f, int n) {
    const auto inner = [n](const auto& dims) {
      return std::ranges::any_of(dims, [n](const auto& dim) { return std::ranges::count(dim, n) > 0 && dim[0] != n; });
    };
    return !f.factors[at(n)].whole && (f.factors[at(n)].sums || leads(f.out, n)) && !inner(f.out) &&
           std::ranges::none_of(f.in, inner);
  }
  /// The dimension of operand i, a weight, to divide; -1: none.
  int dim_of_product(const Factors& f, const std::vector<Tensor>& operands, std::size_t i, int over) {
    const auto& dims = f.in[i];
    const auto dim = [&](const auto& suits) {
      for (std::size_t d = 0; d < dims.size(); ++d)
        if (!dims[d].empty() && may_divide(f, dims[d][0]) &&
            leaves_.has_room(*leaves_.of(operands[i]), static_cast<int>(d), over) && suits(dims[d][0]))
          return static_cast<int>(d);
      return -1;
    };
    if (const int d = dim([&](int n) { return continues(f, operands, i, n, over); }); d >= 0) return d;
    const bool product = std::ranges::any_of(
        dims, [&](const auto& d) { return std::ranges::any_of(d, [&](int n) { return f.factors[at(n)].sums; }); });
    if (!product || over != own_) return -1;
    const auto in_input = [&](int n) {
      for (std::size_t k = 0; k < operands.size(); ++k)
        if (operands[k] && !leaves_.of(operands[k]) && leads(f.in[k], n)) return true;
      return false;
    };
    if (!first_) first_ = leaves_.of(operands[i]);
    const int outputs = dim([&](int n) { return !in_input(n); });
    return outputs >= 0 ? outputs : dim([](int) { return true; });
  }

  Leaves& leaves_;
  AxisMask axes_;
  int own_;
  Leaf* first_ = nullptr;
  Index gathered_ = 0;
  std::vector<ShardSpec::Ptr> kept_;
};

/// Settles what the table leaves open. The first layer that could open a division along `own` stays whole if ranks then
/// gather less than half as many elements: the patches of a ViT enter all of its blocks.
void settle_by_flow(Leaves& leaves, AxisMask axes, int own, const std::function<void()>& forward) {
  const std::vector<Leaf> open = leaves.all;
  const auto run = [&]() -> std::pair<std::ptrdiff_t, Index> {
    const Flow flow(leaves, axes, own);
    forward();
    return {flow.first() ? flow.first() - leaves.all.data() : -1, flow.gathered()};
  };
  const auto [first, most] = run();
  if (most == 0 || first < 0) return;
  std::vector<Leaf> divided = std::exchange(leaves.all, open);
  Leaves::settle(leaves.all[static_cast<std::size_t>(first)], Placements::copy, own);
  Index less = most;
  try {
    less = run().second;
  } catch (const Error&) {}  // an op refuses what follows: the first way ran
  const bool any = std::ranges::any_of(leaves.all, [own](const Leaf& leaf) { return leaf.placements[own] >= 0; });
  if (!any || 2 * less >= most) leaves.all = std::move(divided);
}

/// By names alone: layers with a `weight` take turns, one is divided by its outputs, the next by its inputs.
void settle_in_order(Leaves& leaves, int over) {
  Index open = 0;  // outputs that the last product left divided
  for (Leaf& leaf : leaves.all) {
    const int rank = leaf.shape.rank();
    if (rank == 1 && open == leaf.shape[0] && leaves.named(leaf.layer() + "running_mean"))
      Leaves::settle(leaf, 0, over);
    if (leaf.own_name() != "weight" || rank < 2) continue;
    const Index before = std::exchange(open, 0);
    if (!(leaf.settled >> over & 1)) {
      const int dim = before == leaf.shape[-1] ? rank - 1 : 0;
      if (leaves.has_room(leaf, dim, over)) Leaves::settle(leaf, dim, over);
    }
    if (leaf.placements[over] == 0) open = leaf.shape[0];
  }
}

/// By names alone: fully connected layers by their outputs.
void settle_outputs(Leaves& leaves, int over) {
  for (Leaf& leaf : leaves.all)
    if (leaf.own_name() == "weight" && leaf.shape.rank() == 2 && !(leaf.settled >> over & 1) &&
        leaves.has_room(leaf, 0, over))
      Leaves::settle(leaf, 0, over);
}

/// The biases of layers that are divided by their outputs. A transposed convolution is divided by its inputs, of which
/// its bias need not have as many numbers.
void settle_biases(Leaves& leaves, int over) {
  for (const Leaf& leaf : leaves.all) {
    if (leaf.own_name() != "weight" || leaf.shape.rank() < 2 || leaf.placements[over] != 0) continue;
    Leaf* bias = leaves.named(leaf.layer() + "bias");
    if (bias && !(bias->settled >> over & 1) && bias->shape.rank() == 1 && bias->shape[0] == leaf.shape[0])
      Leaves::settle(*bias, 0, over);
  }
}

/// How a weight lies, with the axes over which the plan sums its gradient: those along which all of its uses are for
/// different work. Along any other axis, a use for different work sums its gradient in backward (placed_weight()).
ShardSpec::Ptr summed_spec(const Leaves& leaves, const Leaf& leaf) {
  const ShardSpec::Ptr spec = leaves.spec(leaf);
  return (leaf.differs | leaf.alike) == 0 ? spec : spec->summed_over(spec->summed() & leaf.differs & ~leaf.alike);
}

/// This rank's part. Zeros of a weight that is drawn later are read, but not written (SkipInit).
Tensor part_of(const Tensor& whole, const ShardSpec& spec) {
  if (const Tensor host = detail::host_of(whole)) return detail::moved_later(part_of(host, spec), whole.device());
  if (whole.device().kind != DeviceKind::cpu) return relayout(whole, spec);
  const Tensor mine = Tensor::empty(spec.block(), whole.dtype());
  zero_untouched(mine);
  const Tensor from = whole.reshape({whole.numel()}), to = mine.reshape({mine.numel()});
  Index before = 0;  // several boxes are rows of the block, one after another
  for (const Box& box : spec.boxes()) {
    each_run(box, whole.shape(), [&](Index begin, Index at, Index count) {
      copy_to_zeros(to.view_rows(before + at, before + at + count), from.view_rows(begin, begin + count));
    });
    before += box.size.numel();
  }
  return mine;
}

/// Keeps only this rank's part.
void divide(const Leaf& leaf, const ShardSpec::Ptr& spec) {
  auto& t = *leaf.tensor.impl();
  if (spec->divides()) {
    const Tensor mine = part_of(leaf.tensor.detach(), *spec);
    t.block = mine.impl()->block;
    t.offset = 0;
    t.shape = mine.shape();
  }
  t.shard_spec = spec;
}

}  // namespace

void divide_weights(Module& model, const std::shared_ptr<const Grid>& grid, const SplitOptions& options,
                    const std::function<void()>& forward, bool leaves_axes_out) {
  Leaves leaves(model, grid);
  for (const WeightPlacement& row : options.placements)
    for (const std::string& pattern : row.weights) settle_row(leaves, row, pattern);
  for (const std::string& axis : options.experts) settle_experts(leaves, axis);
  const int tensor = grid->find(options.tensor), rows = grid->rows();
  AxisMask axes = tensor >= 0 ? 1u << tensor : 0;
  for (const WeightPlacement& row : options.placements)
    if (const int over = grid->find(row.axis); over >= 0) axes |= 1u << over;
  if (rows >= 0) {
    settle_outputs(leaves, rows);
    settle_biases(leaves, rows);
  }
  if (forward) {
    settle_by_flow(leaves, axes, tensor, forward);
  } else {
    if (tensor >= 0) settle_in_order(leaves, tensor);
    for (int over = 0; over < grid->axes(); ++over)
      if (axes >> over & 1) settle_biases(leaves, over);
  }
  Index most = 0;  // outputs of a layer
  bool divided = tensor < 0;
  for (const Leaf& leaf : leaves.all) {
    if (leaf.shape.rank() > 1) most = std::max(most, leaf.shape[0]);
    divided = divided || leaf.placements[tensor] >= 0;
    if (leaf.placements.axes() != 0 || (grid->summed() != 0 && !leaf.buffer))
      divide(leaf, leaves_axes_out ? summed_spec(leaves, leaf) : leaves.spec(leaf));
  }
  check(
      divided || most == 0, "split",
      "no layer has as many outputs as the {} ranks of mesh axis '{}': at most {} ranks would work",
      [&] { return grid->size(tensor); }, options.tensor, most);
}

}  // namespace trireme
