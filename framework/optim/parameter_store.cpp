#include "framework/optim/parameter_store.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/move.h"
#include "kernels/core/runtime.h"

namespace trireme {
namespace {

constexpr Index alignment = 16;  // elements: 64 bytes of f32, a cache line

Index aligned(Index n) { return (n + alignment - 1) / alignment * alignment; }

[[noreturn]] void refuse_owned(const std::string& name) {
  fail("parameters",
       "'{}' is in Parameters already (a Step has its own): use those, or destroy them first, since two cannot own the "
       "same weights",
       name);
}

/// Throws Error naming the tensor in which a model differs from a store.
void refuse_difference(const std::vector<TensorSpec>& model, const std::vector<TensorSpec>& store) {
  const auto [here, there] = std::ranges::mismatch(model, store);
  const auto line = [](const auto at, const auto end) { return at == end ? "nothing more" : to_string(*at); };
  check(
      here == model.end() && there == store.end(), "parameters",
      "the model is not the store's: its tensor {} is '{}', in the store '{}'", here - model.begin(),
      [&] { return line(here, model.end()); }, [&] { return line(there, store.end()); });
}

/// The part of a flat block for an entry, in the entry's shape.
Tensor part(const FlatBuffer& flat, const ParameterStore::Entry& e) {
  return flat.rows(e.slice.begin, e.slice.end).reshape(e.tensor.shape());
}

void copy_blocks(const FlatBuffer& to, const FlatBuffer& from) {
  for (std::size_t i = 0; i < to.blocks().size(); ++i) copy_unnoted(to.blocks()[i], from.blocks()[i]);
}

/// Makes a handle show another handle's memory and place on the tape.
void show(const Tensor& handle, const Tensor& other) {
  Tensor::Impl& to = *handle.impl();
  const Tensor::Impl& from = *other.impl();
  to.block = from.block;
  to.offset = from.offset;
  to.released = from.released;
  to.node = from.node;
}
/// Marks whether a model shows another store's tensor in place of this one.
void say_elsewhere(const Tensor& t, bool elsewhere) {
  if (const auto& node = t.impl()->node; node && node->leaf) node->leaf->elsewhere = elsewhere;
}

}  // namespace

/// The tensors of a model's layers, each once.
struct ParameterStore::NamedTensors {
  StoreSpec spec;
  std::vector<Tensor> handles;  // of spec.tensors, then of spec.buffers
  std::vector<bool> drawn;      // of spec.tensors: whether it has an Init
  const std::string& name(std::size_t i) const {
    const std::size_t n = spec.tensors.size();
    return (i < n ? spec.tensors[i] : spec.buffers[i - n]).name;
  }
  /// Different tensors that share a block would be separated.
  void refuse_shared_memory() const {
    struct Extent {
      const std::byte *begin, *end;
      std::size_t tensor;
    };
    std::vector<Extent> all;
    for (std::size_t i = 0; i < handles.size(); ++i) {
      const Tensor host = detail::host_of(handles[i]);
      const auto* at = (host ? host : handles[i]).data<std::byte>();
      if (handles[i].numel() > 0) all.push_back({at, at + handles[i].numel() * size_of(handles[i].dtype()), i});
    }
    std::stable_sort(all.begin(), all.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < all.size(); ++i)
      check(
          all[i].begin >= all[i - 1].end, "parameters",
          "'{}' and '{}' share memory, but are two tensors (a reshape, detach or rows of one, say): give both layers "
          "the same Tensor, or one of them a clone()",
          [&] { return name(all[i - 1].tensor); }, [&] { return name(all[i].tensor); });
  }
};

/// A model, and the store whose memory its layers' tensors use.
struct ParameterStore::Binding {
  Module model;
  std::vector<Tensor> handles;  // as NamedTensors
  std::weak_ptr<State> bound;   // the store whose memory they use
};

ParameterStore::NamedTensors ParameterStore::named_tensors(Module& model) {
  check(bool(model), "parameters", "the model is empty");
  NamedTensors all;
  std::set<std::string> names;
  std::set<const void*> seen;
  std::vector<Tensor> buffers;
  const auto enter = [&](const NamedState& leaf) {
    const Tensor& t = *leaf.tensor;
    check(names.insert(leaf.name).second, "parameters", "two tensors are called '{}'; name each part once in visit()",
          leaf.name);
    if (!seen.insert(t.id()).second) return;
    const bool trained = leaf.kind != StateKind::buffer;
    const Index begin = trained ? all.spec.size : 0;
    (trained ? all.spec.tensors : all.spec.buffers)
        .push_back({leaf.name, leaf.kind, leaf.layout, begin, t.shape(), t.dtype(), t.device()});
    (trained ? all.handles : buffers).push_back(t);
    if (trained) all.drawn.push_back(bool(leaf.init));
    if (trained) all.spec.size = aligned(begin + (t.shard_spec() ? t.shard_spec()->max_local_numel() : t.numel()));
  };
  model.visit(StateVisitor(enter, [](const std::string& name, std::uint64_t& key) { key = key_of_name(name); }));
  all.handles.insert(all.handles.end(), buffers.begin(), buffers.end());
  return all;
}

ParameterStore::ParameterStore(const StoreSpec& spec) : state_(std::make_shared<State>()) {
  allocate(spec, nullptr, false);
}

ParameterStore::ParameterStore(Module model, bool drawn_later) : state_(std::make_shared<State>()) {
  NamedTensors found = named_tensors(model);
  for (std::size_t i = 0; i < found.spec.tensors.size(); ++i)
    if (detail::owner_of(found.handles[i])) refuse_owned(found.name(i));
  check(!found.spec.tensors.empty(), "parameters",
        "the model has no weights to train; do its layers have visit() members?");
  found.refuse_shared_memory();
  allocate(found.spec, &found, drawn_later);
  state_->binding = std::make_shared<Binding>(Binding{std::move(model), std::move(found.handles), {}});
  bind();
}

/// of_model: the tensors whose values, autograd leaves and buffer memory the store takes over; null: zeros.
void ParameterStore::allocate(const StoreSpec& spec, const NamedTensors* of_model, bool drawn_later) {
  spec.validate();
  const NoGrad nothing_recorded;
  State& s = *state_;
  std::vector<FlatBuffer::Extent> extents;
  for (std::size_t i = 0; i < spec.tensors.size(); ++i) {
    const Index end = i + 1 < spec.tensors.size() ? spec.tensors[i + 1].begin : spec.size;
    extents.push_back({end - spec.tensors[i].begin, spec.tensors[i].device});
  }
  const DType dtype = spec.tensors.front().dtype;
  s.values = FlatBuffer(extents, 0, dtype, drawn_later);
  s.grads = FlatBuffer(extents, 0, dtype, drawn_later);
  for (const TensorSpec& t : spec.tensors) {
    const Slice slice{t.begin, t.begin + t.shape.numel()};
    Tensor own = s.values.rows(slice.begin, slice.end).reshape(t.shape);
    if (of_model) {
      Tensor given = of_model->handles[s.own.size()];
      if (!drawn_later || !of_model->drawn[s.own.size()]) {
        const View v = own.view();
        if (drawn_later) runtime(v.device.kind).restore(v.data, static_cast<std::size_t>(v.bytes()), v.device);
        const Tensor host = detail::host_of(given);
        copy_to_zeros(own, host ? host : given);
      }
      own.impl()->node = given.require_grad().impl()->node;
      own.impl()->shard_spec = given.impl()->shard_spec;
    }
    s.entries.push_back({t.name, own.require_grad(), t.kind, t.layout, slice});
    own.clear_grad();
    detail::set_grad_block(own, s.grads.rows(t.begin, &t == &spec.tensors.back() ? spec.size : (&t)[1].begin));
    if (drawn_later && t.device.kind != DeviceKind::cpu) detail::set_grad_given_back(own);
    detail::set_owner(own, state_);
    s.own.push_back(own);
  }
  for (const TensorSpec& t : spec.buffers) {
    const Tensor given = of_model ? of_model->handles[s.own.size()] : Tensor::zeros(t.shape, t.dtype, t.device);
    s.own.push_back(given.detach());
    s.own.back().impl()->node = given.impl()->node;
    s.buffers.push_back({t.name, s.own.back(), t.layout});
  }
}

/// Calls f(handle in entries or buffers, handle of the store's own) for each tensor.
template <class F>
void ParameterStore::each_handle(State& s, F f) {
  auto own = s.own.begin();
  for (Entry& e : s.entries) f(e.tensor, *own++);
  for (Buffer& b : s.buffers) f(b.tensor, *own++);
}

void ParameterStore::bind() {
  check(state_->binding != nullptr, "parameters", "the store has no model to compute with: bind(model) gives it one");
  Binding& b = *state_->binding;
  const std::shared_ptr<State> before = b.bound.lock();
  if (before == state_) return;
  for (std::size_t i = 0; i < state_->entries.size(); ++i)
    if (const auto owner = detail::owner_of(b.handles[i]); owner && owner != before && owner != state_)
      refuse_owned(state_->entries[i].name);
  if (before)
    each_handle(*before, [](Tensor& in_use, const Tensor& own) {
      show(own, in_use);
      in_use = own;
    });
  auto layers = b.handles.begin();
  each_handle(*state_, [&](Tensor& in_use, const Tensor& own) {
    say_elsewhere(*layers, true);
    show(*layers, own);
    say_elsewhere(own, false);
    in_use = *layers++;
  });
  b.bound = state_;
}

void ParameterStore::bind(Module model) {
  NamedTensors found = named_tensors(model);
  const StoreSpec mine = spec();
  refuse_difference(found.spec.tensors, mine.tensors);
  refuse_difference(found.spec.buffers, mine.buffers);
  std::shared_ptr<Binding> binding;
  if (const auto owner = std::static_pointer_cast<const State>(detail::owner_of(found.handles.front()))) {
    binding = owner->binding;
    const auto same = [](const Tensor& a, const Tensor& b) { return a.id() == b.id(); };
    if (!binding || !std::ranges::equal(binding->handles, found.handles, same)) refuse_owned(found.name(0));
  } else {
    found.refuse_shared_memory();
    for (std::size_t i = 0; i < mine.tensors.size(); ++i) found.handles[i].require_grad();
    binding = std::make_shared<Binding>(Binding{std::move(model), std::move(found.handles), {}});
  }
  if (is_bound()) {
    check(binding == state_->binding, "parameters",
          "the store is bound to another model: bind another store (a clone(), for example) to that model first");
    return;
  }
  for (std::size_t i = 0; i < state_->own.size(); ++i)
    state_->own[i].impl()->shard_spec = binding->handles[i].impl()->shard_spec;
  state_->binding = std::move(binding);
  bind();
}

std::map<std::string, std::string> ParameterStore::ties() const {
  std::map<const void*, std::string> entered;
  std::map<std::string, std::string> ties;
  if (state_->binding)
    for (const NamedState& t : trireme::named_tensors(state_->binding->model))
      if (const auto [at, first] = entered.try_emplace(t.tensor->id(), t.name); !first) ties[t.name] = at->second;
  return ties;
}

bool ParameterStore::is_bound() const { return state_->binding && state_->binding->bound.lock() == state_; }

StoreSpec ParameterStore::spec() const {
  StoreSpec spec{.tensors = {}, .buffers = {}, .size = size()};
  const auto about = [](const auto& e, StateKind kind, Index begin) {
    const Tensor& t = e.tensor;
    return TensorSpec{e.name, kind, e.layout, begin, t.shape(), t.dtype(), t.device()};
  };
  for (const Entry& e : entries()) spec.tensors.push_back(about(e, e.kind, e.slice.begin));
  for (const Buffer& b : buffers()) spec.buffers.push_back(about(b, StateKind::buffer, 0));
  return spec;
}

ParameterStore ParameterStore::clone() const {
  ParameterStore copy(spec());
  State& to = *copy.state_;
  for (std::size_t i = 0; i < entries().size(); ++i)
    to.own[i].impl()->shard_spec = detail::stored(entries()[i].tensor.impl(), "clone").shard_spec;
  copy_blocks(to.values, values());
  for (std::size_t i = 0; i < buffers().size(); ++i) copy_unnoted(to.buffers[i].tensor, buffers()[i].tensor);
  for (const auto& [name, flat] : states()) copy_blocks(copy.add_state(name, 0, flat.dtype()), flat);
  to.versions = state_->versions;
  to.binding = state_->binding;
  return copy;
}

FlatBuffer ParameterStore::add_state(const std::string& name, double initial, std::optional<DType> dtype) {
  const auto same = [&](const auto& s) { return s.first == name; };
  check(std::ranges::none_of(states(), same), "parameters", "there is a state named '{}' already: choose another name",
        name);
  std::vector<FlatBuffer::Extent> extents;
  for (const Tensor& block : values().blocks()) extents.push_back({block.numel(), block.device()});
  return state_->states.emplace_back(name, FlatBuffer(extents, initial, dtype.value_or(this->dtype()))).second;
}

const FlatBuffer& ParameterStore::state(const std::string& name) const {
  const auto at = std::ranges::find_if(states(), [&](const auto& s) { return s.first == name; });
  check(at != states().end(), "parameters", "there is no state called '{}': add_state() makes it", name);
  return at->second;
}

SliceVersions& ParameterStore::tracked(const Slice& s) const {
  check(state_->versions.has_value(), "parameters", "versions are not counted: call track_versions() first");
  check(0 <= s.begin && s.begin <= s.end && s.end <= size(), "parameters", "slice [{}, {}) lies outside of [0, {})",
        s.begin, s.end, size());
  return *state_->versions;
}

Index ParameterStore::count() const {
  Index n = 0;
  for (const Entry& e : entries())
    n += e.tensor.shard_spec() ? e.tensor.shard_spec()->global_shape().numel() : e.slice.size();
  return n;
}

void ParameterStore::clear_grads() {
  for (const Entry& e : entries()) e.tensor.clear_grad();
}

std::vector<std::string> ParameterStore::zero_missing_grads(Slice within) {
  std::vector<std::string> missing;
  for (const Entry& e : entries()) {
    if (e.slice.end <= within.begin || within.end <= e.slice.begin || detail::has_grad_or_zeros(e.tensor)) continue;
    detail::restore_grad(e.tensor);
    launch<kernel::Fill>(part(grads(), e), 0.0);
    detail::set_grad_zeroed(e.tensor);
    missing.push_back(e.name);
  }
  return missing;
}

std::vector<bool> ParameterStore::written_grads() const {
  std::vector<bool> written;
  for (const Entry& e : entries()) written.push_back(has_grad(e.tensor));
  return written;
}
void ParameterStore::set_written_grads(const std::vector<bool>& written) {
  check(written.size() == entries().size(), "parameters", "got {} marks for {} tensors, expected one per tensor",
        written.size(), entries().size());
  for (std::size_t i = 0; i < entries().size(); ++i) detail::set_has_grad(entries()[i].tensor, written[i]);
}
void ParameterStore::mark_written(const Slice& slice) {
  for (const Entry& e : entries())
    if (e.slice.overlaps(slice)) detail::set_has_grad(e.tensor, true);
}

void ParameterStore::mark_released(const Slice& slice, bool released) {
  for (const Entry& e : entries())
    if (e.slice.overlaps(slice)) e.tensor.impl()->released = released;
}

const ParameterStore::Entry* ParameterStore::first_non_finite_grad() const {
  return first_non_finite(grads(), [](const Entry& e) {
    const detail::LeafState& leaf = *e.tensor.impl()->node->leaf;
    return detail::has_grad_or_zeros(e.tensor) && !leaf.given_back ? e.slice : Slice{};
  });
}

const ParameterStore::Entry* ParameterStore::first_non_finite_value(const std::vector<Slice>& updated) const {
  for (const Slice& s : updated)
    if (const Entry* found = first_non_finite(values(), [&](const Entry& e) {
          return Slice{std::max(e.slice.begin, s.begin), std::min(e.slice.end, s.end)};
        }))
      return found;
  return nullptr;
}

const ParameterStore::Entry* ParameterStore::first_non_finite(const FlatBuffer& all,
                                                              const std::function<Slice(const Entry&)>& part_of) const {
  std::vector<Slice> parts;
  for (const Entry& e : entries()) parts.push_back(part_of(e));
  const std::vector<double> squares = all.squares(parts);
  for (std::size_t i = 0; i < entries().size(); ++i)
    if (!std::isfinite(squares[i])) return &entries()[i];
  return nullptr;
}

ParameterStore::Entry* ParameterStore::find(const std::string& name) {
  for (Entry& e : state_->entries)
    if (e.name == name) return &e;
  return nullptr;
}

}  // namespace trireme
