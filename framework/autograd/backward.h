// backward(): walks the tape from its roots to the leaves. Gradients, Backward: what an op gives it; hooks on leaves.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// y += x, not recorded.
void add_into(const Tensor& y, const Tensor& x);

/// Where the halves of a backward put gradients. Index i is the input's position in record().
class Gradients {
 public:
  virtual ~Gradients() = default;
  /// False when input i needs no gradient: skip the work.
  virtual bool needs_grad(int i) const = 0;
  /// A block to write input i's gradient into, and whether it must be added to what is there (accumulate).
  /// For a leaf this is its own (flat) block, so nothing is copied. Each input gets either one into or one put, and
  /// what into gave is filled before the next call.
  struct Target {
    Tensor tensor;
    bool accumulate;
  };
  virtual Target grad_buffer(int i) = 0;
  /// Hands over a finished gradient. It may be shared with other inputs: it is never written to unless solely owned.
  virtual void set_grad(int i, Tensor gradient) = 0;
};
/// Gives input i its gradient by write(target), which overwrites target; adds through a temporary where that is needed.
template <class F>
void write_grad(Gradients& to, int i, F&& write) {
  if (!to.needs_grad(i)) return;
  Gradients::Target target = to.grad_buffer(i);
  if (!target.accumulate) return write(std::as_const(target.tensor));
  const Tensor part = Tensor::like(target.tensor);
  write(part);
  add_into(target.tensor, part);
}
using BackwardFn = std::function<void(const Tensor& dy, Gradients&)>;

/// Neither half may write into dy, except that an op without a weights half may do so where sole(dy).
struct Backward {
  BackwardFn inputs;        ///< gradients by activations (and everything, for ops without weights)
  BackwardFn weights = {};  ///< gradients by weights; may run later than inputs
};

/// Weight halves that backward left for later, in the order met.
class Deferred {
 public:
  void run();  ///< runs and empties
  bool empty() const { return halves_.empty(); }
  std::size_t size() const { return halves_.size(); }
  void push(std::function<void()> half) { halves_.push_back(std::move(half)); }

 private:
  std::vector<std::function<void()>> halves_;
};
struct BackwardOptions {
  Deferred* defer_weights = nullptr;  ///< set: weight halves are queued there instead of run
  bool hooks = true;                  ///< false: leaves' hooks are not called (a backward within another one)
};
/// Several roots at once (a pipeline stage's live outputs), each with its seed.
void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, const BackwardOptions& = {});

/// Calls hook(leaf) each time a backward has completed leaf's gradient (all paths that reach it are done).
/// It runs in the midst of backward, or of Deferred::run. Returns an id for remove_grad_hook.
std::uint64_t add_grad_hook(const Tensor& leaf, std::function<void(const Tensor& leaf)> hook);
void remove_grad_hook(const Tensor& leaf, std::uint64_t id);
/// True when leaf's gradient holds something (a backward reached it since clear_grad).
bool has_grad(const Tensor& leaf);

}  // namespace trireme
