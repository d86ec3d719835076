// Checks of the operands of attention and rope (kernels/contracts/attention.h), for all backends.
#pragma once
#include "kernels/contracts/attention.h"
#include "kernels/plans/checks.h"

namespace trireme {

/// The extents of a call of attention and the strides of its operands, without defaults.
struct AttentionShape {
  Index samples, queries, keys;  ///< N, Tq, Tk
  Index heads, kv_heads, width;  ///< H, G, D
  TokenStrides q, k, v;          ///< of q and dq, k and dk, v and dv; not 0 unless the operand is empty
  Index group() const { return heads / kv_heads; }  ///< query heads per head of keys and values
};

namespace detail {
/// The strides with defaults filled in. Throws Error if tokens or samples of x [N, T, heads, D] would overlap.
inline TokenStrides filled(TokenStrides s, const View& x, const char* what, std::string_view op) {
  const Index row = x.shape[2] * x.shape[3];
  if (s.token == 0) s.token = row;
  if (s.sample == 0) s.sample = x.shape[1] * s.token;
  const bool fits = s.token >= row && (x.shape[0] <= 1 || s.sample >= (x.shape[1] - 1) * s.token + row);
  check(x.numel() == 0 || fits, op, "strides of {} and {} elements make tokens of {} {} overlap", s.sample, s.token,
        what, x.shape);
  return s;
}
inline void check_per_sample(const View& v, const char* what, Index samples, std::string_view op) {
  if (!v) return;
  check(v.dtype == DType::i64 && v.shape == Shape{samples}, op, "{} are {} {}, expected i64 [{}]", what, v.dtype,
        v.shape, samples);
}
/// all: of a sample; 0: unknown.
inline void check_tokens(const TokenMap& map, const char* what, Index count, Index all, std::string_view op) {
  const Index end = count > 0 ? map.at(count - 1) + 1 : map.first;
  check(map.first >= 0 && map.step > 0 && map.turn >= 0 && map.jump >= 0 && (all == 0 || end <= all), op,
        "got {} {} to {} of {}, expected an ascending order inside all {}", what, map.first, end, all, what);
}
}  // namespace detail

/// The extents of a call. Throws Error naming op for operands that do not fit.
inline AttentionShape check_attention(const View& o, const View& stats, const View& q, const View& k, const View& v,
                                      const AttentionArgs& args, std::string_view op) {
  check(q.shape.rank() == 4 && k.shape.rank() == 4 && v.shape == k.shape, op,
        "q is {}, k {} and v {}, expected [N, Tq, H, D] and twice [N, Tk, G, D]", q.shape, k.shape, v.shape);
  AttentionShape s{.samples = q.shape[0],
                   .queries = q.shape[1],
                   .keys = k.shape[1],
                   .heads = q.shape[2],
                   .kv_heads = k.shape[2],
                   .width = q.shape[3],
                   .q = detail::filled(args.q, q, "q", op),
                   .k = detail::filled(args.k, k, "k", op),
                   .v = detail::filled(args.v, v, "v", op)};
  check(k.shape[0] == s.samples && k.shape[3] == s.width && s.width > 0, op,
        "q is {} and k {}: samples and the size of a head must agree, and a head have elements", q.shape, k.shape);
  check(s.kv_heads > 0 && s.heads > 0 && s.heads % s.kv_heads == 0, op,
        "{} heads of keys and values do not divide the {} of queries", s.kv_heads, s.heads);
  check(k.dtype == q.dtype && v.dtype == q.dtype, op, "q, k and v are {}, {} and {}, expected the same type", q.dtype,
        k.dtype, v.dtype);
  check_same(o, q, op);
  const DType of_stats = q.dtype == DType::f64 ? DType::f64 : DType::f32;
  const Shape rows{s.samples, s.heads, s.queries, 2};
  check(stats.dtype == of_stats && stats.shape == rows, op, "stats are {} {}, expected {} {}", stats.dtype, stats.shape,
        of_stats, rows);
  detail::check_per_sample(args.q_starts, "q_starts", s.samples, op);
  detail::check_per_sample(args.lengths, "lengths", s.samples, op);
  detail::check_per_sample(args.samples, "sample ids", s.samples, op);
  if (const View& first = args.first_keys)
    check(args.causal && first.dtype == DType::i64 && first.shape == Shape{s.samples, s.queries}, op,
          "got first_keys {} {} for {} attention, expected i64 [{}, {}] for causal attention", first.dtype, first.shape,
          args.causal ? "causal" : "full", s.samples, s.queries);
  check(args.dropout >= 0 && args.dropout < 1, op, "a dropout of {} lies outside [0, 1)", args.dropout);
  check(args.part.head_at >= 0 && (args.part.all_heads == 0 || args.part.head_at + s.heads <= args.part.all_heads), op,
        "got heads {} to {} of {}, expected a range inside all heads", args.part.head_at, args.part.head_at + s.heads,
        args.part.all_heads);
  detail::check_tokens(args.part.queries, "queries", s.queries, args.part.all_queries, op);
  detail::check_tokens(args.part.keys, "keys", s.keys, args.part.all_keys, op);
  check(args.window >= 0 && (args.window == 0 || args.causal), op,
        "got a window of {} for {} attention, expected 0, or a positive number for causal attention", args.window,
        args.causal ? "causal" : "full");
  return s;
}
/// As above, for backward. dq, dk and dv have the strides of q, k and v.
inline AttentionShape check_attention_backward(const View& dq, const View& dk, const View& dv, const View& dout,
                                               const View& o, const View& stats, const View& q, const View& k,
                                               const View& v, const AttentionArgs& args, std::string_view op) {
  const AttentionShape s = check_attention(o, stats, q, k, v, args, op);
  check_same(dq, q, op);
  check_same(dk, k, op);
  check_same(dv, v, op);
  check_same(dout, o, op);
  return s;
}

/// Throws Error naming op unless x and y are [N, T, H, D] and the table fits them.
inline void check_rope(const View& y, const View& x, const View& table, std::string_view op) {
  check_same(y, x, op);
  check(x.shape.rank() == 4, op, "x is {}, expected [N, T, H, D]", x.shape);
  const Shape& t = table.shape;
  const bool rows =
      (t.rank() == 2 && t[0] == x.shape[1]) || (t.rank() == 3 && t[0] == x.shape[0] && t[1] == x.shape[1]);
  check(rows && t[-1] % 2 == 0 && t[-1] <= x.shape[3], op,
        "the table is {} for x {}, expected [T, R] or [N, T, R] with an even R of at most D", t, x.shape);
  const DType type = x.dtype == DType::f64 ? DType::f64 : DType::f32;
  check(table.dtype == type, op, "the table is {} for x {}, expected {}", table.dtype, x.dtype, type);
}

}  // namespace trireme
