// backward(): visits the recorded ops from roots to leaves and computes gradients. Also Gradients and Backward, for the
// backward of an op, and hooks on leaves.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// y += x, in place, not recorded. Throws Error unless both have the same shape, floating type and device.
void add_into(const Tensor& y, const Tensor& x);

/// Receives the gradients that an op's backward computes. Index i is the input's position in record().
class Gradients {
 public:
  virtual ~Gradients() = default;
  /// Whether input i needs a gradient; if not, skip its computation.
  virtual bool needs_grad(int i) const = 0;
  /// A block for an input's gradient.
  struct Target {
    Tensor tensor;    ///< of the input's shape, dtype and device
    bool accumulate;  ///< true: add to its elements; false: overwrite them, whatever they hold
  };
  /// The block for input i's gradient. For a leaf it is the leaf's own (flat) block, so that nothing is copied. Call
  /// either grad_buffer or set_grad once per input, and fill the block before the next call. Throws Error for an input
  /// that needs no gradient or already has one.
  virtual Target grad_buffer(int i) = 0;
  /// Passes a finished gradient. Throws Error unless it has the input's shape and dtype. Inputs may share one: it is
  /// written to only if uniquely owned. Ignored if needs_grad(i) is false.
  virtual void set_grad(int i, Tensor gradient) = 0;
  /// Runs the weights halves that were kept for this op (Backward::waits). Call it while messages travel.
  virtual void run_kept() = 0;
  /// Whether gradients go on the tape (BackwardOptions::create_graph). A half of an op with Backward::twice then
  /// computes them by ops and passes them to set_grad().
  virtual bool records() const = 0;
  /// The shape, dtype and device of an input that needs a gradient.
  struct InputType {
    Shape shape;
    DType dtype;
    Device device;
  };
  virtual InputType input(int i) const = 0;
  /// For records(): the op's saved result as a result on the tape.
  virtual Tensor result(const Tensor& saved) const = 0;
  /// For records(): zeros of the input's type, on the tape as the input, for formulas that do not read its elements.
  virtual Tensor zeros_for(int i) const = 0;
};
/// Computes input i's gradient by write(target), which overwrites target. Adds through a temporary if necessary.
template <class F>
void write_grad(Gradients& to, int i, F&& write) {
  if (!to.needs_grad(i)) return;
  Gradients::Target target = to.grad_buffer(i);
  if (!target.accumulate) return write(std::as_const(target.tensor));
  const Tensor part = Tensor::like(target.tensor);
  write(part);
  add_into(target.tensor, part);
}
/// One half of an op's backward: from dy (d loss / d output, of the output's shape and dtype) to gradients of inputs.
using BackwardFn = std::function<void(const Tensor& dy, Gradients&)>;

/// The backward of an op, in two halves. Neither may write into dy. Exception: an op without a weights half may, if
/// is_uniquely_owned(dy).
struct Backward {
  BackwardFn inputs;        ///< gradients of activations (of all inputs, for ops without weights)
  BackwardFn weights = {};  ///< gradients of weights; may run later than inputs
  /// True: `inputs` sends messages and waits for them, and calls Gradients::run_kept() in between. The op that
  /// completes the gradient of this op's result delays its weights half until that call, or until after this op.
  bool waits = false;
  /// True: both halves follow Gradients::records(). False: a backward with create_graph refuses the op by name.
  bool twice = false;
};

/// Weight halves that backward() deferred, in order.
class Deferred {
 public:
  void run();                                          ///< runs all halves and empties the queue
  bool empty() const { return halves_.empty(); }       ///< no half is queued
  std::size_t size() const { return halves_.size(); }  ///< number of queued halves
  /// For backward(): queues a half.
  void push(std::function<void()> half) { halves_.push_back(std::move(half)); }

 private:
  std::vector<std::function<void()>> halves_;
};
/// Options of backward().
struct BackwardOptions {
  Deferred* defer_weights = nullptr;  ///< if set, weight halves are queued there instead of run
  bool hooks = true;                  ///< false: hooks are not called (for a backward inside another one)
  bool retain_graph = false;          ///< keep the tape, so that another backward can use it (PyTorch's retain_graph)
  /// For grad(): its results are on the tape, so that they can be differentiated again (PyTorch's create_graph). Keeps
  /// the tape, too.
  bool create_graph = false;
};
/// Backward from several roots at once (such as a pipeline stage's outputs), each with its seed d loss / d root, of the
/// root's shape and dtype. Throws Error for seeds that do not fit, if no root depends on a leaf with require_grad(),
/// and for a tape that an earlier backward freed.
void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, const BackwardOptions& = {});

/// torch.autograd.grad: the gradients of outputs with respect to inputs (leaves or results), weighted by seeds and
/// summed over outputs. seeds have the outputs' shapes; without them outputs are single numbers with seed 1. Gradients
/// of leaves are unchanged, and no hook is called. Throws Error as backward(), and for an input on which no output
/// depends. The results cannot be differentiated again unless create_graph is set: detach() them, else a backward
/// through them throws Error. create_graph is for f32 and f64, and for ops that compute on whole tensors of this rank:
/// elementwise ops, products, convolutions, pooling, norms, softmax, attention, losses, and those that move elements.
/// Others throw Error by name.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& seeds = {}, const BackwardOptions& = {});

/// Jacobian-vector product (torch.autograd.functional.jvp): the derivative of outputs when inputs move along tangents,
/// which have the inputs' shapes. One tensor per output; recorded as with create_graph. Throws Error as grad() with
/// create_graph.
std::vector<Tensor> jvp(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                        const std::vector<Tensor>& tangents);

namespace detail {
/// For Gradients::records(): gives inputs their gradients by the recorded op `same`, which computes the op's result
/// from other ops. same(inputs) gets the inputs; those that need a gradient as results of their own.
void give_by_ops(Gradients& g, const Tensor& dy, const std::vector<Tensor>& inputs,
                 const std::function<Tensor(const std::vector<Tensor>&)>& same);
}  // namespace detail

/// Calls hook(gradient) each time a backward has the complete gradient of this result of an op. If the hook returns a
/// defined tensor, it replaces the gradient (torch.Tensor.register_hook). Throws Error for a tensor that is not on the
/// tape, and for a leaf (use add_grad_hook()).
void on_grad(const Tensor& result, std::function<Tensor(const Tensor& gradient)> hook);
/// Calls hook(leaf) each time a backward has completed leaf's gradient, over all paths. The hook runs during
/// backward(), or during Deferred::run(). Returns an id for remove_grad_hook(). Throws Error for a tensor that is no
/// leaf and for an empty function.
std::uint64_t add_grad_hook(const Tensor& leaf, std::function<void(const Tensor& leaf)> hook);
/// Removes the hook with this id; unknown ids are ignored. Throws Error for a tensor that is no leaf.
void remove_grad_hook(const Tensor& leaf, std::uint64_t id);
/// Whether a backward has written leaf's gradient since clear_grad(). Throws Error for a tensor that is no leaf.
bool has_grad(const Tensor& leaf);

}  // namespace trireme
