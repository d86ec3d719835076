// The backward of attention on the CPU. It recomputes tiles of probabilities from the statistics of forward, as
// FlashAttention does (Dao et al., arXiv 2205.14135). A thread owns the keys of a sample and head. If there are too few
// of these for all threads, it owns a block of keys for dk and dv, and later a block of queries for dq. Both ways add
// the same tiles in the same order.
#include "kernels/core/kernel.h"
#include "kernels/cpu/attention_job.h"

namespace trireme::tiles {
namespace {

/// Per query of a block.
template <class A>
struct Rows {
  A m[query_block],          ///< maximum of the scores; 0 without keys
      inverse[query_block],  ///< 1 / l; 0 without keys, and after the last query
      d[query_block];        ///< <do, o>
};

/// scores [keys, query_block] become probabilities; rows up to `rows` become zeros.
template <class P>
void probabilities(typename P::Acc* scores, const Rows<typename P::Acc>& r, const Place& at, Index rows) {
  P::run([=, &r, queries = at.queries, keys = at.keys] {
    for (Index c = 0; c < queries; c += P::lanes) {
      const typename P::Vector m = vector_at<P>(r.m + c), inverse = vector_at<P>(r.inverse + c);
      for (Index j = 0; j < keys; ++j) {
        typename P::Vector x = vector_at<P>(scores + j * query_block + c) - m;
        exp_of<P>(x);
        vector_at<P>(scores + j * query_block + c) = x * inverse;
      }
      for (Index j = keys; j < rows; ++j) vector_at<P>(scores + j * query_block + c) = typename P::Vector{};
    }
  });
}
/// slopes: dP becomes dS = p (dP z - d). z: dropout's factors, or null; p is then multiplied by them.
template <class P>
void score_slopes(typename P::Acc* slopes, typename P::Acc* p, const typename P::Acc* z, const Rows<typename P::Acc>& r,
                  const Place& at, Index rows) {
  P::run([=, &r, queries = at.queries, keys = at.keys] {
    for (Index c = 0; c < queries; c += P::lanes) {
      const typename P::Vector d = vector_at<P>(r.d + c);
      for (Index j = 0; j < keys; ++j) {
        const Index k = j * query_block + c;
        auto &slope = vector_at<P>(slopes + k), &probability = vector_at<P>(p + k);
        if (z) slope *= vector_at<P>(z + k);
        slope = (slope - d) * probability;
        if (z) probability *= vector_at<P>(z + k);
      }
      for (Index j = keys; j < rows; ++j) vector_at<P>(slopes + j * query_block + c) = typename P::Vector{};
    }
  });
}
/// to [count, width], `token` elements apart, = factor x [count, columns].
template <class P, class T>
void store_rows(T* to, Index token, const typename P::Acc* x, Index columns, Index count, Index width,
                typename P::Acc factor) {
  P::run([=] {
    for (Index i = 0; i < count; ++i)
#pragma omp simd
      for (Index d = 0; d < width; ++d) put(to[i * token + d], x[i * columns + d] * factor);
  });
}

struct Operands {
  View dq, dk, dv, dout, o, stats, q, k, v;
};

/// Tokens of a head as left operands of products along D, and as right operands along the tokens.
template <class P, class T>
class Tokens {
  using Word = typename P::Word;

 public:
  Tokens(const Extents<P>& e, Index room)
      : e_(e), left_(room * e.words), paired_(P::per_word == 1 ? 0 : room / 2 * e.columns) {}
  void load(const T* x, Index token, Index count, Index width, Index rows) {
    load_rows<P>(left_, e_, x, token, count, width, rows);
    if constexpr (P::per_word == 2) pair_rows(paired_, e_, left_, rows);
  }
  const Word* left(Index from = 0) const { return left_ + from * e_.words; }
  const Word* right(Index from = 0) const {
    return P::per_word == 1 ? left(from) : paired_ + from / P::per_word * e_.columns;
  }

 private:
  const Extents<P>& e_;
  Buffer<Word> left_, paired_;
};

/// The data of a thread: current keys, a block of queries, and the sums of both. Its steps stay functions: copied into
/// their callers, they would take a quarter of the unit's compile time.
template <class P, class T>
class BackwardTiles {
  using A = typename P::Acc;
  using Word = typename P::Word;

 public:
  /// room: maximum number of keys at a time; sums: compute dk and dv as well as dq.
  [[gnu::noinline]] BackwardTiles(const AttentionJob& job, const Operands& x, Index room, bool sums = true)
      : job_(job),
        x_(x),
        e_(job.s.width),
        room_(round_up(room, row_step)),
        keys_(e_, room_),
        values_(e_, room_),
        queries_(e_, query_block),
        seeds_(e_, query_block),
        turned_queries_(e_.words * query_block),
        turned_seeds_(e_.words * query_block),
        probabilities_(key_block * query_block),
        slopes_(key_block * query_block),
        factors_(job.args.dropout > 0 ? key_block * query_block : 0),
        paired_(P::per_word == 1 ? 0 : key_block * query_block),
        dk_(sums ? room_ * e_.columns : 0),
        dv_(sums ? room_ * e_.columns : 0),
        dq_(query_block * e_.columns) {}

  /// dq, dk and dv for the keys of head g.
  void all(Index n, Index g) {
    const AttentionShape& s = job_.s;
    start_keys(n, g, 0, job_.end(n, 0, s.queries));
    for (Index h = g * s.group(); h < (g + 1) * s.group(); ++h)
      for (Index first = 0; first < s.queries; first += query_block) run_queries(n, h, first, true);
    store_keys(n, g, 0, s.keys);
  }
  /// dk and dv of a block of keys.
  void keys(Index n, Index g, Index from) {
    const AttentionShape& s = job_.s;
    const Index end = job_.end(n, 0, s.queries), count = std::min(key_block, s.keys - from);
    start_keys(n, g, from, std::clamp<Index>(end - from, 0, count));
    for (Index h = g * s.group(); h < (g + 1) * s.group(); ++h)
      for (Index first = 0; first < s.queries; first += query_block) {
        const Index queries = job_.queries_at(first), seen = std::min(count, job_.end(n, first, queries) - from);
        if (seen <= 0 || job_.first_tile(n, first) > from) continue;
        load_queries(n, h, first, queries);
        add_to_keys({n, h, first, queries, from, seen});
      }
    store_keys(n, g, from, count);
  }
  /// dq of a block of queries.
  void queries(Index n, Index h, Index first) {
    const Index g = h / job_.s.group();
    if (at_ != n * job_.s.kv_heads + g) load_keys(n, g, 0, job_.end(n, 0, job_.s.queries));
    run_queries(n, h, first, false);
  }

 private:
  [[gnu::noinline]] void load_keys(Index n, Index g, Index from, Index count) {
    const AttentionShape& s = job_.s;
    const Index rows = round_up(count, row_step);
    at_ = n * s.kv_heads + g;
    from_ = from;
    loaded_ = count;
    keys_.load(x_.k.as<const T>() + n * s.k.sample + from * s.k.token + g * s.width, s.k.token, count, s.width, rows);
    values_.load(x_.v.as<const T>() + n * s.v.sample + from * s.v.token + g * s.width, s.v.token, count, s.width, rows);
  }
  void start_keys(Index n, Index g, Index from, Index count) {
    load_keys(n, g, from, count);
    const Index sums = round_up(count, row_step) * e_.columns;
    std::fill_n(static_cast<A*>(dk_), sums, A{});
    std::fill_n(static_cast<A*>(dv_), sums, A{});
  }
  [[gnu::noinline]] void load_queries(Index n, Index h, Index first, Index count) {
    const AttentionShape& s = job_.s;
    const Index rows = round_up(count, P::lanes), token = s.heads * s.width;
    const Index at = ((n * s.queries + first) * s.heads + h) * s.width;
    queries_.load(x_.q.as<const T>() + n * s.q.sample + first * s.q.token + h * s.width, s.q.token, count, s.width,
                  rows);
    seeds_.load(x_.dout.as<const T>() + at, token, count, s.width, rows);
    transpose<P>(turned_queries_, query_block, queries_.left(), e_.words, rows, e_.words);
    transpose<P>(turned_seeds_, query_block, seeds_.left(), e_.words, rows, e_.words);
    load_row_numbers(x_.stats.as<const A>() + ((n * s.heads + h) * s.queries + first) * 2, x_.dout.as<const T>() + at,
                     x_.o.as<const T>() + at, count);
  }
  void load_row_numbers(const A* stats, const T* dout, const T* o, Index count) {
    P::run([=, &r = rows_, width = job_.s.width, token = job_.s.heads * job_.s.width] {
      for (Index i = 0; i < query_block; ++i) {
        const bool sees = i < count && stats[2 * i + 1] != 0;
        A d{};
        for (Index e = 0; sees && e < width; e += 16) {
          A part{};
#pragma omp simd reduction(+ : part)
          for (Index k = e; k < std::min<Index>(e + 16, width); ++k)
            part += static_cast<A>(dout[i * token + k]) * static_cast<A>(o[i * token + k]);
          d += part;
        }
        r.m[i] = sees ? stats[2 * i] : A{};
        r.inverse[i] = sees ? 1 / stats[2 * i + 1] : A{};
        r.d[i] = d;
      }
    });
  }
  [[gnu::noinline]] void run_queries(Index n, Index h, Index first, bool both) {
    const AttentionShape& s = job_.s;
    const Index count = job_.queries_at(first), end = job_.end(n, first, count);
    load_queries(n, h, first, count);
    std::fill_n(static_cast<A*>(dq_), query_block * e_.columns, A{});
    for (Index from = job_.first_tile(n, first); from < end; from += key_block) {
      const Place at{n, h, first, count, from, std::min(key_block, end - from)};
      if (both)
        add_to_keys(at);
      else
        find_slopes(at);
      add_to_queries(at);
    }
    store_rows<P>(x_.dq.as<T>() + n * s.q.sample + first * s.q.token + h * s.width, s.q.token,
                  static_cast<const A*>(dq_), e_.columns, count, s.width, static_cast<A>(job_.args.scale));
  }

  /// The tile's probabilities (times dropout's factors) and dS.
  [[gnu::noinline]] void find_slopes(const Place& at) {
    const Index rows = round_up(at.keys, row_step), columns = round_up(at.queries, P::lanes);
    multiply<P, false, Into::scaled>({probabilities_, query_block, keys_.left(at.from - from_), e_.words,
                                      turned_queries_, query_block, rows, columns, e_.depth,
                                      static_cast<A>(job_.args.scale)});
    finish_scores<P>(probabilities_, job_, at);
    probabilities<P>(probabilities_, rows_, at, rows);
    multiply<P, false, Into::scaled>({slopes_, query_block, values_.left(at.from - from_), e_.words, turned_seeds_,
                                      query_block, rows, columns, e_.depth});
    const bool drops = job_.args.dropout > 0;
    if (drops) dropout_factors<A>(factors_, job_, at);
    score_slopes<P>(slopes_, probabilities_, drops ? static_cast<const A*>(factors_) : nullptr, rows_, at, rows);
  }
  [[gnu::noinline]] void add_to_keys(const Place& at) {
    find_slopes(at);
    add_keys(dv_, probabilities_, seeds_, at);
    add_keys(dk_, slopes_, queries_, at);
  }
  /// to += tile right, a product along the queries.
  [[gnu::noinline]] void add_keys(A* to, const A* tile, const Tokens<P, T>& right, const Place& at) {
    const Index rows = round_up(at.keys, row_step), row = query_block / P::per_word;
    const Word* left;
    if constexpr (P::per_word == 2) {
      pair_queries(paired_, tile, rows);
      left = paired_;
    } else
      left = tile;
    multiply<P, false, Into::added>({to + (at.from - from_) * e_.columns, e_.columns, left, row, right.right(),
                                     e_.columns, rows, e_.columns, (at.queries + P::per_word - 1) / P::per_word});
  }
  /// dq += dS k, a product along the keys.
  void add_to_queries(const Place& at) {
    const Word* left;
    if constexpr (P::per_word == 2) {
      pair_keys(paired_, slopes_, at.keys);
      left = paired_;
    } else
      left = slopes_;
    multiply<P, true, Into::added>({dq_, e_.columns, left, query_block, keys_.right(at.from - from_), e_.columns,
                                    round_up(at.queries, row_step), e_.columns,
                                    (at.keys + P::per_word - 1) / P::per_word});
  }
  /// Stores keys [from, from + count). Keys that no query attends to have not been loaded.
  [[gnu::noinline]] void store_keys(Index n, Index g, Index from, Index count) {
    const AttentionShape& s = job_.s;
    const auto store = [&](T* to, Index token, const A* x, double factor) {
      store_rows<P>(to, token, x, e_.columns, loaded_, s.width, static_cast<A>(factor));
      for (Index j = loaded_; j < count; ++j) std::fill_n(to + j * token, s.width, T(0.f));
    };
    store(x_.dk.as<T>() + n * s.k.sample + from * s.k.token + g * s.width, s.k.token, dk_, job_.args.scale);
    store(x_.dv.as<T>() + n * s.v.sample + from * s.v.token + g * s.width, s.v.token, dv_, 1);
  }

  const AttentionJob& job_;
  const Operands& x_;
  Extents<P> e_;
  Index room_, at_ = -1, from_ = 0, loaded_ = 0;  // loaded_ keys from from_ on, of head at_ of all samples'
  Tokens<P, T> keys_, values_, queries_, seeds_;
  Buffer<Word> turned_queries_, turned_seeds_;
  Buffer<A> probabilities_, slopes_, factors_;
  Buffer<Word> paired_;
  Buffer<A> dk_, dv_, dq_;
  Rows<A> rows_;
};

template <class P, class T>
void run_backward(const AttentionJob& job, const Operands& x) {
  const AttentionShape& s = job.s;
  const Index heads = s.samples * s.kv_heads, team = threads(), turns = (heads + team - 1) / team;
  const Index cost = query_block * s.keys * s.width, blocks = job.blocks(),
              key_blocks = (s.keys + key_block - 1) / key_block;
  // Five products in tiles that are met once, seven in tiles that are met twice.
  if (5 * turns * team <= 7 * heads)
    return parallel_for(heads, cost * blocks * s.group(), [&](Index begin, Index end) {
      BackwardTiles<P, T> tiles(job, x, s.keys);
      for (Index i = begin; i < end; ++i) tiles.all(i / s.kv_heads, i % s.kv_heads);
    });
  parallel_for(heads * key_blocks, cost, [&](Index begin, Index end) {
    BackwardTiles<P, T> tiles(job, x, std::min(key_block, s.keys));
    for (Index i = begin; i < end; ++i) {
      const Index head = i / key_blocks, block = job.block_at(i % key_blocks, key_blocks);
      tiles.keys(head / s.kv_heads, head % s.kv_heads, block * key_block);
    }
  });
  parallel_for(s.samples * s.heads * blocks, cost, [&](Index begin, Index end) {
    BackwardTiles<P, T> tiles(job, x, s.keys, false);
    for (Index i = begin; i < end; ++i)
      tiles.queries(i / blocks / s.heads, i / blocks % s.heads, job.block_at(i % blocks, blocks) * query_block);
  });
}

void attention_backward(View dq, View dk, View dv, View dout, View o, View stats, View q, View k, View v,
                        const AttentionArgs& args) {
  constexpr auto op = kernel::AttentionBackward::name;
  const AttentionJob job(check_attention_backward(dq, dk, dv, dout, o, stats, q, k, v, args, op), args);
  const Operands x{dq, dk, dv, dout, o, stats, q, k, v};
  with_code(q.dtype, op, [&]<class P, class T>(P, T) { run_backward<P, T>(job, x); });
}

const Kernel<kernel::AttentionBackward> attention_backward_cpu{DeviceKind::cpu, attention_backward};

}  // namespace
}  // namespace trireme::tiles
