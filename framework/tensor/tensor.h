// Tensor: a handle on a dense block of elements, and its place on the tape, as torch.Tensor. Copies share the block and
// the gradient. The layout is row-major with channels last (N,H,W,C; filters O,H,W,I); PyTorch's layout is used in
// files only.
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
  Tensor() = default;  ///< undefined: stands for an absent tensor (no bias, no residual)

  /// Contents are undefined. Throws Error for a negative extent, too many bytes, or a device that does not exist.
  static Tensor empty(const Shape&, DType = DType::f32, Device = cpu());
  /// Throws Error if value cannot be represented in an integer dtype.
  static Tensor full(const Shape&, double value, DType = DType::f32, Device = cpu());
  /// full() with value 0.
  static Tensor zeros(const Shape& s, DType t = DType::f32, Device d = cpu()) { return full(s, 0, t, d); }
  /// A scalar (rank 0).
  static Tensor scalar(double value, DType = DType::f32, Device = cpu());
  /// Copies values, converted to dtype (integers: towards zero). Throws Error unless there are shape.numel() values,
  /// and for a value that an integer dtype cannot represent.
  static Tensor of(std::span<const double> values, const Shape&, DType = DType::f32);
  // from(): copies elements from your own memory bit for bit, in the dtype of T: f32 for float, i64 for std::int64_t,
  // ... (dtype_of()).
  /// From a span. Throws Error unless it has shape.numel() values.
  template <Element T>
  static Tensor from(std::span<const T> values, const Shape& shape) {
    return from_bytes(std::as_bytes(values), shape, dtype_of<T>());
  }
  /// From a vector. Throws Error unless it has shape.numel() values.
  template <Element T>
  requires(!std::same_as<T, bool>) static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span(values), shape);
  }
  /// From a pointer to shape.numel() values.
  template <Element T>
  static Tensor from(const T* values, const Shape& shape) {
    return from(std::span(values, static_cast<std::size_t>(shape.numel())), shape);
  }
  /// From a vector, with shape [values.size()].
  template <Element T>
  requires(!std::same_as<T, bool>) static Tensor from(const std::vector<T>& values) {
    return from(values, {static_cast<Index>(values.size())});
  }
  /// from({1.5f, 2.f}) has shape [2].
  template <Element T>
  static Tensor from(std::initializer_list<T> values) {
    return from(std::span<const T>(values.begin(), values.size()), {static_cast<Index>(values.size())});
  }
  /// from({{1, 2, 3}, {4, 5, 6}}) has shape [2, 3]. Throws Error for rows of different lengths.
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
  static Tensor from_bytes(std::span<const std::byte> elements, const Shape&, DType);  ///< elements of any type
  /// The shape (of this rank's part), type and device of other; contents undefined. The result is a plain tensor, even
  /// if other is sharded: elementwise ops create results with ops::part_like(). Throws Error for an undefined tensor.
  static Tensor like(const Tensor& other);

  explicit operator bool() const { return impl_ != nullptr; }  ///< defined()
  bool defined() const { return impl_ != nullptr; }            ///< false for a default-constructed Tensor
  // The functions from shape() to device() throw Error for an undefined tensor.
  const Shape& shape() const;                  ///< extents, outermost axis first; of this rank's shard if sharded
  int rank() const { return shape().rank(); }  ///< number of axes, 0 (scalar) to 6
  /// Extent of an axis; a negative axis counts from the last. Throws Error if the axis does not exist.
  Index dim(int axis) const { return shape()[axis]; }
  Index numel() const { return shape().numel(); }  ///< number of elements; 1 for a scalar
  DType dtype() const;                             ///< element type
  Device device() const;                           ///< device of the memory
  /// The operand of a kernel: address, shape, dtype, device. View{} for an undefined tensor. Throws Error if the values
  /// are on other ranks (Parameters::mark_released).
  View view() const;
  /// view().
  operator View() const { return view(); }  // NOLINT: implicit on purpose, so launch<Op>(y, x) reads as it should
  /// The elements (on a GPU, in its memory); null for an undefined tensor. Throws Error unless T is the type of dtype,
  /// or void, std::byte or char. Do not write through it between an op and its backward: gradients change unnoticed.
  template <class T>
  T* data() const {
    const View v = view();
    v.require<T>();
    return v.as<T>();
  }

  /// The only element; waits for it. Throws Error unless numel() is 1. An i64 beyond 2^53 is rounded.
  double item() const;
  /// All elements in row-major order, converted as item() does; waits, and copies from a GPU.
  std::vector<double> to_vector() const;
  /// The elements as Ts, converted as to(DType) does; exact if T is the type of dtype. Use std::uint8_t for boolean.
  template <Element T>
  requires(!std::same_as<T, bool>) std::vector<T> to_vector()
  const {
    std::vector<T> values(static_cast<std::size_t>(numel()));
    copy_bytes_to(std::as_writable_bytes(std::span(values)), dtype_of<T>());
    return values;
  }
  void copy_bytes_to(std::span<std::byte> elements, DType) const;  ///< copies numel() elements, converted to any type

  // Recorded ops, with gradients.
  /// The same block and order of elements; one extent may be -1. Without rows -1 counts one row: {0, -1} of [0, 4, 6]
  /// is [0, 24]. Throws Error if the number of elements differs.
  Tensor reshape(const Shape&) const;
  /// Converts to a type, rounding to nearest even (float to integer: towards zero). Returns *this if it has this type.
  /// The gradient is converted back; integer types have no gradient.
  Tensor to(DType) const;
  /// Copies to a device. Returns *this if it is there already. Throws Error for a device that does not exist.
  Tensor to(Device) const;
  /// Rows [begin, end) of the first axis, in the same block. Throws Error for a scalar and for rows that do not exist.
  /// The gradient is added to these rows, 0 elsewhere.
  Tensor rows(Index begin, Index end) const;
  // Ops that are not recorded.
  Tensor detach() const;                           ///< the same block, off the tape (torch.Tensor.detach)
  Tensor view_rows(Index begin, Index end) const;  ///< rows() of detach()
  Tensor clone() const;                            ///< a copy in a new block, off the tape
  /// Overwrites this block, and so every tensor that shares it, with source's elements. Not recorded. Converts types
  /// and crosses devices; blocks may overlap. Throws Error unless the shapes are equal, and for the result of a
  /// recorded op. If a recorded op saved the overwritten elements, its backward throws Error.
  void copy_from(const Tensor& source) const;

  // Autograd.
  /// Makes this a leaf that gets a gradient. Returns *this. Throws Error for the result of an op, and for on = false on
  /// a weight in a ParameterStore, which trains all its weights.
  Tensor& require_grad(bool on = true);
  bool requires_grad() const;  ///< true for such a leaf, and for a result that depends on one
  /// The gradient of a leaf. Undefined until a backward reaches it; after clear_grad() undefined until the next
  /// backward reaches it or Parameters::zero_missing_grads() sets it to 0. In a ParameterStore it is a slice of the
  /// flat gradients. Throws Error for a tensor that is neither a leaf nor under retain_grad(), as clear_grad() does.
  Tensor grad() const;  // throws Error for a tensor that is neither a leaf nor under retain_grad(), as clear_grad()
  /// Keeps the gradient of the result of an op too (torch.Tensor.retain_grad). Returns *this. Throws Error for a tensor
  /// that is not on the tape.
  const Tensor& retain_grad() const;
  void clear_grad() const;  ///< the next backward overwrites instead of adding
  /// Adds to the gradients of all leaves that this was computed from, and frees the tape: run forward again before the
  /// next backward. Throws Error unless numel() is 1, and if no leaf leads to this tensor.
  void backward() const;
  /// As above, from the gradient d(loss)/d(this), of this tensor's shape and type.
  void backward(const Tensor& seed) const;

  /// The division over ranks: set if this is a shard of a tensor of several ranks, or a weight of which each rank has a
  /// copy (framework/tensor/shard_spec.h). Null: a whole tensor.
  const ShardSpec* shard_spec() const;
  /// Shape of the whole tensor: shape(), unless other ranks have parts of it.
  const Shape& global_shape() const;
  /// The same block and place on the tape with another ShardSpec; null: a whole tensor. Throws Error if undefined.
  Tensor with_shard_spec(std::shared_ptr<const ShardSpec>) const;

  /// The context of the batch that this was computed from (framework/tensor/batch.h), valid while a tensor of the batch
  /// exists. Null: no batch.
  const BatchContext* batch() const;
  /// The same block and place on the tape, as rows of another batch: for batches that no Loader made. Fields with one
  /// row for each row come along. Each call is a separate batch, whose random layers start from their first draw.
  Tensor with_batch(BatchContext) const;

  /// The same tensor with a field: another tensor attached by name, as in a dictionary of inputs, outputs or targets.
  /// Loader, Step and strategies pass fields on, and Sequential those of its input; results of ops have no fields.
  /// to(Device) and detach() apply to all fields, rows() to fields with the same number of rows. (For a Loader's tensor
  /// only to a Loader's fields: with_batch(*x.batch()) marks another tensor as having its rows.) Replaces a field of
  /// the same name. Throws Error for an undefined tensor.
  Tensor with(const std::string& name, const Tensor& other) const;
  /// The field of this name. Throws Error naming the existing fields if there is none.
  const Tensor& at(const std::string& name) const;
  /// All fields, by name.
  const std::map<std::string, Tensor>& fields() const;

  /// Identity of the handle: equal for copies of a Tensor.
  const void* id() const { return impl_.get(); }

  struct Impl;  // framework/tensor/storage.h: for the framework's own code
  /// A handle on this state; null: undefined.
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }  ///< null for an undefined tensor

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme
