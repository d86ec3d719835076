// Ops that compare elements, choose among them, order them, or run along an axis. Axes: negative ones count from the
// last. Ids are i64. Any dtype unless said otherwise. Throw Error for operands that do not fit.
#pragma once
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// A tensor of truth values that no `if` takes for an answer: if (a < b) does not compile.
struct Mask : Tensor {
  Mask(Tensor t) : Tensor(std::move(t)) {}  // NOLINT: implicit
  explicit operator bool() const = delete;
};
// Comparisons (torch.eq, ...), with NumPy broadcasting, of one dtype: a tensor of dtype boolean. One with NaN is false,
// but for ne(). A number takes the tensor's dtype; throws Error for a fraction beside integers.
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
// Truth values; of another dtype all but 0 is true. With NumPy broadcasting.
Mask logical_and(const Tensor& a, const Tensor& b);
Mask logical_or(const Tensor& a, const Tensor& b);
Mask logical_xor(const Tensor& a, const Tensor& b);
Mask logical_not(const Tensor& x);
inline Mask operator&(const Mask& a, const Mask& b) { return logical_and(a, b); }  ///< logical_and()
inline Mask operator|(const Mask& a, const Mask& b) { return logical_or(a, b); }   ///< logical_or()
inline Mask operator^(const Mask& a, const Mask& b) { return logical_xor(a, b); }  ///< logical_xor()
inline Mask operator~(const Mask& a) { return logical_not(a); }                    ///< logical_not()
Mask isnan(const Tensor& x);                                                       ///< torch.isnan
Mask isfinite(const Tensor& x);                                                    ///< neither NaN nor infinite

/// torch.where: a where condition, of dtype boolean, holds, else b; all broadcast. a and b of one dtype.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, double b);
Tensor where(const Tensor& condition, double a, const Tensor& b);
/// torch.masked_fill: value where mask, of dtype boolean and broadcast to x, holds, else x.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
/// torch.tril: x [..., M, N], 0 above the diagonal that lies so many places to the right of the main one.
Tensor tril(const Tensor& x, Index diagonal = 0);
Tensor triu(const Tensor& x, Index diagonal = 0);  ///< torch.triu: 0 below the diagonal

/// torch.gather: element [.., i, ..] is x[.., ids[.., i, ..], ..] along the axis. ids of x's shape but for that axis.
/// Throws Error for an id outside of [0, extent), on a GPU at the next wait.
Tensor gather(const Tensor& x, const Tensor& ids, int axis);
/// torch.scatter_add: x with source[.., i, ..] added at [.., ids[.., i, ..], ..]; source and ids of one shape, which is
/// x's but for the axis. Of a floating type or i64. Errors as gather().
Tensor scatter_add(const Tensor& x, const Tensor& ids, const Tensor& source, int axis);

/// What sort() and topk() return.
struct Sorted {
  Tensor values,  ///< of x's dtype
      index;      ///< i64: where they are in x, along the axis
};
/// torch.sort, stable: a NaN is the largest.
Sorted sort(const Tensor& x, int axis = -1, bool descending = false);
/// torch.topk: the k largest in falling order, or the smallest in rising order.
Sorted topk(const Tensor& x, Index k, int axis = -1, bool largest = true);
Tensor argmax(const Tensor& x);                 ///< torch.argmax over the last axis: the first of equals; no gradient
Tensor argmax(const Tensor& x, int axis);       ///< over another axis, which goes
Tensor argmin(const Tensor& x, int axis = -1);  ///< torch.argmin
/// torch.cumsum, computed in f64. Of a floating type, or an integer one: then i64.
Tensor cumsum(const Tensor& x, int axis);
/// torch.prod over axes, which stay with extent 1 if keep is set. Of a floating type, or an integer one: then i64. 1 of
/// no elements.
Tensor prod(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Mask any(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< torch.any over axes
Mask all(const Tensor& x, const std::vector<int>& axes, bool keep = false);  ///< torch.all over axes
bool any(const Tensor& x);  ///< whether any element is true; waits for it
bool all(const Tensor& x);  ///< whether all elements are true; waits for it

}  // namespace trireme
