#include "framework/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/move.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

double squares_of(const FlatBuffer& flat, const Slice& slice) {
  double all = 0;
  for (const double part : flat.squares(flat.cut(slice))) all += part;
  return all;
}
Slice common_of(const Slice& a, const Slice& b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

}  // namespace

Optimizer::Optimizer(ParameterStore& parameters, OptimizerConfig config, OptimizerOptions options)
    : parameters_(parameters), config_(std::move(config)), options_(options), kept_{{0, parameters.size()}} {
  config_.validate();
  rate();
  if (!(options_.clip_norm >= 0))
    fail(name(), "clip_norm is {}, expected at least 0 (0: no clipping)", options_.clip_norm);

  const auto& entries = parameters_.entries();
  if (!(options_.clip_value >= 0))
    fail(name(), "clip_value is {}, expected at least 0 (0: no clipping)", options_.clip_value);
  std::vector<bool> used(options_.groups.size());
  const bool per_tensor = config_.has_trust_ratio();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const ParameterStore::Entry& e = entries[i];
    const Index end = i + 1 < entries.size() ? entries[i + 1].slice.begin : parameters_.size();
    double weight_decay = options_.decay_biases || e.kind == StateKind::weight ? config_.weight_decay() : 0, factor = 1;
    for (std::size_t g = 0; g < options_.groups.size(); ++g) {
      const ParameterGroup& group = options_.groups[g];
      if (!matches(group.names, e.name)) continue;
      if (!(group.lr_factor >= 0) || !(group.weight_decay.value_or(0) >= 0))
        fail(name(), "group '{}' has lr_factor {} and weight_decay {}, expected at least 0", group.names,
             group.lr_factor, group.weight_decay.value_or(0));
      used[g] = true;
      factor = group.lr_factor;
      weight_decay = group.weight_decay.value_or(weight_decay);
      break;
    }
    Range* last = ranges_.empty() ? nullptr : &ranges_.back();
    const bool joins = last && last->weight_decay == weight_decay && last->lr_factor == factor &&
                       last->entry->tensor.device() == e.tensor.device() &&
                       (!per_tensor || (e.kind == StateKind::no_decay && last->entry->kind == StateKind::no_decay));
    if (joins)
      last->slice.end = end;
    else
      ranges_.push_back({{e.slice.begin, end}, &e, weight_decay, factor});
  }
  for (std::size_t g = 0; g < used.size(); ++g)
    if (!used[g])
      fail(name(),
           "no parameter is left for the group '{}' (the first group that matches applies): correct its pattern",
           options_.groups[g].names);
}

Optimizer::Optimizer(ParameterStore& parameters, const Optimizer& other)
    : Optimizer(parameters, other.config_, other.options_) {
  check(parameters.spec() == other.parameters_.spec(), "optimizer",
        "the two stores do not have the same tensors at the same positions: make one a clone() of the other");
  kept_ = other.kept_;
  steps_ = other.steps_;
  loss_scale_ = other.loss_scale_;
  if (!other.allocated_) return;
  allocate();
  for (std::size_t i = 0; i < state_.size(); ++i)
    for (std::size_t b = 0; b < state_[i].second.blocks().size(); ++b)
      copy_unnoted(state_[i].second.blocks()[b], other.state_[i].second.blocks()[b]);
}

void Optimizer::allocate_once() const {
  const std::lock_guard lock(allocation_);
  if (!allocated_) allocate();
}

void Optimizer::allocate() const {
  std::vector<FlatBuffer::Extent> extents;
  for (const Slice& kept : kept_)
    for (const Slice& part : parameters_.values().cut(kept))
      extents.push_back({part.size(), options_.store.value_or(parameters_.values().device_of(part.begin))});
  std::vector<std::pair<std::string, FlatBuffer>> all;
  for (const OptimizerState& s : config_.state())
    all.emplace_back(s.name, FlatBuffer(extents, s.initial, parameters_.dtype()));
  state_ = std::move(all);
  allocated_ = true;
}

void Optimizer::keep(const std::vector<Slice>& slices) {
  if (slices == kept_) return;
  const std::lock_guard lock(allocation_);
  const auto old_slices = std::exchange(kept_, slices);
  if (!allocated_) return;
  const auto old = std::exchange(state_, {});
  allocate();
  for (std::size_t i = 0; i < old.size(); ++i) {
    Index from = 0;
    for (const Slice& o : old_slices) {
      Index to = 0;
      for (const Slice& s : kept_) {
        for (const Slice& both : parameters_.values().cut(common_of(o, s)))
          state_[i]
              .second.rows(to + both.begin - s.begin, to + both.end - s.begin)
              .copy_from(old[i].second.rows(from + both.begin - o.begin, from + both.end - o.begin));
        to += s.size();
      }
      from += o.size();
    }
  }
}

double Optimizer::rate() const {
  const double lr = config_.lr()(steps_ / updates_per_step_);
  if (!(lr >= 0 && std::isfinite(lr))) fail(name(), "lr is {} at step {}, expected at least 0, and finite", lr, steps_);
  return lr;
}

void Optimizer::step() {
  parameters_.zero_missing_grads();
  ratios_.clear();
  update({0, parameters_.size()}, clip_scale());
  finish();
}

void Optimizer::update(Slice slice, double grad_scale) {
  check_inside(slice);
  const bool finds_ratios = config_.has_trust_ratio() && ratios_.empty();
  if (finds_ratios) {
    for (const ParameterStore::Entry& e : parameters_.entries())
      if (e.kind == StateKind::weight && common_of(slice, e.slice).size() > 0 && common_of(slice, e.slice) != e.slice)
        fail(
            name(),
            "slice [{}, {}) cuts '{}' in two, and the rate needs the norm of the whole tensor: call start_update() and "
            "set_squares() before",
            slice.begin, slice.end, e.name);
    set_squares(start_update({slice}, grad_scale));
  }
  each_part(slice, [&](std::size_t i, const Slice& part, Index state_begin) {
    const Range& range = ranges_[i];
    OptimizerUpdate u = arguments(range, part, state_begin, grad_scale);
    if (config_.has_trust_ratio()) {  // it multiplies g + weight_decay v, so it goes into both factors
      u.grad_scale = ratios_[i] * (config_.has_direction() ? 1 : u.grad_scale);
      u.weight_decay *= ratios_[i];
    } else {
      clip_values(part);
    }
    config_.update(u);
    const Tensor home = parameters_.values().rows(part.begin, part.end);
    if (u.value.device() != home.device()) copy_unnoted(home, u.value);
  });
  if (finds_ratios) ratios_.clear();
  parameters_.count_update(slice);
}

Tensor Optimizer::start_update(const std::vector<Slice>& slices, double grad_scale, AxisMask but) {
  const auto& entries = parameters_.entries();
  const double factor = config_.has_direction() ? 1 : grad_scale / loss_scale_;
  const Tensor none = Tensor::zeros({2, std::ssize(entries)}, DType::f64), all = none.clone();
  std::map<AxisMask, std::pair<const ShardSpec*, Tensor>> parts;  // by the axes that divide them
  for (const ParameterStore::Entry& e : entries)                  // other holders may have parts in their slices only
    if (is_part(e.tensor))
      parts.try_emplace(e.tensor.shard_spec()->placements().axes(), e.tensor.shard_spec(), none.clone());
  std::vector<Slice> found;
  std::vector<std::size_t> of;  // their entries
  ratios_.clear();
  for (const Slice& slice : slices) check_inside(slice);
  for (const Slice& slice : slices) {
    parameters_.zero_missing_grads(slice);
    each_part(slice, [&](std::size_t i, const Slice& part, Index state_begin) {
      clip_values(part);
      const Range& range = ranges_[i];
      if (config_.has_direction()) {
        const OptimizerUpdate u = arguments(range, part, state_begin, grad_scale);
        config_.direction(u);
        const Tensor home = parameters_.grads().rows(part.begin, part.end);
        if (u.grad.device() != home.device()) copy_unnoted(home, u.grad);
      }
      if (range.entry->kind != StateKind::weight) return;
      const Slice mine = common_of(part, range.entry->slice);
      if (mine.size() <= 0) return;
      found.push_back(mine);
      of.push_back(static_cast<std::size_t>(range.entry - entries.data()));
    });
  }
  const std::vector<double> values = parameters_.values().squares(found), grads = parameters_.grads().squares(found);
  for (std::size_t k = 0; k < found.size(); ++k) {
    const Tensor& tensor = entries[of[k]].tensor;
    auto* to = (is_part(tensor) ? parts.at(tensor.shard_spec()->placements().axes()).second : all).data<double>();
    to[of[k]] += values[k];
    to[entries.size() + of[k]] += grads[k] * factor * factor;
  }
  for (const auto& [axes, part] : parts) {
    part.first->sum(part.second, but);
    launch<kernel::Axpby>(all, part.second, 1.0, 1.0);
  }
  return all;
}

void Optimizer::set_squares(const Tensor& squares) {
  const auto& entries = parameters_.entries();
  if (squares.shape() != Shape{2, std::ssize(entries)} || squares.dtype() != DType::f64)
    fail(name(), "set_squares() got {} {}, expected f64 [2, {}] from start_update()", squares.dtype(), squares.shape(),
         std::ssize(entries));
  const auto* at = squares.data<double>();
  ratios_.assign(ranges_.size(), 1.0);
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    if (ranges_[i].entry->kind != StateKind::weight) continue;
    const auto entry = static_cast<std::size_t>(ranges_[i].entry - entries.data());
    ratios_[i] =
        config_.trust_ratio(std::sqrt(at[entry]), std::sqrt(at[entries.size() + entry]), ranges_[i].weight_decay);
  }
}

void Optimizer::check_inside(const Slice& slice) const {
  if (slice.begin < 0 || slice.end < slice.begin || slice.end > parameters_.size())
    fail(name(), "slice [{}, {}) lies outside the {} parameters", slice.begin, slice.end, parameters_.size());
  Index kept = 0;
  for (const Slice& k : kept_) kept += std::max<Index>(0, common_of(slice, k).size());
  if (kept != slice.size())
    fail(name(), "slice [{}, {}) is to be updated, but state is kept for other slices", slice.begin, slice.end);
}

template <class F>
void Optimizer::each_part(const Slice& slice, F f) const {
  Index at = 0;  // of the state
  for (const Slice& kept : kept_) {
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      const Slice part = common_of(common_of(slice, kept), ranges_[i].slice);
      if (part.size() > 0) f(i, part, at + part.begin - kept.begin);
    }
    at += kept.size();
  }
}

OptimizerUpdate Optimizer::arguments(const Range& range, const Slice& part, Index state_begin,
                                     double grad_scale) const {
  const Tensor value = parameters_.values().rows(part.begin, part.end);
  const Device store = options_.store.value_or(value.device());
  std::vector<Tensor> own;
  for (const auto& [name, all] : state()) own.push_back(all.rows(state_begin, state_begin + part.size()));
  return {.value = value.to(store),
          .grad = parameters_.grads().rows(part.begin, part.end).to(store),
          .state = std::move(own),
          .lr = rate() * range.lr_factor,
          .weight_decay = range.weight_decay,
          .grad_scale = grad_scale / loss_scale_,
          .step = steps_};
}

void Optimizer::clip_values(const Slice& part) const {
  if (options_.clip_value <= 0) return;
  const Tensor grad = parameters_.grads().rows(part.begin, part.end);
  const double bound = options_.clip_value * loss_scale_;
  launch<kernel::Map<pointwise::Clamp>>(grad, grad, pointwise::Clamp{-bound, bound});
}

void Optimizer::finish() {
  ++steps_;
  ratios_.clear();
  for (const Tensor& block : parameters_.values().blocks()) note_write(block);
  parameters_.clear_grads();
}

double Optimizer::grad_norm(const std::vector<Slice>& slices, AxisMask but) const {
  // Values that all holders have are summed separately from their parts, so that each rank gets the same bits.
  double all = 0;
  std::map<AxisMask, std::pair<const ShardSpec*, double>> parts;  // by the axes that divide them
  for (const ParameterStore::Entry& e : parameters_.entries())    // other holders may have parts in their slices only
    if (is_part(e.tensor)) parts.try_emplace(e.tensor.shard_spec()->placements().axes(), e.tensor.shard_spec(), 0.0);
  for (const Slice& slice : slices) {
    parameters_.zero_missing_grads(slice);
    // Entries that are whole, joined with the padding between them. Padding after a part differs by rank and stays out:
    // it would move the elements of the sum.
    Index begin = slice.end;
    const auto close = [&](Index end) {
      if (begin < end) all += squares_of(parameters_.grads(), {begin, end});
      begin = slice.end;
    };
    for (const ParameterStore::Entry& e : parameters_.entries()) {
      const Slice mine = common_of(e.slice, slice);
      if (is_part(e.tensor)) {
        close(std::clamp(e.slice.begin, slice.begin, slice.end));
        if (mine.size() > 0)
          parts.at(e.tensor.shard_spec()->placements().axes()).second += squares_of(parameters_.grads(), mine);
      } else if (mine.size() > 0) {
        begin = std::min(begin, mine.begin);
      }
    }
    close(slice.end);
  }
  for (const auto& [axes, part] : parts) {
    const Tensor sum = Tensor::full({}, part.second, DType::f64);
    part.first->sum(sum, but);
    all += sum.item();
  }
  return std::sqrt(all) / loss_scale_;
}

bool Optimizer::has_finite_values(const std::vector<Slice>& slices) const {
  return std::ranges::all_of(
      slices, [&](const Slice& s) { return s.size() == 0 || std::isfinite(squares_of(parameters_.values(), s)); });
}

bool Optimizer::wants_norm() const {
  return options_.clip_norm > 0 || options_.check_finite || config_.has_trust_ratio();
}

double Optimizer::clip_scale(double norm) const {
  refuse_non_finite(norm);
  return options_.clip_norm > 0 ? std::min(1.0, options_.clip_norm / (norm + 1e-6)) : 1;
}

void Optimizer::refuse_non_finite(double norm) const {
  if (std::isfinite(norm)) return;
  const ParameterStore::Entry* bad = parameters_.first_non_finite_grad();
  fail(ErrorKind::numerics, name(),
       "the gradient of '{}' is not finite at step {}; lower the learning rate (now {}) or look for bad input",
       bad ? bad->name : "all parameters together", steps_, rate());
}

}  // namespace trireme
