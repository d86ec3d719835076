// Tape: what backward() walks. A Node holds an op's inputs and the two halves of its backward: by the inputs, and by
// the weights. They are separate because pipeline schedules run the second half later (zero-bubble, arXiv 2401.10241).
#pragma once
#include <any>
#include <concepts>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "framework/autograd/saved_tensor.h"

namespace trireme {

namespace detail {
/// What an op's name and inputs leave open: its options. Borrowed; only a Trace copies them.
class OpOptions {
 public:
  OpOptions() = default;
  template <class T>
  OpOptions(const T& options)  // NOLINT: implicit
      : options_(&options), copy_([](const void* p) { return std::any(*static_cast<const T*>(p)); }) {}
  std::any copy() const { return copy_ ? copy_(options_) : std::any(); }

 private:
  const void* options_ = nullptr;
  std::any (*copy_)(const void*) = nullptr;
};
}  // namespace detail

/// Puts y, unless it is of an integer dtype, on the tape if any input is (and recording is on); returns y. op is a
/// literal: it stands in error messages and, with its options, in a Trace (framework/autograd/trace.h). Like
/// needs_record it hands on the batch context and refuses sharded inputs. Inputs that belong to the second half
/// (weights) need not be told apart: a half decides by its calls of grad_buffer and set_grad.
Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, detail::OpOptions options, Backward backward);
/// The same of an op whose backward is one half, a BackwardFn.
template <std::invocable<const Tensor&, Gradients&> F>
Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, detail::OpOptions options, F&& backward) {
  return record(op, std::move(y), std::move(inputs), options, Backward{BackwardFn(std::forward<F>(backward)), {}});
}
/// The same of an op without options.
inline Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, Backward backward) {
  return record(op, std::move(y), std::move(inputs), {}, std::move(backward));
}
/// The same of an op without options whose backward is one half.
template <std::invocable<const Tensor&, Gradients&> F>
Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, F&& backward) {
  return record(op, std::move(y), std::move(inputs), {}, Backward{BackwardFn(std::forward<F>(backward)), {}});
}
/// True when t is the only handle on its block: it may be overwritten. False for an undefined tensor.
bool is_uniquely_owned(const Tensor& t);
/// True when an op over these inputs would be recorded (or traced): lets an op skip saving what only backward needs.
bool is_recorded_or_traced(std::initializer_list<const Tensor*> inputs);
/// The end of an op's forward: y takes over its inputs' batch context; true when the op is to be recorded (or traced).
/// Throws Error when an input is sharded (framework/tensor/shard_spec.h) and y is not: the op runs on whole tensors
/// only.
bool needs_record(const char* op, const Tensor& y, std::initializer_list<const Tensor*> inputs);

/// Throws Error naming op, which runs on whole tensors: `part` is the shape of an operand with this division over
/// ranks.
[[noreturn]] void refuse_part(const char* op, const Shape& part, const ShardSpec&);

/// True when one of the tensors is on the tape and this thread records, for a backward and not for a Trace.
bool is_grad_recorded(std::span<const Tensor> tensors);

/// While it lives, this thread records or does not (torch.set_grad_enabled); the innermost one counts.
class GradMode {
 public:
  explicit GradMode(bool on);  ///< on: ops are recorded, which is the default of a thread
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};
/// While it lives, this thread records nothing (torch.no_grad).
class NoGrad : GradMode {
 public:
  NoGrad() : GradMode(false) {}
};

}  // namespace trireme
