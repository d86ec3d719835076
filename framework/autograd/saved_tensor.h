// SavedTensor, SavedInput: how an op's backward keeps the tensors that it needs (PyTorch's SavedVariable).
#pragma once
#include <functional>
#include <utility>

#include "framework/autograd/node.h"

namespace trireme {

/// A tensor that an op's backward keeps, with the number of the last in-place write before it (PyTorch's
/// SavedVariable).
class SavedTensor {
 public:
  SavedTensor() = default;
  /// Keeps t, which may be undefined, without a copy.
  SavedTensor(Tensor t)  // NOLINT: implicit, so that ops capture [x = SavedTensor(x)] and read x
      : t_(std::move(t)), writes_(detail::Writes::latest()) {}
  explicit operator bool() const { return t_.defined(); }  ///< whether it keeps a defined tensor
  /// The tensor. Throws Error, naming the op, when its elements have been written to in place since it was kept.
  const Tensor& get() const {
    if (t_ && t_.impl()->block->writes.last() > writes_) [[unlikely]]
      check_unwritten();
    return t_;
  }
  /// get().
  operator const Tensor&() const { return get(); }  // NOLINT: implicit
  /// get().view(): the operand of a kernel.
  operator View() const { return get().view(); }     // NOLINT: implicit
  const Shape& shape() const { return t_.shape(); }  ///< without get()'s check; throws Error where undefined
  /// Member access on get().
  const Tensor* operator->() const { return &get(); }

 private:
  void check_unwritten() const;
  Tensor t_;
  std::uint64_t writes_ = 0;  // the last one before
};

/// An op's input as its backward will need it: the tensor itself or, where the op that made it can recompute it (batch
/// norm), the recipe, so that its block is free in the meantime.
class SavedInput {
 public:
  /// x: a defined tensor.
  explicit SavedInput(const Tensor& x) {
    if (x.impl()->node && x.impl()->node->recompute_output)
      remake_ = x.impl()->node->recompute_output;
    else
      x_ = x;
  }
  /// The input, bit for bit; recomputed at each call where it was not kept. Throws Error as SavedTensor::get() does.
  Tensor get() const { return remake_ ? remake_() : x_.get(); }

 private:
  SavedTensor x_;
  std::function<Tensor()> remake_;
};

}  // namespace trireme
