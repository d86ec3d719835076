// The tape: the recorded ops that backward() visits. A Node holds an op's inputs and the two halves of its backward, by
// inputs and by weights. They are separate because pipeline schedules run the second half later (zero bubble, Qi et
// al., arXiv 2401.10241).
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
/// The options of an op, for a Trace. Borrowed; only a Trace copies them.
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

/// Records op with result y if any input is on the tape and recording is on (never for an integer y); returns y. op: a
/// literal, for error messages and, with the options, for a Trace (framework/autograd/trace.h). Like needs_record() it
/// passes on the batch context and rejects sharded inputs. Weights among the inputs need no mark: each half of backward
/// chooses its inputs by its calls of grad_buffer and set_grad.
Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, detail::OpOptions options, Backward backward);
/// As above, for an op whose backward is one half.
template <std::invocable<const Tensor&, Gradients&> F>
Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, detail::OpOptions options, F&& backward) {
  return record(op, std::move(y), std::move(inputs), options, Backward{BackwardFn(std::forward<F>(backward)), {}});
}
/// As above, for an op without options.
inline Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, Backward backward) {
  return record(op, std::move(y), std::move(inputs), {}, std::move(backward));
}
/// As above, for an op without options whose backward is one half.
template <std::invocable<const Tensor&, Gradients&> F>
Tensor record(const char* op, Tensor y, std::vector<Tensor> inputs, F&& backward) {
  return record(op, std::move(y), std::move(inputs), {}, Backward{BackwardFn(std::forward<F>(backward)), {}});
}
/// Whether t is the only handle on its block, so that the block may be overwritten. False for an undefined tensor.
bool is_uniquely_owned(const Tensor& t);
/// Whether an op on these inputs would be recorded (or traced). If not, the op need not save tensors for backward.
bool is_recorded_or_traced(std::initializer_list<const Tensor*> inputs);
/// Ends an op's forward: y takes the batch context of its inputs. Returns whether the op is to be recorded (or traced).
/// Throws Error if an input is sharded (framework/tensor/shard_spec.h) and y is not: the op needs whole tensors.
bool needs_record(const char* op, const Tensor& y, std::initializer_list<const Tensor*> inputs);

/// Throws Error naming op, which needs whole tensors. part: shape of the operand that is divided over ranks.
[[noreturn]] void refuse_part(const char* op, const Shape& part, const ShardSpec&);

/// Whether one of the tensors is on the tape and this thread records for a backward (not for a Trace).
bool is_grad_recorded(std::span<const Tensor> tensors);

/// Switches recording on or off for this thread while it lives (torch.set_grad_enabled); the innermost one counts.
class GradMode {
 public:
  explicit GradMode(bool on);  ///< true: ops are recorded, the default of a thread
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};
/// Switches recording off for this thread while it lives (torch.no_grad).
class NoGrad : GradMode {
 public:
  NoGrad() : GradMode(false) {}
};

}  // namespace trireme
