#include "framework/autograd/node.h"

#include "framework/tensor/launch.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/core/runtime.h"

namespace trireme {
namespace {

using detail::LeafState, detail::Node;

/// What dying nodes leave: it is destroyed in a loop, since each part may hold the last handle on another node.
struct Remains {
  std::vector<std::shared_ptr<detail::Node>> inputs;
  Backward backward;
};
thread_local std::vector<Remains>* graveyard = nullptr;

LeafState& leaf_of(const Tensor& t, const char* what) {
  check(t.defined() && t.impl()->node && t.impl()->node->leaf, what, "wants a leaf: call require_grad() on it first");
  return *t.impl()->node->leaf;
}

}  // namespace

detail::Node::~Node() {
  if (inputs.empty() && !backward.inputs && !backward.weights) return;
  if (graveyard != nullptr) {
    graveyard->push_back({std::move(inputs), std::move(backward)});
    return;
  }
  std::vector<Remains> yard;  // allocates only if this node owned further nodes
  graveyard = &yard;
  backward.inputs = nullptr;
  backward.weights = nullptr;
  inputs.clear();
  while (!yard.empty()) {
    const Remains last = std::move(yard.back());
    yard.pop_back();
  }
  graveyard = nullptr;
}

std::uint64_t add_grad_hook(const Tensor& leaf, std::function<void(const Tensor& leaf)> hook) {
  LeafState& state = leaf_of(leaf, "add_grad_hook");
  check(bool(hook), "add_grad_hook", "the hook is an empty std::function, expected one that can be called");
  state.hooks.emplace_back(state.next_id, std::move(hook));
  return state.next_id++;
}
void remove_grad_hook(const Tensor& leaf, std::uint64_t id) {
  std::erase_if(leaf_of(leaf, "remove_grad_hook").hooks, [id](const auto& hook) { return hook.first == id; });
}
void detail::set_grad_block(const Tensor& leaf, const Tensor& room) {
  LeafState& state = leaf_of(leaf, "set_grad_block");
  const Tensor grad = room.view_rows(0, leaf.numel()).reshape(leaf.shape());
  check(grad.shape() == leaf.shape() && grad.dtype() == leaf.dtype() && grad.device() == leaf.device(),
        "set_grad_block", "the leaf is {} {} on {}, the block {} {} on {}", leaf.dtype(), leaf.shape(), leaf.device(),
        grad.dtype(), grad.shape(), grad.device());
  if (state.written) copy_unnoted(grad, state.grad);
  state.grad = grad.detach();
  state.room = room.detach();
}
void detail::set_grad_given_back(const Tensor& leaf) { leaf_of(leaf, "grad").given_back = true; }
void detail::restore_grad(LeafState& leaf) {
  if (!leaf.given_back || (launch_watch != nullptr && launch_watch->is_dry())) return;
  leaf.given_back = false;
  const View all = leaf.room.view();
  runtime(all.device.kind).restore(all.data, static_cast<std::size_t>(all.bytes()), all.device);
  if (const Index n = leaf.grad.numel(); n < leaf.room.numel())
    launch<kernel::Fill>(leaf.room.view_rows(n, leaf.room.numel()), 0.0);
}
void detail::restore_grad(const Tensor& leaf) { restore_grad(leaf_of(leaf, "grad")); }
bool detail::has_grad_or_zeros(const Tensor& leaf) {
  const LeafState& state = leaf_of(leaf, "grad");
  return state.written || state.zeroed;
}
void detail::release_grad(const Tensor& leaf) {
  LeafState& state = leaf_of(leaf, "release_grad");
  state.grad = {};
  state.written = state.zeroed = false;
}
bool has_grad(const Tensor& leaf) { return leaf_of(leaf, "has_grad").written; }
void detail::set_has_grad(const Tensor& leaf, bool written) { leaf_of(leaf, "set_has_grad").written = written; }
void detail::set_grad_zeroed(const Tensor& leaf) { leaf_of(leaf, "set_grad_zeroed").zeroed = true; }
void detail::set_owner(const Tensor& leaf, const std::shared_ptr<const void>& owner) {
  leaf_of(leaf, "set_owner").owner = owner;
}
std::shared_ptr<const void> detail::owner_of(const Tensor& t) {
  return t && t.impl()->node && t.impl()->node->leaf ? t.impl()->node->leaf->owner.lock() : nullptr;
}

Tensor& Tensor::require_grad(bool on) {
  check(defined(), "require_grad", "the tensor is undefined");
  std::shared_ptr<Node>& node = impl_->node;
  check(!node || node->leaf, "require_grad", "the tensor is the result of '{}': only a leaf keeps its gradient",
        node ? node->op : "");
  check(on || !detail::owner_of(*this), "require_grad",
        "the tensor is in Parameters already, which train all their weights: call freeze(model, \"layer.*\") before "
        "creating Parameters or a Step");
  if (!on) node = nullptr;
  if (!on || node) return *this;
  check(is_float(dtype()), "require_grad", "got {}, expected a floating type (f32, f64, bf16)", dtype());
  node = std::make_shared<Node>();
  node->shape = shape();
  node->dtype = dtype();
  node->device = device();
  node->leaf = std::make_unique<LeafState>();
  node->leaf->tensor = impl_;
  return *this;
}
bool Tensor::requires_grad() const { return impl_ && impl_->node; }
Tensor detail::WatchedResult::see(Tensor dy) {
  for (const auto& hook : hooks)
    if (Tensor other = hook(dy)) {
      check(other.shape() == dy.shape() && other.dtype() == dy.dtype(), "on_grad",
            "the gradient is {} {}, the hook returned {} {}: expected the same type and shape", dy.dtype(), dy.shape(),
            other.dtype(), other.shape());
      dy = std::move(other);
    }
  if (!keeps) return dy;
  if (kept) {
    const Tensor sum = kept.clone();
    add_into(sum, dy);
    kept = sum;
  } else {
    kept = dy;
  }
  return dy;
}
namespace {
detail::WatchedResult& watched(const Tensor& t, const char* what) {
  check(t.defined() && t.impl()->node && !t.impl()->node->leaf, what,
        "the tensor is not the result of a recorded op: use it on a result (a leaf keeps its gradient anyway)");
  auto& w = t.impl()->node->watched;
  if (!w) w = std::make_unique<detail::WatchedResult>();
  return *w;
}
}  // namespace
void on_grad(const Tensor& result, std::function<Tensor(const Tensor& gradient)> hook) {
  check(bool(hook), "on_grad", "the hook is an empty std::function, expected one that can be called");
  watched(result, "on_grad").hooks.push_back(std::move(hook));
}
const Tensor& Tensor::retain_grad() const {
  if (!impl_ || !impl_->node || !impl_->node->leaf) watched(*this, "retain_grad").keeps = true;
  return *this;
}
Tensor Tensor::grad() const {
  if (impl_ && impl_->node && impl_->node->watched && impl_->node->watched->keeps) return impl_->node->watched->kept;
  const LeafState& leaf = leaf_of(*this, "grad");
  if (!leaf.written && !leaf.zeroed) return {};
  check(!leaf.given_back, "grad",
        "the gradient {} was summed and divided over ranks, and its memory released: read it in a gradient hook, or "
        "train with zero(1)",
        leaf.grad.shape());
  return leaf.grad;
}
void Tensor::clear_grad() const {
  if (impl_ && impl_->node && impl_->node->watched) {
    impl_->node->watched->kept = {};
    return;
  }
  LeafState& leaf = leaf_of(*this, "clear_grad");
  leaf.written = leaf.zeroed = false;
}

}  // namespace trireme
