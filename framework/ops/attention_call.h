// A call of the kernels of attention, which attention() and its ring of ranks share.
#pragma once
#include <cmath>

#include "framework/ops/attention.h"
#include "framework/ops/help.h"
#include "framework/ops/place.h"
#include "framework/ops/random.h"
#include "kernels/contracts/attention.h"

namespace trireme::ops {

/// i64 of the first axes of x, such as [N], on x's device, or undefined.
inline Tensor numbers_of(const char* op, const char* what, const Tensor& t, const Tensor& x, int axes = 1) {
  if (!t) return t;
  Shape expected;
  for (int d = 0; d < axes; ++d) expected.push_back(x.dim(d));
  check(t.dtype() == DType::i64 && t.shape() == expected, op, "{} are {} {}, expected i64 {}", what, t.dtype(),
        t.shape(), expected);
  return t.device() == x.device() ? t : t.detach().to(x.device());
}

/// The arguments of one call for the kernels of forward and backward, with the tensors that they refer to.
struct AttentionCall {
  SavedTensor lengths, q_starts, samples;  ///< i64 [N], or undefined
  SavedTensor first_keys;                  ///< i64 [N, Tq], or undefined
  AttentionArgs args;                      ///< without views: with() adds them

  /// x: [N, Tq, ..., D], whose batch draws the masks.
  AttentionCall(const char* op, const Tensor& x, const AttentionOptions& o, const Tensor& lengths_given,
                const Tensor& starts_given, const Tensor& first_given)
      : lengths(numbers_of(op, "lengths", lengths_given, x)),
        q_starts(numbers_of(op, "q_starts", starts_given, x)),
        first_keys(numbers_of(op, "first_keys", first_given, x, 2)) {
    check(o.dropout >= 0 && o.dropout < 1, op, "a dropout of {} lies outside [0, 1)", o.dropout);
    check(o.window >= 0 && (o.window == 0 || o.causal), op,
          "got a window of {} for {} attention, expected 0, or a positive number for causal attention", o.window,
          o.causal ? "causal" : "full");
    check(!first_given || o.causal, op,
          "got first_keys (the documents of a text) for full attention, expected causal attention");
    args.causal = o.causal;
    args.window = o.window;
    args.scale = o.scale == 0 ? 1 / std::sqrt(static_cast<double>(x.dim(-1))) : o.scale;
    args.alibi = o.alibi;
    args.q_at = o.q_at;
    if (o.dropout == 0 || !is_training(x)) return;
    args.dropout = o.dropout;
    args.key = ops::mask_key(x, o.layer);
    samples = ops::sample_ids(op, x);
  }
  /// The operands are this part.
  void add(const AttentionPart& part) { args.part = part; }
  AttentionArgs with() const {
    AttentionArgs all = args;
    all.lengths = lengths;
    all.q_starts = q_starts;
    all.samples = samples;
    all.first_keys = first_keys;
    return all;
  }
};

/// Which tokens of a text the rank at a place has, along a dimension of `spec`.
inline TokenMap tokens_of(const ShardSpec& spec, int dim, const std::vector<int>& place) {
  const auto runs = spec.runs(dim, place);
  check(!runs.empty(), "attention", "a rank has no tokens of {}", spec.global_shape());
  TokenMap map{.first = runs[0].first};
  if (runs.size() > 2) {
    map.step = runs[1].first - runs[0].first;
    for (std::size_t i = 1; i < runs.size(); ++i)
      check(runs[i].first - runs[i - 1].first == map.step, ErrorKind::internal, "attention",
            "tokens of a rank are neither in a row, nor in two rows, nor striped");
  } else if (runs.size() == 2) {
    map.turn = runs[0].second - runs[0].first;
    map.jump = runs[1].first - runs[0].second;
  }
  return map;
}

/// [N, H, T, 2] of x [N, T, heads, D].
inline Tensor attention_statistics(const Tensor& x, Index heads) {
  return Tensor::empty({x.dim(0), heads, x.dim(1), 2}, ops::accumulator(x.dtype()), x.device());
}

inline void check_heads(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  ops::check_float(op, q);
  ops::check_same_type(op, q, k);
  ops::check_same_type(op, q, v);
  const bool fits = q.rank() == 4 && k.rank() == 4 && v.shape() == k.shape() && k.dim(0) == q.dim(0) &&
                    k.dim(3) == q.dim(3) && q.dim(3) > 0;
  check(fits, op, "q is {}, k {} and v {}, expected [N, Tq, H, D] and twice [N, Tk, G, D]", q.shape(), k.shape(),
        v.shape());
  check(k.dim(2) > 0 && q.dim(2) > 0 && q.dim(2) % k.dim(2) == 0, op,
        "{} heads of keys and values do not divide the {} of queries: choose a divisor", k.dim(2), q.dim(2));
}

/// Attention whose keys and values travel from rank to rank (Ring Attention, Liu et al., arXiv 2310.01889). p: operands
/// q, k, v, lengths, q_starts and first_keys, of which the first three are divided alike; k and v: p's, or copies of
/// their heads. part: of the queries.
Tensor ring_attention(const Placed& p, const AttentionOptions&, const AttentionPart& part, const Tensor& k,
                      const Tensor& v);

}  // namespace trireme::ops
