// Node: an op on the tape (PyTorch's grad_fn), or a leaf. For the framework's own code.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "framework/autograd/backward.h"
#include "framework/tensor/storage.h"

namespace trireme::detail {

/// The state of a leaf: its gradient and hooks.
struct LeafState {
  std::weak_ptr<Tensor::Impl> tensor;
  Tensor grad;                             // undefined until a backward or set_grad_block() sets it
  Tensor room;                             // for a gradient in a flat block: its elements, then the padding after them
  bool given_back = false;                 // memory of (part of) grad is released, until it is written again
  bool written = false;                    // a backward has written grad since clear_grad()
  bool zeroed = false;                     // grad has zeros because no backward has written it since clear_grad()
  std::weak_ptr<const void> owner;         // not expired while a ParameterStore has the leaf
  bool elsewhere = false;                  // the model's layers use another ParameterStore's leaf now
  std::atomic<std::uintptr_t> walker = 0;  // thread whose backward reaches the leaf; 0: none
  std::uint64_t next_id = 1;               // of hooks
  std::vector<std::pair<std::uint64_t, std::function<void(const Tensor&)>>> hooks;
};

/// A result of an op under retain_grad() or on_grad().
struct WatchedResult {
  bool keeps = false;  // Tensor::retain_grad()
  Tensor kept;         // sum of the gradients of all backwards since clear_grad()
  std::vector<std::function<Tensor(const Tensor&)>> hooks;
  /// Keeps dy and calls the hooks; returns the gradient to continue with.
  Tensor see(Tensor dy);
};

/// An op on the tape, or a leaf. A node owns its inputs: pointers go from results to inputs, never forward.
struct Node {
  const char* op = "leaf";
  const char* place = nullptr;                // NamedRange in which the op was recorded and its backward runs
  std::uint64_t sequence = 0;                 // greater than those of its inputs; backward visits the greatest first
  std::vector<std::shared_ptr<Node>> inputs;  // null: needs no gradient
  Backward backward;
  /// Recomputes the output, bit for bit, from tensors that backward keeps anyway; see SavedInput.
  std::function<Tensor()> recompute_output;
  Shape shape;  // of the output and its gradient
  DType dtype = DType::f32;
  Device device;
  std::unique_ptr<LeafState> leaf;
  std::unique_ptr<WatchedResult> watched;  // null: neither retain_grad() nor on_grad()
  bool freed = false;                      // a backward has used it and freed what it kept
  int slot = -1;                           // scratch of a running backward: index of the node in its list
  Node() {}                                // NOLINT: see Tensor::Impl
  explicit Node(Backward&& b) : backward(std::move(b)) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // without recursion, for chains of any length
};

/// The op whose backward runs on this thread.
const char* op_in_backward();

/// Moves a leaf's gradient to `room` [at least the leaf's elements], of the leaf's dtype: the elements, then zeros as
/// padding. For ParameterStore.
void set_grad_block(const Tensor& leaf, const Tensor& room);
/// Marks that the memory of (part of) a leaf's gradient was returned to the system (Runtime::discard): grad() throws
/// Error until it is written again.
void set_grad_given_back(const Tensor& leaf);
/// Call before a gradient in a block is written completely: restores its memory and zeroes its padding. Does nothing in
/// a dry run, which writes no gradient.
void restore_grad(LeafState&);
void restore_grad(const Tensor& leaf);
/// Whether there is a gradient, or zeros in its place, even if its memory was returned to the system.
bool has_grad_or_zeros(const Tensor& leaf);
/// Clears a leaf's gradient, and frees its memory unless it is in a shared block.
void release_grad(const Tensor& leaf);
/// Sets whether a backward has reached leaf since clear_grad().
void set_has_grad(const Tensor& leaf, bool written);
/// Marks that leaf's gradient block holds zeros because no backward reached it: grad() returns it, has_grad() stays
/// false.
void set_grad_zeroed(const Tensor& leaf);
/// Marks leaf as part of a ParameterStore for as long as `owner`, the store's state, lives.
void set_owner(const Tensor& leaf, const std::shared_ptr<const void>& owner);
/// The state of the ParameterStore that has the leaf; null: none.
std::shared_ptr<const void> owner_of(const Tensor& t);

}  // namespace trireme::detail
