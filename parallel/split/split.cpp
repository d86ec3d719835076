#include "parallel/split/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/layers/sequential.h"
#include "framework/ops/help.h"
#include "framework/tensor/division_error.h"
#include "framework/tensor/fields.h"
#include "framework/tensor/watch_pause.h"
#include "parallel/comm/call.h"
#include "parallel/model/dry_run.h"
#include "parallel/split/grid.h"
#include "parallel/split/weights.h"

namespace trireme {
namespace {

constexpr std::array<const char*, 3> image_axes = {"w", "h", "d"};  // of [N, D, H, W, C], from behind

/// The layer in front: this rank's part of the batch.
struct Enter {
  std::shared_ptr<const Grid> grid;
  std::string context;  // SplitOptions::context

  Tensor operator()(const Tensor& x) const {
    if (grid->rows() >= 0) return joined(x);
    Placements placements;
    if (const int over = grid->find(context); over >= 0) {
      if (x.rank() != (x.dtype() == DType::i64 ? 2 : 3))
        fail_division("context", "x is {} {}: expected tokens, i64 [N, T] or [N, T, C]", x.dtype(), x.shape());
      if (x.dim(1) < grid->size(over))
        fail_division("context", "x {} has {} tokens for the {} ranks of mesh axis '{}': at most {} ranks would work",
                      x.shape(), x.dim(1), grid->size(over), context, x.dim(1));
      placements = placements.with(1, 1u << over);
    }
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

  /// x and its fields, of rows of its own, as parts of the batch of all ranks.
  Tensor joined(const Tensor& x) const {
    for (const auto& [name, field] : x.fields())
      if (!has_rows_of(field, *x.impl()))
        fail_division("one_weird_trick",
                      "the field '{}' {} of x {} has no row for each sample, so ranks cannot gather it: use "
                      "data_parallel, or give the field a row for each sample",
                      name, field.shape(), x.shape());
    const std::int64_t mine = x.dim(0);
    std::vector<Index> borders{0};
    for (Index n : gather_numbers(grid->along(grid->rows()), {&mine, 1})) borders.push_back(borders.back() + n);
    grid->begin_batch(std::move(borders));
    return map_fields(x, [&](const Tensor& t) {
      Shape whole = t.shape();
      whole[0] = grid->row_borders().back();
      return t.with_shard_spec(by_rows(whole));
    });
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
    const bool stays = StepContext::current().divided_outputs && enter.grid->rows() < 0 && is_part(x);
    return map_fields(x, [&](const Tensor& t) {  // a model may have several outputs
      return stays && t.id() == x.id() ? t.with_shard_spec(t.impl()->shard_spec) : one(t);
    });
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

/// A forward of the model without its numbers.
void run_dry(const Module& model, Mesh& mesh, const Enter& enter, const Tensor& example) {
  StepContext context = StepContext::current();
  context.batch.samples = Tensor::zeros({example.dim(0)}, DType::i64);
  context.batch.global_batch = example.dim(0);
  const Tensor x = example.with_batch(context.batch);
  const StepScope scope(std::move(context));
  const GradMode off(false);
  const WatchPause outside;
  const SkipCopies nothing_copied;
  const LaunchWatch nothing_computed(
      [](const LaunchWatch::Call& call) {
        if (runs_dry(call)) call.kernel();
      },
      LaunchWatch::Mode::dry);
  const TrafficMeter::Dry nothing_sent(mesh.meter(), [](const std::string&, const Call&) {});
  (void)model(enter(x));
}

/// Axes that cut weights, other than those of experts.
std::vector<std::string> cut_axes(const SplitOptions& o) {
  std::vector<std::string> axes;
  const auto add = [&](const std::string& name) {
    if (!name.empty() && std::ranges::find(axes, name) == axes.end()) axes.push_back(name);
  };
  for (const std::string& name : {o.tensor, o.one_weird_trick}) add(name);
  for (const WeightPlacement& row : o.placements) add(row.axis);
  return axes;
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
  std::vector<std::string> needed{o.context, o.tensor, o.one_weird_trick};
  for (const WeightPlacement& row : o.placements) needed.push_back(row.axis);
  needed.insert(needed.end(), o.experts.begin(), o.experts.end());
  const std::vector<std::string> of_samples = o.sample_axes();
  for (const std::string& name : cut_axes(o))
    check(std::ranges::count(of_samples, name) == 0, "split",
          "mesh axis '{}' would cut both samples and weights: name another axis for one of them, by the strategy's "
          "option axis",
          name);
  for (const std::string& name : needed)
    check(name.empty() || there(name), "split", "the mesh has no axis '{}', only {}: name one, as in {}=2", name, named,
          name);
}

}  // namespace

void SplitOptions::add(const SplitOptions& other) {
  image.insert(image.end(), other.image.begin(), other.image.end());
  check(context.empty() || other.context.empty() || context == other.context, "split",
        "context cuts texts along '{}' and along '{}': leave one of the two out", context, other.context);
  if (!other.context.empty()) {
    context = other.context;
    context_mode = other.context_mode;
    context_cut = other.context_cut;
  }
  check(tensor.empty() || other.tensor.empty() || tensor == other.tensor, "split",
        "tensor divides weights along '{}' and along '{}': leave one of the two out, or use place(..., axis={})",
        tensor, other.tensor, other.tensor);
  if (!other.tensor.empty()) tensor = other.tensor;
  sequence = sequence || other.sequence;
  placements.insert(placements.end(), other.placements.begin(), other.placements.end());
  experts.insert(experts.end(), other.experts.begin(), other.experts.end());
  if (!other.one_weird_trick.empty()) one_weird_trick = other.one_weird_trick;
  check(one_weird_trick.empty() ||
            (image.empty() && context.empty() && tensor.empty() && experts.empty() && placements.empty()),
        "split",
        "one_weird_trick gathers the batch of all ranks, so no other strategy can split layers: use either "
        "one_weird_trick, or spatial, context, tensor, experts and place");
}

std::vector<std::string> SplitOptions::sample_axes() const {
  std::vector<std::string> axes = image;
  if (!context.empty()) axes.push_back(context);
  return axes;
}

std::vector<std::string> SplitOptions::apart_axes() const {
  std::vector<std::string> used = sample_axes(), axes;
  for (const std::string& name : cut_axes(*this)) used.push_back(name);
  for (const std::string& name : experts)
    if (std::ranges::count(used, name) == 0) axes.push_back(name);
  return axes;
}

std::vector<std::string> weight_axes(const SplitOptions& o) {
  std::vector<std::string> axes = cut_axes(o);
  for (const std::string& name : o.experts)
    if (std::ranges::count(axes, name) == 0) axes.push_back(name);
  return axes;
}

std::shared_ptr<const Grid> grid_of(const Parameters& parameters) {
  for (const auto& e : parameters.entries())
    if (e.tensor.shard_spec()) return std::static_pointer_cast<const Grid>(e.tensor.shard_spec()->shared_mesh());
  return nullptr;
}

namespace {
std::string names_of(const RankMesh& mesh, AxisMask axes) {
  std::string names;
  for (int i = 0; i < mesh.axes(); ++i)
    if (axes >> i & 1) names += (names.empty() ? "" : "+") + mesh.name(i);
  return names;
}
}  // namespace

std::string divided_over(const Tensor& weight) {
  const ShardSpec* spec = weight.shard_spec();
  return spec ? names_of(spec->mesh(), spec->placements().axes()) : "";
}

std::map<std::string, std::vector<Slice>> divided_slices(const Parameters& parameters, const Slice& slice) {
  std::map<std::string, std::vector<Slice>> all;
  std::map<std::string, bool> parts;  // whether the last slice is of parts
  const auto& entries = parameters.entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const ShardSpec* spec = entries[i].tensor.shard_spec();
    if (!spec || !entries[i].slice.overlaps(slice)) continue;
    const std::string axis =
        names_of(spec->mesh(), spec->placements().axes() | (spec->mesh().summed() & ~spec->summed()));
    if (axis.empty()) continue;
    const Index end = i + 1 == entries.size() ? parameters.size() : entries[i + 1].slice.begin;
    std::vector<Slice>& along = all[axis];
    const bool joins = std::exchange(parts[axis], is_part(entries[i].tensor)) == is_part(entries[i].tensor);
    if (joins && !along.empty() && along.back().end == entries[i].slice.begin)
      along.back().end = end;
    else
      along.push_back({entries[i].slice.begin, end});
  }
  return all;
}

Module split(const Module& given, Mesh& mesh, const SplitOptions& o, const Tensor& example, bool leaves_axes_out) {
  check_axes(mesh, o);
  Module model = given;
  std::vector<std::string> axes;
  for (const std::string& name : o.sample_axes())
    if (std::ranges::find(axes, name) == axes.end()) axes.push_back(name);
  std::vector<std::string> grad_reduce_axes = axes;
  for (const std::string& name : weight_axes(o))
    if (name != o.one_weird_trick && std::ranges::count(axes, name) == 0) axes.push_back(name);
  if (o.sequence) grad_reduce_axes.push_back(o.tensor);
  if (!o.one_weird_trick.empty()) {
    axes.push_back(o.one_weird_trick);
    grad_reduce_axes.push_back(o.one_weird_trick);
  }
  const auto grid = std::make_shared<const Grid>(mesh, axes, grad_reduce_axes,
                                                 Grid::Roles{.rows = o.one_weird_trick,
                                                             .sequence = o.sequence ? o.tensor : "",
                                                             .context = o.context,
                                                             .apart = o.apart_axes(),
                                                             .context_mode = o.context_mode,
                                                             .context_cut = o.context_cut});
  if (grid->axes() == 0) return model;
  model.visit(StateVisitor([](const NamedState& leaf) {
    check(!leaf.tensor->shard_spec(), "split", "'{}' is split already; make the model anew", leaf.name);
    check(!leaf.tensor->requires_grad(), "split",
          "'{}' already lives in Parameters; split the model before making them", leaf.name);
  }));
  const Enter enter{grid, o.context};
  std::function<void()> forward;
  if (example) forward = [&] { run_dry(model, mesh, enter, example); };
  divide_weights(model, grid, o, forward, leaves_axes_out);

  const Sequential* row = model.as<Sequential>();
  if (!row) return Between{enter, model, {enter}};
  Sequential whole;
  whole.add("split", enter);
  for (std::size_t i = 0; i < row->size(); ++i) whole.add(row->name(i), (*row)[i]);
  return whole.add("join", Leave{enter});
}

}  // namespace trireme
