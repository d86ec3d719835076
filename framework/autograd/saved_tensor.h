// SavedTensor and SavedInput: tensors that an op saves for its backward (PyTorch's SavedVariable).
#pragma once
#include <functional>
#include <utility>

#include "framework/autograd/node.h"

namespace trireme {

/// A tensor saved for backward, with the number of the last in-place write before it was saved.
class SavedTensor {
 public:
  SavedTensor() = default;
  /// Saves t, which may be undefined, without a copy.
  SavedTensor(Tensor t)  // NOLINT: implicit, so that ops capture [x = SavedTensor(x)] and read x
      : t_(std::move(t)), writes_(detail::Writes::latest()) {}
  explicit operator bool() const { return t_.defined(); }  ///< whether a defined tensor is saved
  /// The tensor. Throws Error naming the op if its elements were written in place after it was saved.
  const Tensor& get() const {
    if (t_ && t_.impl()->block->writes.last() > writes_) [[unlikely]]
      check_unwritten();
    return t_;
  }
  /// get().
  operator const Tensor&() const { return get(); }  // NOLINT: implicit
  /// get().view(): the operand of a kernel.
  operator View() const { return get().view(); }     // NOLINT: implicit
  const Shape& shape() const { return t_.shape(); }  ///< without get()'s check; throws Error if undefined
  /// Member access on get().
  const Tensor* operator->() const { return &get(); }

 private:
  void check_unwritten() const;
  Tensor t_;
  std::uint64_t writes_ = 0;  // number of the last write before it was saved
};

/// An input saved for backward. If the op that made it can recompute it (batch norm), only the function that does so is
/// saved, so that the input's memory is free in the meantime.
class SavedInput {
 public:
  /// x: a defined tensor.
  explicit SavedInput(const Tensor& x) : node_(x.impl()->node) {
    if (x.impl()->node && x.impl()->node->recompute_output)
      remake_ = x.impl()->node->recompute_output;
    else
      x_ = x;
  }
  /// The input, bit for bit; recomputed at each call if it was not kept. Throws Error as SavedTensor::get().
  Tensor get() const { return remake_ ? remake_() : x_.get(); }
  /// get(), on the tape as the input was (Gradients::records()).
  Tensor recorded() const {
    if (!remake_) return x_;
    Tensor x = remake_().detach();
    x.impl()->node = node_;
    return x;
  }

 private:
  std::shared_ptr<detail::Node> node_;
  SavedTensor x_;
  std::function<Tensor()> remake_;
};

}  // namespace trireme
