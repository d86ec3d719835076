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

/// y += x, in place and not recorded: one shape, floating type and device, else it throws Error.
void add_into(const Tensor& y, const Tensor& x);

/// Where the halves of a backward put gradients. Index i is the input's position in record().
class Gradients {
 public:
  virtual ~Gradients() = default;
  /// False when input i needs no gradient: skip the work.
  virtual bool needs_grad(int i) const = 0;
  /// A block for an input's gradient.
  struct Target {
    Tensor tensor;    ///< of the input's shape, dtype and device
    bool accumulate;  ///< true: add to its elements; false: overwrite them, whatever they hold
  };
  /// The block to write input i's gradient into. For a leaf this is its own (flat) block, so nothing is copied. Each
  /// input gets either one grad_buffer or one set_grad; the block is filled before the next call. Throws Error for an
  /// input that needs no gradient or has been given one.
  virtual Target grad_buffer(int i) = 0;
  /// Hands over a finished gradient, of the input's shape and dtype, else it throws Error. It may be shared with other
  /// inputs: it is never written to unless uniquely owned. Ignored where needs_grad(i) is false.
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
/// A half of an op's backward: from dy (d loss / d output, of the output's shape and dtype) to gradients of inputs.
using BackwardFn = std::function<void(const Tensor& dy, Gradients&)>;

/// Neither half may write into dy, except that an op without a weights half may do so where
/// is_uniquely_owned(dy) holds.
struct Backward {
  BackwardFn inputs;        ///< gradients by activations (and everything, for ops without weights)
  BackwardFn weights = {};  ///< gradients by weights; may run later than inputs
};

/// Weight halves that backward left for later, in the order met.
class Deferred {
 public:
  void run();                                          ///< runs and empties
  bool empty() const { return halves_.empty(); }       ///< no half is queued
  std::size_t size() const { return halves_.size(); }  ///< halves queued
  /// For backward(): queues a half.
  void push(std::function<void()> half) { halves_.push_back(std::move(half)); }

 private:
  std::vector<std::function<void()>> halves_;
};
/// Options of backward().
struct BackwardOptions {
  Deferred* defer_weights = nullptr;  ///< set: weight halves are queued there instead of run
  bool hooks = true;                  ///< false: hooks are not called (a backward within another one)
  bool retain_graph = false;          ///< the tape stays, so that another backward may run over it
};
/// Several roots at once (a pipeline stage's live outputs), each with its seed, d loss / d root, of its shape and
/// dtype. Throws Error for seeds that do not fit, where no root depends on a leaf with require_grad(), and for a graph
/// that an earlier backward has freed.
void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, const BackwardOptions& = {});

/// torch.autograd.grad: d outputs / d inputs, weighted by seeds (of the outputs' shapes; none: 1 of one number) and
/// summed over outputs; one gradient per input, a leaf or a result. Leaves keep theirs, no hook is called. Throws Error
/// as backward(), and for an input that leads to no output. A backward through a result throws Error: detach() it.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& seeds = {}, const BackwardOptions& = {});

/// Calls hook(gradient) each time a backward has the whole gradient of this result of an op, before it goes on; what it
/// returns, unless undefined, goes on in its place (torch.Tensor.register_hook). Throws Error for a tensor that is not
/// on the tape, and for a leaf (add_grad_hook()).
void on_grad(const Tensor& result, std::function<Tensor(const Tensor& gradient)> hook);
/// Calls hook(leaf) each time a backward has completed leaf's gradient (all paths that reach it are done).
/// It runs in the midst of backward, or of Deferred::run. Returns an id for remove_grad_hook.
/// Throws Error for a tensor that is no leaf and for an empty function.
std::uint64_t add_grad_hook(const Tensor& leaf, std::function<void(const Tensor& leaf)> hook);
/// Removes the hook of this id; an unknown id is ignored. Throws Error for a tensor that is no leaf.
void remove_grad_hook(const Tensor& leaf, std::uint64_t id);
/// Whether a backward has written leaf's gradient since clear_grad. Throws Error for a tensor that is no leaf.
bool has_grad(const Tensor& leaf);

}  // namespace trireme
