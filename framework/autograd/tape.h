// Tape: what backward() walks. A Node holds an op's inputs and the two halves of its backward: by the inputs, and by
// the weights. They are separate because pipeline schedules run the second half later (zero-bubble, arXiv 2401.10241).
#pragma once
#include <any>
#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "framework/tensor/storage.h"

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

/// What a leaf keeps: its gradient and who wants to hear of it.
struct LeafState {
  std::weak_ptr<Tensor::Impl> tensor;
  Tensor grad;                             // undefined until a backward or set_grad_block gives it a home
  bool written = false;                    // since clear_grad
  bool zeroed = false;                     // since clear_grad: filled with zeros, since no backward came
  std::weak_ptr<const void> owner;         // alive while a Parameters holds the leaf
  std::atomic<std::uintptr_t> walker = 0;  // the thread whose backward is under way; 0: none
  std::uint64_t next_id = 1;
  std::vector<std::pair<std::uint64_t, std::function<void(const Tensor&)>>> hooks;
};

/// One op on the tape, or a leaf. Consumers own what they consume: inputs point back, never forward.
struct Node {
  const char* op = "leaf";
  const char* place = nullptr;                // the NamedRange it was recorded in: its backward's, too
  std::uint64_t sequence = 0;                 // greater than any input's: backward walks it downwards
  std::vector<std::shared_ptr<Node>> inputs;  // null where no gradient is needed
  Backward backward;
  /// The output again, bit for bit, from what backward keeps anyway; see SavedInput.
  std::function<Tensor()> recompute_output;
  Shape shape;  // of the output, and so of its gradient
  DType dtype = DType::f32;
  Device device;
  std::unique_ptr<LeafState> leaf;
  bool freed = false;  // a backward has been here
  int slot = -1;       // scratch of the walk that collects a backward's nodes
  Node() {}            // NOLINT: see Tensor::Impl
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // without recursion, however long the chain
};

/// What a backward keeps a tensor in: get() throws Error, naming the op, when the tensor has been written to in place
/// since then.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(Tensor t)  // NOLINT: implicit, so that ops capture [x = SavedTensor(x)] and read x
      : t_(std::move(t)), writes_(Writes::latest()) {}
  explicit operator bool() const { return t_.defined(); }
  const Tensor& get() const {
    if (t_ && t_.impl()->block->writes.last() > writes_) [[unlikely]]
      check_unwritten();
    return t_;
  }
  operator const Tensor&() const { return get(); }  // NOLINT: implicit
  operator View() const { return get().view(); }    // NOLINT: implicit
  const Shape& shape() const { return t_.shape(); }
  const Tensor* operator->() const { return &get(); }

 private:
  void check_unwritten() const;
  Tensor t_;
  std::uint64_t writes_ = 0;  // the last one before
};

/// An op's input as its backward will need it: the tensor itself or, where its maker said how, the way to make it
/// again, so that its block is free in the meantime.
class SavedInput {
 public:
  explicit SavedInput(const Tensor& x) {
    if (x.impl()->node && x.impl()->node->recompute_output)
      remake_ = x.impl()->node->recompute_output;
    else
      x_ = x;
  }
  Tensor get() const { return remake_ ? remake_() : x_.get(); }

 private:
  SavedTensor x_;
  std::function<Tensor()> remake_;
};

/// What an op's name and inputs leave open: its options. Borrowed; only a Trace copies them.
class Detail {
 public:
  Detail() = default;
  template <class T>
  Detail(const T& options)  // NOLINT: implicit
      : options_(&options), copy_([](const void* p) { return std::any(*static_cast<const T*>(p)); }) {}
  std::any copy() const { return copy_ ? copy_(options_) : std::any(); }

 private:
  const void* options_ = nullptr;
  std::any (*copy_)(const void*) = nullptr;
};

/// Puts y on the tape if any input is (and recording is on); returns y. op is a literal: it stands in error messages
/// and, with detail, in a Trace (framework/autograd/trace.h).
/// Like needs_record it hands on the batch context and refuses spread inputs.
/// The inputs that belong to the second half (weights) need not be told apart: whoever calls into/put decides.
Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, Detail detail, Backward backward);
inline Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, Detail detail, BackwardFn backward) {
  return record(op, std::move(y), std::move(inputs), detail, Backward{std::move(backward), {}});
}
inline Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, Backward backward) {
  return record(op, std::move(y), std::move(inputs), {}, std::move(backward));
}
inline Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, BackwardFn backward) {
  return record(op, std::move(y), std::move(inputs), {}, Backward{std::move(backward), {}});
}
/// True when nobody else holds t or its block: it may be overwritten.
bool is_uniquely_owned(const Tensor& t);
/// The op whose backward this thread is in.
const char* op_in_backward();
/// True when an op over these inputs would be recorded (or traced): lets an op skip saving what only backward needs.
bool is_recorded_or_traced(std::initializer_list<const Tensor*> inputs);
/// The end of an op's forward: y takes over its inputs' batch context; true when the op is to be recorded (or traced).
/// Throws Error when an input is spread (framework/tensor/shard_spec.h) and y is not: the op has not asked what others
/// hold.
bool needs_record(const char* op, const Tensor& y, std::initializer_list<const Tensor*> inputs);

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
/// Re-homes a leaf: its gradient lives in `grad` from now on (same shape and type). Used by Parameters.
void set_grad_block(const Tensor& leaf, const Tensor& grad);
/// True when leaf's gradient holds something (a backward reached it since clear_grad).
bool has_grad(const Tensor& leaf);
void set_has_grad(const Tensor& leaf, bool written);
/// Says that leaf's gradient block holds zeros, since no backward reached it: grad() gives it, has_grad stays false.
void set_grad_zeroed(const Tensor& leaf);
/// While owner lives, leaf belongs to a Parameters.
void set_owner(const Tensor& leaf, const std::shared_ptr<const void>& owner);
bool owned(const Tensor& t);

/// True when one of the tensors is on the tape and this thread records, for a backward and not for a Trace.
bool is_grad_recorded(std::span<const Tensor> tensors);

/// While it lives, this thread records or does not; the innermost one counts.
class GradMode {
 public:
  explicit GradMode(bool on);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};
/// While it lives, this thread records nothing.
class NoGrad : GradMode {
 public:
  NoGrad() : GradMode(false) {}
};

}  // namespace trireme
