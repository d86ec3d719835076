// Attention by plain loops.
#include <cmath>
#include <limits>

#include "kernels/core/kernel.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector.h"
#include "kernels/plans/attention_checks.h"

namespace trireme {
namespace {

template <class A>
struct Row {
  Index position, end;
  A slope;
};

template <class A>
struct Job {
  AttentionShape s;
  AttentionArgs args;
  Row<A> row(Index n, Index h, Index i) const {
    Index start = args.q_at + (args.q_starts ? args.q_starts.as<const Index>()[n] : 0) + i;
    Index end = args.lengths ? std::clamp<Index>(args.lengths.as<const Index>()[n], 0, s.keys) : s.keys;
    if (args.causal) end = std::clamp<Index>(start + 1, 0, end);
    Index all = args.all_heads ? args.all_heads : s.heads;
    return {start, end, args.alibi ? static_cast<A>(alibi_slope(h + args.head_at, all)) : A{0}};
  }
  template <class T>
  A score(const T* q, const T* k, const Row<A>& r, Index j) const {
    A sum{};
    for (Index d = 0; d < s.width; ++d) sum += static_cast<A>(q[d]) * static_cast<A>(k[d]);
    return sum * static_cast<A>(args.scale) + r.slope * static_cast<A>(j - r.position);
  }
  A kept(Index n, Index h, Index i, Index j) const {
    if (args.dropout == 0) return 1;
    auto id = static_cast<std::uint64_t>(args.samples ? args.samples.as<const Index>()[n] : n);
    auto e = static_cast<std::uint64_t>(((h + args.head_at) * s.queries + i) * s.keys + j);
    auto bits = Philox{args.key()}(id, e / 4)[e % 4];
    return bits >> 8 >= drop_threshold(args.dropout) ? static_cast<A>(1 / (1 - args.dropout)) : A{0};
  }
};
template <class T>
T* token(const View& v, const TokenStrides& s, Index n, Index t, Index h, Index width) {
  return v.as<T>() + n * s.sample + t * s.token + h * width;
}

template <class T>
void forward(View o, View stats, View q, View k, View v, const AttentionShape& s, const AttentionArgs& args) {
  using A = Accumulator<T>;
  Job<A> job{s, args};
  TokenStrides dense{s.queries * s.heads * s.width, s.heads * s.width};
  parallel_for(s.samples * s.heads * s.queries, s.keys * s.width, [&](Index begin, Index end) {
    std::vector<A> p(static_cast<std::size_t>(s.keys)), sum(static_cast<std::size_t>(s.width));
    for (Index at = begin; at < end; ++at) {
      Index n = at / (s.heads * s.queries), h = at / s.queries % s.heads, i = at % s.queries, g = h / s.group();
      auto row = job.row(n, h, i);
      A m = -std::numeric_limits<A>::infinity(), l{};
      auto pj = p.data();
      for (Index j = 0; j < row.end; ++j) {
        pj[j] = job.score(token<T>(q, s.q, n, i, h, s.width), token<T>(k, s.k, n, j, g, s.width), row, j);
        m = std::max(m, pj[j]);
      }
      std::fill(sum.begin(), sum.end(), A{});
      for (Index j = 0; j < row.end; ++j) {
        A e = std::exp(pj[j] - m), z = e * job.kept(n, h, i, j);
        l += e;
        const T* vj = token<T>(v, s.v, n, j, g, s.width);
        for (Index d = 0; d < s.width; ++d) sum[static_cast<std::size_t>(d)] += z * static_cast<A>(vj[d]);
      }
      T* to = token<T>(o, dense, n, i, h, s.width);
      for (Index d = 0; d < s.width; ++d) to[d] = static_cast<T>(l > 0 ? sum[static_cast<std::size_t>(d)] / l : A{});
      stats.as<A>()[2 * at] = m, stats.as<A>()[2 * at + 1] = l;
    }
  });
}

template <class T>
void backward(View dq, View dk, View dv, View dout, View o, View stats, View q, View k, View v, const AttentionShape& s,
              const AttentionArgs& args) {
  using A = Accumulator<T>;
  Job<A> job{s, args};
  TokenStrides dense{s.queries * s.heads * s.width, s.heads * s.width};
  parallel_for(s.samples * s.kv_heads, s.queries * s.keys * s.width, [&](Index begin, Index end) {
    for (Index at = begin; at < end; ++at) {
      Index n = at / s.kv_heads, g = at % s.kv_heads, w = s.width;
      std::vector<A> sk(static_cast<std::size_t>(s.keys * w)), sv(sk.size()), sq(static_cast<std::size_t>(w));
      for (Index h = g * s.group(); h < (g + 1) * s.group(); ++h)
        for (Index i = 0; i < s.queries; ++i) {
          auto row = job.row(n, h, i);
          const A* stat = stats.as<A>() + 2 * ((n * s.heads + h) * s.queries + i);
          const T *qi = token<T>(q, s.q, n, i, h, w), *go = token<T>(dout, dense, n, i, h, w),
                  *oi = token<T>(o, dense, n, i, h, w);
          A d{};
          for (Index e = 0; e < w; ++e) d += static_cast<A>(go[e]) * static_cast<A>(oi[e]);
          std::fill(sq.begin(), sq.end(), A{});
          for (Index j = 0; j < row.end; ++j) {
            const T *kj = token<T>(k, s.k, n, j, g, w), *vj = token<T>(v, s.v, n, j, g, w);
            A p = std::exp(job.score(qi, kj, row, j) - stat[0]) / stat[1], z = job.kept(n, h, i, j), dp{};
            for (Index e = 0; e < w; ++e) dp += static_cast<A>(go[e]) * static_cast<A>(vj[e]);
            A ds = p * (dp * z - d) * static_cast<A>(args.scale);
            for (Index e = 0; e < w; ++e) {
              auto x = static_cast<std::size_t>(j * w + e);
              sv[x] += p * z * static_cast<A>(go[e]);
              sk[x] += ds * static_cast<A>(qi[e]);
              sq[static_cast<std::size_t>(e)] += ds * static_cast<A>(kj[e]);
            }
          }
          T* to = token<T>(dq, s.q, n, i, h, w);
          for (Index e = 0; e < w; ++e) to[e] = static_cast<T>(sq[static_cast<std::size_t>(e)]);
        }
      for (Index j = 0; j < s.keys; ++j)
        for (Index e = 0; e < w; ++e) {
          auto x = static_cast<std::size_t>(j * w + e);
          token<T>(dk, s.k, n, j, g, w)[e] = static_cast<T>(sk[x]);
          token<T>(dv, s.v, n, j, g, w)[e] = static_cast<T>(sv[x]);
        }
    }
  });
}

void attention(View o, View stats, View q, View k, View v, const AttentionArgs& args) {
  constexpr auto op = kernel::Attention::name;
  const AttentionShape s = check_attention(o, stats, q, k, v, args, op);
  dispatch_float(q.dtype, op, [&](auto t) { forward<decltype(t)>(o, stats, q, k, v, s, args); });
}
void attention_backward(View dq, View dk, View dv, View dout, View o, View stats, View q, View k, View v,
                        const AttentionArgs& args) {
  constexpr auto op = kernel::AttentionBackward::name;
  const AttentionShape s = check_attention_backward(dq, dk, dv, dout, o, stats, q, k, v, args, op);
  dispatch_float(q.dtype, op, [&](auto t) { backward<decltype(t)>(dq, dk, dv, dout, o, stats, q, k, v, s, args); });
}

const Kernel<kernel::Attention> attention_cpu{DeviceKind::cpu, attention};
const Kernel<kernel::AttentionBackward> attention_backward_cpu{DeviceKind::cpu, attention_backward};

}  // namespace
}  // namespace trireme
