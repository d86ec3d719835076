#include "parallel/split/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <set>

#include "framework/autograd/tape.h"
#include "framework/layers/sequential.h"
#include "framework/ops/help.h"
#include "framework/tensor/division_error.h"
#include "framework/tensor/fields.h"
#include "parallel/comm/call.h"
#include "parallel/split/grid.h"

namespace trireme {
namespace {

constexpr std::array<const char*, 3> image_axes = {"w", "h", "d"};  // of [N, D, H, W, C], from behind

/// The layer in front: this rank's part of the batch.
struct Enter {
  std::shared_ptr<const Grid> grid;

  Tensor operator()(const Tensor& x) const {
    if (grid->rows() >= 0) return joined(x);
    Placements placements;
    for (std::size_t i = 0; i < image_axes.size(); ++i) {
      const int over = grid->find(image_axes[i]);
      if (over < 0) continue;
      const int axis = x.rank() - 2 - static_cast<int>(i);
      if (axis < 1)
        fail_division("spatial", "x is {}: it has no axis to split over the mesh axis '{}'", x.shape(), image_axes[i]);
      if (x.dim(axis) < grid->size(over))
        fail_division("spatial",
                      "axis {} of x {} has {} rows for the {} ranks of mesh axis '{}': at most {} ranks would work",
                      axis, x.shape(), x.dim(axis), grid->size(over), image_axes[i], x.dim(axis));
      placements = placements.with(axis, 1u << over);
    }
    return with_fields(relayout(x, *ShardSpec::make(grid, x.shape(), placements)), fields_beside(x));
  }

  /// x, of rows of its own, as a part of the batch of all ranks.
  Tensor joined(const Tensor& x) const {
    if (!x.fields().empty())
      fail_division(
          "one_weird_trick",
          "'{}' comes with x, but only x is gathered from all ranks: use data_parallel, or concatenate the two",
          x.fields().begin()->first);
    const std::int64_t mine = x.dim(0);
    std::vector<Index> borders{0};
    for (Index n : gather_numbers(grid->along(grid->rows()), {&mine, 1})) borders.push_back(borders.back() + n);
    grid->begin_batch(std::move(borders));
    Shape whole = x.shape();
    whole[0] = grid->row_borders().back();
    return x.with_shard_spec(by_rows(whole));
  }

  /// Each rank has its rows of the batch.
  ShardSpec::Ptr by_rows(const Shape& whole) const {
    return ShardSpec::make(grid, whole, Placements().with(0, 1u << grid->rows()), {.borders = grid->row_borders()});
  }
};

/// The layer behind: the whole result, or this rank's rows of it.
struct Leave {
  Enter enter;
  Tensor operator()(const Tensor& x) const {
    return map_fields(x, [&](const Tensor& t) { return one(t); });  // a model may have several outputs
  }
  Tensor one(const Tensor& x) const {
    return enter.grid->rows() < 0 ? gathered(x) : plain(relayout(x, *enter.by_rows(ops::global_shape(x))));
  }
};

/// A model that is no row of layers.
struct Between {
  Enter enter;
  Module model;
  Leave leave;
  Tensor operator()(const Tensor& x) const { return leave(model(enter(x))); }
  void visit(const StateVisitor& v) { model.visit(v); }
};

/// Keeps only this rank's part of a weight.
void divide(const NamedState& leaf, int axis, const std::shared_ptr<const Grid>& grid, int over) {
  Tensor& t = *leaf.tensor;
  check(
      t.dim(axis) >= grid->size(over), "split",
      "'{}' {} has {} {} for the {} ranks of mesh axis '{}': at most {} ranks would work", leaf.name, t.shape(),
      t.dim(axis), axis == 0 ? "outputs" : "inputs", grid->size(over), [&] { return grid->name(over); }, t.dim(axis));
  const ShardSpec::Ptr spec = ShardSpec::of_weight(grid, t.shape(), Placements().with(axis, 1u << over));
  const Tensor mine = relayout(t.detach(), *spec);
  t.impl()->block = mine.impl()->block;
  t.impl()->offset = 0;
  t.impl()->shape = mine.shape();
  t.impl()->shard_spec = spec;
}

using Leaves = std::vector<NamedState>;

/// The tensors of each layer, in order.
std::vector<Leaves> layers_of(Module& model) {
  std::vector<Leaves> layers;
  std::string layer = ".";
  model.visit(StateVisitor([&](const NamedState& leaf) {
    if (const std::string own = leaf.name.substr(0, leaf.name.rfind('.') + 1); own != layer) {
      layers.emplace_back();
      layer = own;
    }
    layers.back().push_back(leaf);
  }));
  return layers;
}

const NamedState* find(const Leaves& leaves, std::string_view own) {
  const auto at = std::ranges::find(
      leaves, own, [](const NamedState& leaf) { return std::string_view(leaf.name).substr(leaf.name.rfind('.') + 1); });
  return at == leaves.end() ? nullptr : &*at;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// Layers take turns: one is cut by its outputs, the next by its inputs. columns_only: all fully connected ones by
/// their outputs.
void divide_weights(Module& model, const std::shared_ptr<const Grid>& grid, int over, bool columns_only,
                    const SplitOptions& options) {
  std::vector<std::string> laid_out;
  for (const auto* names : {&options.columns, &options.rows, &options.whole})
    for (const std::string& name : *names) {
      check(!contains(laid_out, name), "tensor", "layer '{}' is named twice in columns, rows and whole: name it once",
            name);
      laid_out.push_back(name);
    }
  std::vector<std::string> known;  // layers with a product
  Index open = 0;                  // outputs that the last product left divided
  Index most = 0;                  // outputs or inputs of a layer
  bool divided = false;
  for (const Leaves& leaves : layers_of(model)) {
    const NamedState* weight = find(leaves, "weight");
    if (!weight || weight->tensor->shard_spec()) continue;
    const Shape shape = weight->tensor->shape();
    if (shape.rank() == 0) continue;  // one number: a temperature
    if (shape.rank() < 2) {
      for (const NamedState& leaf : leaves)
        if (open == shape[0] && find(leaves, "running_mean")) divide(leaf, 0, grid, over);
      continue;
    }
    if (columns_only && shape.rank() > 2) continue;
    const std::string& layer = known.emplace_back(weight->name.substr(0, weight->name.rfind('.')));
    const Index before = std::exchange(open, 0);
    if (contains(options.whole, layer)) continue;
    const bool named = contains(options.rows, layer) || contains(options.columns, layer);
    // A dimension with fewer elements than ranks stays whole, unless its layer is named.
    const auto has_room = [&](int axis) {
      most = std::max(most, shape[axis]);
      divided = divided || named || shape[axis] >= grid->size(over);
      return named || shape[axis] >= grid->size(over);
    };
    if (contains(options.rows, layer) || (before == shape[-1] && !contains(options.columns, layer))) {
      if (has_room(shape.rank() - 1)) divide(*weight, shape.rank() - 1, grid, over);
      continue;
    }
    if (!has_room(0)) continue;
    divide(*weight, 0, grid, over);
    // A transposed convolution is cut by its inputs, of which its bias need not have as many numbers.
    const NamedState* bias = find(leaves, "bias");
    if (bias && bias->tensor->dim(0) == shape[0]) divide(*bias, 0, grid, over);
    if (!columns_only) open = shape[0];
  }
  check(divided || most == 0, "split",
        "no layer has as many outputs as the {} ranks of mesh axis '{}': at most {} ranks would work", grid->size(over),
        grid->name(over), most);
  for (const auto* names : {&options.columns, &options.rows, &options.whole})
    for (const std::string& name : *names)
      check(contains(known, name), "tensor", "there is no layer '{}' to lay out; there are: {}", name,
            fmt::join(known, ", "));
}

/// Weights that all ranks hold say so: their gradients are reduced over RankMesh::summed().
void mark(Module& model, const std::shared_ptr<const Grid>& grid) {
  if (grid->summed() == 0) return;
  model.visit(StateVisitor([&](const NamedState& leaf) {
    Tensor& t = *leaf.tensor;
    if (leaf.kind != StateKind::buffer && !t.shard_spec())
      t.impl()->shard_spec = ShardSpec::of_weight(grid, t.shape(), {});
  }));
}

void check_axes(const Mesh& mesh, const SplitOptions& o) {
  const std::vector<std::string> all_image_axes = {"h", "w", "d"};  // the default: those that the mesh has
  const auto names = mesh.axes() | std::views::transform(&Axis::name);
  const std::string named = fmt::format("{}", fmt::join(names, ", "));
  const auto there = [&](const std::string& name) { return std::ranges::count(names, name) > 0; };
  bool image = o.image.empty();
  for (const std::string& name : o.image) {
    check(name == "h" || name == "w" || name == "d", "spatial", "'{}' is no axis of an image; there are: h, w, d",
          name);
    image = image || there(name);
    check(there(name) || std::ranges::is_permutation(o.image, all_image_axes), "spatial",
          "axes={} names '{}', which the mesh does not have, only {}: give the mesh that axis, or leave it out",
          fmt::join(o.image, "+"), name, named);
  }
  check(image, "spatial", "the mesh has none of the axes {}, only {}: name one, as in h=2", fmt::join(o.image, ", "),
        named);
  for (const std::string& name : {o.tensor, o.one_weird_trick})
    check(name.empty() || there(name), "split", "the mesh has no axis '{}', only {}: name one, as in {}=2", name, named,
          name);
}

}  // namespace

void SplitOptions::add(const SplitOptions& other) {
  image.insert(image.end(), other.image.begin(), other.image.end());
  if (!other.tensor.empty()) tensor = other.tensor;
  columns.insert(columns.end(), other.columns.begin(), other.columns.end());
  rows.insert(rows.end(), other.rows.begin(), other.rows.end());
  whole.insert(whole.end(), other.whole.begin(), other.whole.end());
  if (!other.one_weird_trick.empty()) one_weird_trick = other.one_weird_trick;
  check(one_weird_trick.empty() || (image.empty() && tensor.empty()), "split",
        "one_weird_trick gathers the batch of all ranks, so no other strategy can split layers: use either "
        "one_weird_trick, or spatial and tensor");
}

std::shared_ptr<const Grid> grid_of(const Parameters& parameters) {
  for (const auto& e : parameters.entries())
    if (e.tensor.shard_spec()) return std::static_pointer_cast<const Grid>(e.tensor.shard_spec()->shared_mesh());
  return nullptr;
}

std::string divided_over(const Tensor& weight) {
  const ShardSpec* spec = weight.shard_spec();
  for (int i = 0; spec && i < spec->mesh().axes(); ++i)
    if (spec->placements().axes() >> i & 1) return spec->mesh().name(i);
  return "";
}

std::string divided_over(const Parameters& parameters, const Slice& slice) {
  std::set<std::string> axes;
  for (const auto& e : parameters.entries())
    if (e.slice.overlaps(slice)) axes.insert(divided_over(e.tensor));
  return axes.size() == 1 ? *axes.begin() : "";
}

Module split(const Module& given, Mesh& mesh, const SplitOptions& o) {
  check_axes(mesh, o);
  Module model = given;
  std::vector<std::string> axes = o.image, grad_reduce_axes = o.image;
  if (!o.tensor.empty()) axes.push_back(o.tensor);
  if (!o.one_weird_trick.empty()) {
    axes.push_back(o.one_weird_trick);
    grad_reduce_axes.push_back(o.one_weird_trick);
  }
  const auto grid = std::make_shared<const Grid>(mesh, axes, grad_reduce_axes, o.one_weird_trick);
  if (grid->axes() == 0) return model;
  model.visit(StateVisitor([](const NamedState& leaf) {
    check(!leaf.tensor->shard_spec(), "split", "'{}' is split already; make the model anew", leaf.name);
    check(!leaf.tensor->requires_grad(), "split",
          "'{}' already lives in Parameters; split the model before making them", leaf.name);
  }));
  if (const int over = grid->find(o.tensor); over >= 0) divide_weights(model, grid, over, false, o);
  if (grid->rows() >= 0) divide_weights(model, grid, grid->rows(), true, {});
  mark(model, grid);

  const Enter enter{grid};
  const Sequential* row = model.as<Sequential>();
  if (!row) return Between{enter, model, {enter}};
  Sequential whole;
  whole.add("split", enter);
  for (std::size_t i = 0; i < row->size(); ++i) whole.add(row->name(i), (*row)[i]);
  return whole.add("join", Leave{enter});
}

}  // namespace trireme
