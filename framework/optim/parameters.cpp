#include "framework/optim/parameters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "framework/autograd/tape.h"
#include "framework/layers/module.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/move.h"

namespace trireme {
namespace {

constexpr Index alignment = 16;  // elements: 64 bytes of f32, a cache line

Index aligned(Index n) { return (n + alignment - 1) / alignment * alignment; }

void same_type(const Parameters::Entry& e, const Parameters::Entry& first) {
  check(e.tensor.dtype() == DType::f32 || e.tensor.dtype() == DType::f64, "parameters",
        "'{}' is {}, expected f32 or f64; call convert(model, ...) first", e.name, e.tensor.dtype());
  check(e.tensor.dtype() == first.tensor.dtype(), "parameters",
        "'{}' is {} but '{}' is {}; call convert(model, ...) first", e.name, e.tensor.dtype(), first.name,
        first.tensor.dtype());
}

/// Tensors that are one block's under several handles would be torn apart.
void refuse_shared_memory(const std::vector<Parameters::Entry>& entries,
                          const std::vector<Parameters::Buffer>& buffers) {
  struct Extent {
    const std::byte *begin, *end;
    const std::string* name;
  };
  std::vector<Extent> all;
  const auto add = [&](const Tensor& t, const std::string& name) {
    const auto* at = t.data<std::byte>();
    if (t.numel() > 0) all.push_back({at, at + t.view().bytes(), &name});
  };
  for (const auto& e : entries) add(e.tensor, e.name);
  for (const auto& b : buffers) add(b.tensor, b.name);
  std::stable_sort(all.begin(), all.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < all.size(); ++i)
    check(
        all[i].begin >= all[i - 1].end, "parameters",
        "'{}' and '{}' share memory, but are two tensors (a reshape, detach or rows of one, say): give both layers the "
        "same Tensor, or one of them a clone()",
        *all[i - 1].name, *all[i].name);
}

/// The part of a flat block behind an entry, in the entry's shape.
Tensor part(const FlatBuffer& flat, const Parameters::Entry& e) {
  return flat.rows(e.slice.begin, e.slice.end).reshape(e.tensor.shape());
}

}  // namespace

Parameters::Parameters(Module model) : model_(std::move(model)), owner_(std::make_shared<char>()) {
  check(bool(model_), "parameters", "the model is empty");
  std::set<std::string> names;
  std::set<const void*> seen;
  Index size = 0;
  auto enter = [&](const NamedState& leaf) {
    const Tensor& t = *leaf.tensor;
    check(names.insert(leaf.name).second, "parameters", "two tensors are called '{}'; name each part once in visit()",
          leaf.name);
    if (!seen.insert(t.id()).second) return;
    check(!detail::owned(t), "parameters",
          "'{}' already lives in Parameters (a Step has its own): use those, or let them end first; two would take the "
          "weights away from each other",
          leaf.name);
    if (leaf.use == StateKind::buffer) {
      buffers_.push_back({leaf.name, t, leaf.layout});
      return;
    }
    entries_.push_back({leaf.name, t, leaf.use, leaf.layout, {size, size + t.numel()}});
    size = aligned(size + (t.shard_spec() ? t.shard_spec()->max_local_numel() : t.numel()));
  };
  model_.visit(StateVisitor(enter, [](const std::string& name, std::uint64_t& key) { key = key_of_name(name); }));
  check(!entries_.empty(), "parameters", "the model has no weights to train; do its layers have visit() members?");
  for (const Entry& e : entries_) same_type(e, entries_.front());
  refuse_shared_memory(entries_, buffers_);

  const NoGrad nothing_recorded;
  std::vector<FlatBuffer::Extent> extents;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Index end = i + 1 < entries_.size() ? entries_[i + 1].slice.begin : size;
    extents.push_back({end - entries_[i].slice.begin, entries_[i].tensor.device()});
  }
  const DType dtype = entries_.front().tensor.dtype();
  values_ = FlatBuffer(extents, 0, dtype), grads_ = FlatBuffer(extents, 0, dtype);
  for (Entry& e : entries_) {
    const Tensor home = part(values_, e);
    copy_unnoted(home, e.tensor);
    e.tensor.impl()->block = home.impl()->block;
    e.tensor.impl()->offset = home.impl()->offset;
    e.tensor.require_grad();
    detail::set_grad_block(e.tensor, part(grads_, e));
    e.tensor.clear_grad();
    detail::set_owner(e.tensor, owner_);
  }
}

Index Parameters::count() const {
  Index n = 0;
  for (const Entry& e : entries_)
    n += e.tensor.shard_spec() ? e.tensor.shard_spec()->global_shape().numel() : e.slice.size();
  return n;
}

void Parameters::clear_grads() {
  for (const Entry& e : entries_) e.tensor.clear_grad();
}

std::vector<std::string> Parameters::zero_missing_grads(Slice within) {
  std::vector<std::string> missing;
  for (const Entry& e : entries_) {
    if (e.slice.end <= within.begin || within.end <= e.slice.begin || e.tensor.grad()) continue;
    launch<kernel::Fill>(part(grads_, e), 0.0);
    detail::set_grad_zeroed(e.tensor);
    missing.push_back(e.name);
  }
  return missing;
}

std::vector<bool> Parameters::written_grads() const {
  std::vector<bool> written;
  for (const Entry& e : entries_) written.push_back(has_grad(e.tensor));
  return written;
}
void Parameters::set_written_grads(const std::vector<bool>& written) {
  check(written.size() == entries_.size(), "parameters", "{} marks for {} tensors", written.size(), entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) detail::set_has_grad(entries_[i].tensor, written[i]);
}

void Parameters::mark_released(const Slice& slice, bool released) {
  for (const Entry& e : entries_)
    if (e.slice.overlaps(slice)) e.tensor.impl()->released = released;
}

const Parameters::Entry* Parameters::first_non_finite_grad() const {
  std::vector<FlatBuffer::Extent> one_each;
  for (const Entry& e : entries_) one_each.push_back({1, e.tensor.device()});
  const FlatBuffer sums(one_each, 0, DType::f64);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].tensor.grad()) continue;
    const auto at = static_cast<Index>(i);
    launch<kernel::SumSquares>(sums.rows(at, at + 1), part(grads_, entries_[i]));
  }
  const std::vector<double> host = sums.to_vector();
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (!std::isfinite(host[i])) return &entries_[i];
  return nullptr;
}

Parameters::Entry* Parameters::find(const std::string& name) {
  for (Entry& e : entries_)
    if (e.name == name) return &e;
  return nullptr;
}

void convert(Module& model, DType dtype) {
  check(is_float(dtype), "convert", "{} is no floating type; a model is f32, f64, bf16 or f16", dtype);
  const NoGrad nothing_recorded;
  model.visit(StateVisitor([&](const NamedState& leaf) {
    Tensor& t = *leaf.tensor;
    const DType to = leaf.use == StateKind::buffer && is_half(dtype) ? DType::f32 : dtype;
    if (!is_float(t.dtype()) || t.dtype() == to) return;
    check(!t.requires_grad(), "convert", "'{}' already lives in Parameters; convert the model before making them",
          leaf.name);
    const Tensor converted = t.to(to);
    t.impl()->block = converted.impl()->block;
    t.impl()->offset = converted.impl()->offset;
    t.impl()->dtype = to;
  }));
}

}  // namespace trireme
