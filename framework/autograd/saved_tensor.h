// SavedTensor, SavedInput: how an op's backward keeps the tensors that it needs (PyTorch's SavedVariable).
#pragma once
#include <functional>
#include <utility>

#include "framework/autograd/node.h"

namespace trireme {

/// What a backward keeps a tensor in: get() throws Error, naming the op, when the tensor has been written to in place
/// since then.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(Tensor t)  // NOLINT: implicit, so that ops capture [x = SavedTensor(x)] and read x
      : t_(std::move(t)), writes_(detail::Writes::latest()) {}
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

}  // namespace trireme
