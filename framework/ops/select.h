// Ops that compare, select or sort elements, or run along an axis. A negative axis counts from the last. Ids are i64.
// Any dtype is accepted unless a comment says otherwise. All throw Error for operands whose shapes or dtypes do not
// fit.
#pragma once
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// A tensor of truth values. It does not convert to bool, so that `if (a < b)` does not compile; see any() and all().
struct Mask : Tensor {
  Mask(Tensor t) : Tensor(std::move(t)) {}  ///< t: of dtype boolean. NOLINT: implicit
  explicit operator bool() const = delete;
};
// Comparisons (torch.eq and so on) with NumPy broadcasting. Both operands have one dtype; the result has dtype boolean.
// A comparison with NaN is false, except ne(). A number takes the dtype of the tensor: a fraction with an integer
// tensor throws Error.
Mask eq(const Tensor& a, const Tensor& b);                                     ///< a == b
Mask ne(const Tensor& a, const Tensor& b);                                     ///< a != b
Mask lt(const Tensor& a, const Tensor& b);                                     ///< a < b
Mask le(const Tensor& a, const Tensor& b);                                     ///< a <= b
Mask eq(const Tensor& x, double number);                                       ///< x == number
Mask ne(const Tensor& x, double number);                                       ///< x != number
Mask lt(const Tensor& x, double number);                                       ///< x < number
Mask le(const Tensor& x, double number);                                       ///< x <= number
Mask gt(const Tensor& x, double number);                                       ///< x > number
Mask ge(const Tensor& x, double number);                                       ///< x >= number
inline Mask gt(const Tensor& a, const Tensor& b) { return lt(b, a); }          ///< a > b
inline Mask ge(const Tensor& a, const Tensor& b) { return le(b, a); }          ///< a >= b
inline Mask operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }   ///< lt()
inline Mask operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }  ///< le()
inline Mask operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }   ///< gt()
inline Mask operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }  ///< ge()
inline Mask operator<(const Tensor& x, double n) { return lt(x, n); }          ///< lt()
inline Mask operator<=(const Tensor& x, double n) { return le(x, n); }         ///< le()
inline Mask operator>(const Tensor& x, double n) { return gt(x, n); }          ///< gt()
inline Mask operator>=(const Tensor& x, double n) { return ge(x, n); }         ///< ge()
// Logic on truth values with NumPy broadcasting. An element of another dtype is true unless it is 0.
Mask logical_and(const Tensor& a, const Tensor& b);                                ///< torch.logical_and
Mask logical_or(const Tensor& a, const Tensor& b);                                 ///< torch.logical_or
Mask logical_xor(const Tensor& a, const Tensor& b);                                ///< torch.logical_xor
Mask logical_not(const Tensor& x);                                                 ///< torch.logical_not
inline Mask operator&(const Mask& a, const Mask& b) { return logical_and(a, b); }  ///< logical_and()
inline Mask operator|(const Mask& a, const Mask& b) { return logical_or(a, b); }   ///< logical_or()
inline Mask operator^(const Mask& a, const Mask& b) { return logical_xor(a, b); }  ///< logical_xor()
inline Mask operator~(const Mask& a) { return logical_not(a); }                    ///< logical_not()
Mask isnan(const Tensor& x);                                                       ///< torch.isnan
Mask isfinite(const Tensor& x);  ///< torch.isfinite: neither NaN nor infinite

/// torch.where: a where the condition holds, else b. The condition has dtype boolean, a and b have one dtype; all three
/// broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, double b);  ///< the same with a number b
Tensor where(const Tensor& condition, double a, const Tensor& b);  ///< the same with a number a
/// torch.masked_fill: value where the mask holds, else x. The mask has dtype boolean and broadcasts to x.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
/// torch.tril: x [..., M, N] with 0 above a diagonal: 0 is the main diagonal, k the one k places to its right.
Tensor tril(const Tensor& x, Index diagonal = 0);
Tensor triu(const Tensor& x, Index diagonal = 0);  ///< torch.triu: the same with 0 below the diagonal

/// torch.gather: element [.., i, ..] of the result is x[.., ids[.., i, ..], ..]. ids has x's shape except along the
/// axis. Throws Error for an id outside of [0, extent); on a GPU at the next synchronization.
Tensor gather(const Tensor& x, const Tensor& ids, int axis);
/// torch.scatter_add: x with source[.., i, ..] added at [.., ids[.., i, ..], ..]. source and ids have one shape: x's
/// except along the axis. Floating dtypes and i64. Errors as in gather().
Tensor scatter_add(const Tensor& x, const Tensor& ids, const Tensor& source, int axis);

/// Result of sort() and topk().
struct Sorted {
  Tensor values,  ///< of x's dtype
      index;      ///< i64: their positions in x along the axis
};
/// torch.sort, stable. NaN counts as the largest.
Sorted sort(const Tensor& x, int axis = -1, bool descending = false);
/// torch.topk: the k largest in descending order, or the k smallest in ascending order.
Sorted topk(const Tensor& x, Index k, int axis = -1, bool largest = true);
Tensor argmax(const Tensor& x);            ///< torch.argmax over the last axis: the first of equal ones; no gradient
Tensor argmax(const Tensor& x, int axis);  ///< the same over another axis, which is removed
Tensor argmin(const Tensor& x, int axis = -1);  ///< torch.argmin
/// torch.cumsum, computed in f64. Keeps a floating dtype; integers give i64.
Tensor cumsum(const Tensor& x, int axis);
/// torch.prod over axes. keep: the axes stay with extent 1. Keeps a floating dtype; integers give i64. The product of
/// no elements is 1.
Tensor prod(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Mask any(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< torch.any over axes
Mask all(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< torch.all over axes
bool any(const Tensor& x);  ///< whether any element is true; waits for the device
bool all(const Tensor& x);  ///< whether all elements are true; waits for the device

}  // namespace trireme
