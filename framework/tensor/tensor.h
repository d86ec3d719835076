// Tensor: a value handle on a dense block, and its place on the tape. Copies share the block and the gradient.
// Layout is row-major, channels last (N,H,W,C; filters O,H,W,I). PyTorch's layout exists only at the file boundary.
#pragma once
#include <algorithm>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/view.h"

namespace trireme {

struct BatchContext;  // framework/tensor/batch.h
class ShardSpec;      // framework/tensor/shard_spec.h

class Tensor {
 public:
  Tensor() = default;  ///< undefined: stands for "none" (no bias, no residual)

  /// Contents undefined. Throws Error for a negative extent, for more bytes than there can be and for no such device.
  static Tensor empty(const Shape&, DType = DType::f32, Device = cpu());
  /// Throws Error when value is none of an integer dtype.
  static Tensor full(const Shape&, double value, DType = DType::f32, Device = cpu());
  /// full() with value 0.
  static Tensor zeros(const Shape& s, DType t = DType::f32, Device d = cpu()) { return full(s, 0, t, d); }
  /// A scalar (rank 0).
  static Tensor scalar(double value, DType = DType::f32, Device = cpu());
  /// Copies values, converting to dtype (integers: towards zero). values.size() must equal shape.numel(); throws Error
  /// for a value that an integer dtype does not have.
  static Tensor of(std::span<const double> values, const Shape&, DType = DType::f32);
  // The elements of memory of one's own, copied bit for bit: f32 of float, i64 of std::int64_t, ... (dtype_of()). Throw
  // Error unless there are shape.numel().
  template <Element T>
  static Tensor from(std::span<const T> values, const Shape& shape) {
    return from_bytes(std::as_bytes(values), shape, dtype_of<T>());
  }
  template <Element T>
  requires(!std::same_as<T, bool>) static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span(values), shape);
  }
  template <Element T>
  static Tensor from(const T* values, const Shape& shape) {
    return from(std::span(values, static_cast<std::size_t>(shape.numel())), shape);
  }
  template <Element T>
  requires(!std::same_as<T, bool>) static Tensor from(const std::vector<T>& values) {  ///< [values.size()]
    return from(values, {static_cast<Index>(values.size())});
  }
  template <Element T>
  static Tensor from(std::initializer_list<T> values) {  ///< from({1.5f, 2.f}): [2]
    return from(std::span<const T>(values.begin(), values.size()), {static_cast<Index>(values.size())});
  }
  /// from({{1, 2, 3}, {4, 5, 6}}): [2, 3]. Throws Error for rows of different lengths.
  template <Element T>
  static Tensor from(std::initializer_list<std::initializer_list<T>> rows) {
    const auto n = static_cast<Index>(rows.size()), columns = n > 0 ? static_cast<Index>(rows.begin()->size()) : 0;
    const Tensor t = empty({n, columns}, dtype_of<T>());
    T* to = t.data<T>();
    for (const auto& row : rows) {
      check(static_cast<Index>(row.size()) == columns, "from", "rows of {} and of {} elements", columns, row.size());
      to = std::copy(row.begin(), row.end(), to);
    }
    return t;
  }
  static Tensor from_bytes(std::span<const std::byte> elements, const Shape&, DType);  ///< of any type
  /// Same shape (of this rank's part), type and device as other, contents undefined. It is no part of a tensor over
  /// ranks: an elementwise op makes its result by ops::part_like(). Throws Error for an undefined tensor.
  static Tensor like(const Tensor& other);

  explicit operator bool() const { return impl_ != nullptr; }  ///< defined()
  bool defined() const { return impl_ != nullptr; }            ///< false for a default-constructed Tensor
  // shape() to device() throw Error for an undefined tensor.
  const Shape& shape() const;                  ///< extents, outermost axis first; of this rank's shard where sharded
  int rank() const { return shape().rank(); }  ///< number of axes, 0 (scalar) to 6
  /// Extent of an axis; a negative one counts from the last. Throws Error when there is no such axis.
  Index dim(int axis) const { return shape()[axis]; }
  Index numel() const { return shape().numel(); }  ///< number of elements; 1 for a scalar
  DType dtype() const;                             ///< element type
  Device device() const;                           ///< device of the memory
  /// The operand of a kernel: address, shape, dtype, device. Empty for an undefined tensor. Throws Error when the
  /// values are on other ranks (Parameters::mark_released).
  View view() const;
  /// view().
  operator View() const { return view(); }  // NOLINT: implicit on purpose, so launch<Op>(y, x) reads as it should
  /// The elements, on a GPU in its memory; null for an undefined tensor. Throws Error unless T is dtype's type, or
  /// void, std::byte or char. Who writes through it between an op and its backward changes gradients: nothing sees it.
  template <class T>
  T* data() const {
    const View v = view();
    v.require<T>();
    return v.as<T>();
  }

  /// The only element; waits for it to be computed. Throws Error unless numel() is 1. An i64 beyond 2^53 is rounded.
  double item() const;
  /// All elements in row-major order, converted as item() does; waits, and copies from a GPU.
  std::vector<double> to_vector() const;
  /// The same as Ts, converted as to(DType) does: no bit is lost where T is dtype's type. Truth values: as
  /// std::uint8_t.
  template <Element T>
  requires(!std::same_as<T, bool>) std::vector<T> to_vector()
  const {
    std::vector<T> values(static_cast<std::size_t>(numel()));
    copy_bytes_to(std::as_writable_bytes(std::span(values)), dtype_of<T>());
    return values;
  }
  void copy_bytes_to(std::span<std::byte> elements, DType) const;  ///< to memory of numel() elements of any type

  // Recorded ops: differentiable.
  /// Same block and order; one extent may be -1: of [0, 4, 6], no rows, {0, -1} is [0, 24]. Throws Error for no fit.
  Tensor reshape(const Shape&) const;
  /// Converted, rounding to nearest even; floats become integers towards zero. *this when it is of that type already.
  /// The gradient is converted back; there is none through an integer type.
  Tensor to(DType) const;
  /// Copied there; *this when it lies there. Throws Error when there is no such device.
  Tensor to(Device) const;
  /// Rows [begin, end) of the first axis: same block. Throws Error for a scalar and for rows that are not there. Its
  /// gradient is added to those rows of this one's, 0 elsewhere.
  Tensor rows(Index begin, Index end) const;
  // Not recorded.
  Tensor detach() const;                           ///< same block, no history
  Tensor view_rows(Index begin, Index end) const;  ///< rows() of detach()
  Tensor clone() const;                            ///< own block, no history
  /// Overwrites this block, and with it every tensor that shares it, with source's elements; not recorded. Converts the
  /// type and crosses devices. Throws Error unless the shapes are equal, and for the result of an op under recording.
  /// Where a recorded op has kept the overwritten elements, its backward throws Error. Blocks may overlap.
  void copy_from(const Tensor& source) const;

  // Autograd.
  /// Makes this a leaf whose gradient is kept. Returns *this. Throws Error for the result of an op, and when asked to
  /// switch off a weight that lives in Parameters, which trains all it holds.
  Tensor& require_grad(bool on = true);
  bool requires_grad() const;  ///< a leaf that asked for it, or a result that depends on one
  /// The gradient of a leaf (in the flat block, if Parameters adopted it); undefined until a backward has reached it
  /// and, after clear_grad, until the next one has or Parameters::zero_missing_grads has filled it with zeros.
  Tensor grad() const;  // throws Error for a tensor that is neither a leaf nor asked to, as clear_grad does
  /// Has the result of an op keep its gradient, too (torch.Tensor.retain_grad). Returns *this. Throws Error for a
  /// tensor that is not on the tape.
  const Tensor& retain_grad() const;
  void clear_grad() const;  ///< the next backward overwrites instead of adding
  /// Adds to the gradients of all leaves that this was computed from, and frees the tape behind it: the forward must
  /// run again before the next. Throws Error unless numel() is 1, and when no leaf leads here.
  void backward() const;
  /// The same from d(loss)/d(this), of this tensor's shape and type.
  void backward(const Tensor& seed) const;

  /// Set when this block is a shard of a tensor that several ranks hold together, or a weight of which each holds a
  /// copy (framework/tensor/shard_spec.h); null: a whole tensor.
  const ShardSpec* shard_spec() const;
  /// Same block, same place on the tape, with another ShardSpec; null: a whole tensor. Throws Error when undefined.
  Tensor with_shard_spec(std::shared_ptr<const ShardSpec>) const;

  /// What the batch that this was computed from says of itself (framework/tensor/batch.h); lives as long as a tensor of
  /// the batch; null: it comes from none.
  const BatchContext* batch() const;
  /// Same block, same place on the tape, as rows of another batch: for batches that no Loader made. Each call is a
  /// batch of its own, whose random layers draw from their beginning.
  Tensor with_batch(BatchContext) const;

  /// The same tensor with another beside it: several inputs, outputs or targets of one batch, as a dictionary. A Loader,
  /// Step and strategies hand them on, and rows(), to(Device) and detach() do it to all (rows() to those with as many
  /// rows as this; beside a Loader's tensor only to a Loader's: with_batch(*x.batch()) says that another has its rows).
  /// Results of other ops have none. Replaces one of that name. Throws Error for an undefined tensor.
  Tensor with(const std::string& name, const Tensor& other) const;
  /// The tensor of this name beside it. Throws Error where there is none, naming those that are.
  const Tensor& at(const std::string& name) const;
  /// All that stand beside it, by name.
  const std::map<std::string, Tensor>& fields() const;

  /// Identity of the handle: equal for copies of one Tensor.
  const void* id() const { return impl_.get(); }

  struct Impl;  // framework/tensor/storage.h: for the framework's own code
  /// A handle on this state; null: undefined.
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }  ///< null for an undefined tensor

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme
