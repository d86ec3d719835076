// The forward of attention on the CPU. Tiles of scores are [keys, queries], so that softmax runs along vectors of
// queries (FlashAttention, Dao et al., arXiv 2205.14135).
#include "kernels/core/kernel.h"
#include "kernels/cpu/attention_job.h"

namespace trireme::tiles {
namespace {

/// Softmax of a tile's scores over its keys: scores become exp(score - m). m, l and alpha, the factor of earlier sums,
/// are per query.
template <class P>
void online_softmax(typename P::Acc* scores, const Place& at, typename P::Acc* m, typename P::Acc* l,
                    typename P::Acc* alpha) {
  P::run([=, queries = at.queries, keys = at.keys] {
    using Vector = typename P::Vector;
    constexpr auto infinity = std::numeric_limits<typename P::Acc>::infinity();
    for (Index c = 0; c < queries; c += P::lanes) {
      Vector top = vector_at<P>(m + c);
      for (Index j = 0; j < keys; ++j) {
        const Vector& x = vector_at<P>(scores + j * query_block + c);
        top = x > top ? x : top;
      }
      const Vector from = top == -infinity ? Vector{} : top;  // a query without keys so far: exp(-inf - 0) = 0
      Vector shrunk = vector_at<P>(m + c) - from, sum{};
      exp_of<P>(shrunk);
      for (Index j = 0; j < keys; ++j) {
        Vector x = vector_at<P>(scores + j * query_block + c) - from;
        exp_of<P>(x);
        sum += x;
        vector_at<P>(scores + j * query_block + c) = x;
      }
      vector_at<P>(m + c) = top;
      vector_at<P>(l + c) = vector_at<P>(l + c) * shrunk + sum;
      vector_at<P>(alpha + c) = shrunk;
    }
  });
}

/// Vector `to` of the pieces of 16 bytes at `from`, from + step, ...
template <class P, int... at>
[[gnu::always_inline]] inline void load_pieces(typename P::Words& to, const typename P::Word* from, Index step,
                                               std::integer_sequence<int, at...>) {
  (instructions::load_piece<at>(to, from + at * step), ...);
}
/// The squares that x consists of, of `piece` words of 16 bytes together, transposed. Each stage mixes the lower, and
/// the upper, halves of the pieces of two vectors.
template <class P, int piece, int stage = 1, int... lane>
[[gnu::always_inline]] inline void transpose_pieces(typename P::Words (&x)[piece],
                                                    std::integer_sequence<int, lane...> all) {
  if constexpr (stage < piece) {
    typename P::Words y[piece];
#pragma GCC unroll 4
    for (int i = 0; i < piece / 2; ++i) {
      constexpr auto from = [](int l, int upper) {
        return l / piece * piece + upper + l % piece / 2 + l % 2 * P::lanes;
      };
      instructions::shuffle<P, from(lane, 0)...>(y[2 * i], x[i], x[i + piece / 2]);
      instructions::shuffle<P, from(lane, piece / 2)...>(y[2 * i + 1], x[i], x[i + piece / 2]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < piece; ++i) x[i] = y[i];
    transpose_pieces<P, piece, 2 * stage>(x, all);
  }
}
/// scores = scale <query, key> of groups * P::lanes keys, which are `step` apart, with the bits of multiply(): the
/// elements of a query are added in order. They come in pieces of 16 bytes, which are transposed in registers.
template <class P, int groups>
[[gnu::always_inline]] inline void scores_of_one(typename P::Acc* scores, const typename P::Word* query,
                                                 const typename P::Word* keys, Index step, Index depth,
                                                 typename P::Acc scale) {
  using Words = typename P::Words;
  constexpr int piece = 16 / sizeof(typename P::Word);
  Words sum[groups] = {};
  for (Index d = 0; d < depth; d += piece, keys += piece) {
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g) {
      Words x[piece];
      const typename P::Word* from = keys + g * P::lanes * step;
      asm("" : "+r"(from));  // else 24 addresses are kept
#pragma GCC unroll 4
      for (int i = 0; i < piece; ++i)
        load_pieces<P>(x[i], from + i * step, piece * step, std::make_integer_sequence<int, P::lanes / piece>{});
      // The next keys, whose distance no hardware follows: a quarter of the rows for each piece of a cache line.
      for (Index i = d / piece % 4; i < P::lanes; i += 4) __builtin_prefetch(from + (groups * P::lanes + i) * step);
      transpose_pieces<P>(x, std::make_integer_sequence<int, P::lanes>{});
#pragma GCC unroll 4
      for (int i = 0; i < piece; ++i) P::add(sum[g], query[d + i] - Words{}, x[i]);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < groups; ++g) vector_at<P>(scores + g * P::lanes) = sum[g] * scale;
}

/// As online_softmax(), for the scores of one query [keys], with the same bits.
template <class P>
void online_softmax_of_one(typename P::Acc* scores, Index keys, typename P::Acc& m, typename P::Acc& alpha) {
  P::run([=, &m, &alpha] {
    using Vector = typename P::Vector;
    using A = typename P::Acc;
    constexpr auto infinity = std::numeric_limits<A>::infinity();
    for (Index j = keys; j % P::lanes != 0; ++j) scores[j] = -infinity;
    Vector tops = Vector{} + m;
    for (Index j = 0; j < keys; j += P::lanes) {
      const Vector& x = vector_at<P>(scores + j);
      tops = x > tops ? x : tops;
    }
    A top = m;
    for (int i = 0; i < P::lanes; ++i) top = tops[i] > top ? tops[i] : top;
    const A from = top == -infinity ? A{} : top;
    Vector shrunk = Vector{} + (m - from);
    exp_of<P>(shrunk);
    for (Index j = 0; j < keys; j += P::lanes) {
      Vector& x = vector_at<P>(scores + j);
      x -= from;
      exp_of<P>(x);
    }
    m = top;
    alpha = shrunk[0];
  });
}

/// sums [n vectors] = sums * alpha + the weighted sum of the values of `keys` keys, which are `step` apart. Returns the
/// sum of the weights, which costs no time here.
template <class P, int n>
[[gnu::always_inline]] inline typename P::Acc values_of_one(typename P::Acc* sums, const typename P::Acc* weights,
                                                            const typename P::Word* values, Index step, Index keys,
                                                            typename P::Acc alpha) {
  using Vector = typename P::Vector;
  Vector sum[n] = {};
  typename P::Acc total{};
  constexpr int ahead = 16, cache_line = 64 / sizeof(typename P::Word);  // keys, and numbers
  for (Index j = 0; j < keys; ++j, values += step) {
    total += weights[j];
#pragma GCC unroll 8
    for (int i = 0; i < n * P::lanes; i += cache_line) __builtin_prefetch(values + ahead * step + i);
    const Vector weight = weights[j] - Vector{};
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) P::add(sum[i], weight, words_at<P>(values + i * P::lanes));
  }
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {
    Vector& to = vector_at<P>(sums + i * P::lanes);
    to = to * alpha + sum[i];
  }
  return total;
}

/// A thread's blocks of queries, and their keys and values: copies or, if no other block uses them, the tensors.
template <class P, class T>
class ForwardBlocks {
  using A = typename P::Acc;
  using Word = typename P::Word;

 public:
  ForwardBlocks(const AttentionJob& job, const View& o, const View& stats, const View& q, const View& k, const View& v)
      : job_(job),
        o_(o.as<T>()),
        stats_(stats.as<A>()),
        q_(q.as<const T>()),
        k_(k.as<const T>()),
        v_(v.as<const T>()),
        e_(job.s.width),
        in_place_(std::is_same_v<T, Word> && job.blocks() == 1 && job.s.width % P::lanes == 0),
        room_(in_place_ ? 0 : round_up(job.s.keys, row_step)),
        keys_(room_ * e_.words),
        values_(P::per_word == 1 ? room_ * e_.words : room_ * e_.words + room_ / 2 * e_.columns),
        queries_(query_block * e_.words),
        turned_(e_.words * query_block),
        scores_(key_block * query_block),
        paired_(key_block * query_block),
        factors_(job.args.dropout > 0 ? key_block * query_block : 0),
        sums_(query_block * e_.columns) {}

  /// Block number `task` of all samples, heads and queries.
  void run(Index task) {
    const AttentionShape& s = job_.s;
    const Index blocks = job_.blocks(), head = task / blocks, n = head / s.heads, h = head % s.heads;
    const Index g = n * s.kv_heads + h / s.group();
    if (g != at_) load_keys(n, h / s.group());
    at_ = g;
    run_block(n, h, job_.block_at(task % blocks, blocks) * query_block);
  }

 private:
  void load_keys(Index n, Index g) {
    const AttentionShape& s = job_.s;
    if constexpr (std::is_same_v<T, Word>)
      if (in_place_) {
        left_ = {k_ + n * s.k.sample + g * s.width, s.k.token};
        right_ = {v_ + n * s.v.sample + g * s.width, s.v.token};
        return;
      }
    left_ = {keys_, e_.words};
    right_ = {values_, e_.columns};
    const Index count = job_.end(n, 0, s.queries), rows = round_up(count, row_step);
    load_rows<P>(keys_, e_, k_ + n * s.k.sample + g * s.width, s.k.token, count, s.width, rows);
    Word* const natural = P::per_word == 1 ? values_ : values_ + room_ / 2 * e_.columns;
    load_rows<P>(natural, e_, v_ + n * s.v.sample + g * s.width, s.v.token, count, s.width, rows);
    if constexpr (P::per_word == 2) pair_rows(values_, e_, natural, rows);
  }
  void run_block(Index n, Index h, Index first) {
    const AttentionShape& s = job_.s;
    const Index count = job_.queries_at(first), columns = round_up(count, P::lanes), end = job_.end(n, first, count);
    load_rows<P>(queries_, e_, q_ + n * s.q.sample + first * s.q.token + h * s.width, s.q.token, count, s.width,
                 columns);
    transpose<P>(turned_, query_block, queries_, e_.words, columns, e_.words);
    std::fill_n(m_, query_block, -std::numeric_limits<A>::infinity());
    std::fill_n(l_, query_block, A{});
    std::fill_n(static_cast<A*>(sums_), round_up(count, row_step) * e_.columns, A{});
    const bool one = count == 1 && job_.slope(h) == 0 && job_.args.dropout == 0;
    for (Index from = job_.first_tile(n, first); from < end; from += key_block) {
      const Place at{n, h, first, count, from, std::min(key_block, end - from)};
      if constexpr (P::per_word == 1)
        if (one) {
          add_keys_of_one(at);
          continue;
        }
      add_keys(at);
    }
    store(n, h, first, count);
  }
  /// As add_keys(), for one query, which attends to all keys: vectors run along the keys, with the same bits. 32 bytes
  /// are the best length for transpositions and loads.
  void add_keys_of_one(const Place& at) requires(P::per_word == 1) {
    using One = std::conditional_t<P::lanes * sizeof(A) == 64, Plain<A, 32>, P>;
    const Word* const keys = left_.first + at.from * left_.step;
    One::run([=, scores = static_cast<A*>(scores_), query = static_cast<const Word*>(queries_), step = left_.step,
              depth = e_.depth, scale = static_cast<A>(job_.args.scale), count = at.keys, before = at.from] {
      constexpr int groups = 3;  // hide the latency of a sum; four do not fit into 16 registers
      Index j = 0;
      for (; j + groups * One::lanes <= count; j += groups * One::lanes)
        scores_of_one<One, groups>(scores + j, query, keys + j * step, step, depth, scale);
      for (; j + One::lanes <= count; j += One::lanes)
        scores_of_one<One, 1>(scores + j, query, keys + j * step, step, depth, scale);
      if (j < count && before + count >= One::lanes) {  // the last vector overlaps
        A last[One::lanes];
        scores_of_one<One, 1>(last, query, keys + (count - One::lanes) * step, step, depth, scale);
        for (; j < count; ++j) scores[j] = last[One::lanes - count + j];
      }
      for (; j < count; ++j) {
        A sum{};
        for (Index d = 0; d < depth; ++d) {
          sum += query[d] * keys[j * step + d];
          asm("" : "+m"(sum));  // else products are rounded before they are added
        }
        scores[j] = sum * scale;
      }
    });
    for (Index j = at.from; j < job_.begin(at.n, at.first); ++j)
      scores_[j - at.from] = -std::numeric_limits<A>::infinity();
    online_softmax_of_one<One>(scores_, at.keys, m_[0], alpha_[0]);
    One::run([=, sums = static_cast<A*>(sums_), weights = static_cast<const A*>(scores_),
              values = right_.first + at.from * right_.step, step = right_.step, columns = e_.columns,
              alpha = alpha_[0], keys = at.keys, &l = l_[0]] {
      A total{};
      Index c = 0;
      for (; c + 8 * One::lanes <= columns; c += 8 * One::lanes)
        total = values_of_one<One, 8>(sums + c, weights, values + c, step, keys, alpha);
      for (; c + 4 * One::lanes <= columns; c += 4 * One::lanes)
        total = values_of_one<One, 4>(sums + c, weights, values + c, step, keys, alpha);
      for (; c < columns; c += One::lanes)
        total = values_of_one<One, 1>(sums + c, weights, values + c, step, keys, alpha);
      l = l * alpha + total;
    });
  }
  void add_keys(const Place& at) {
    constexpr Index few = 3;  // rows that are faster one by one
    const Index words = (at.keys + P::per_word - 1) / P::per_word;
    multiply<P, false, Into::scaled>({scores_, query_block, left_.first + at.from * left_.step, left_.step, turned_,
                                      query_block, in_place_ ? at.keys : round_up(at.keys, row_step),
                                      round_up(at.queries, P::lanes), e_.depth, static_cast<A>(job_.args.scale)});
    finish_scores<P>(scores_, job_, at);
    online_softmax<P>(scores_, at, m_, l_, alpha_);
    if (job_.args.dropout > 0) {
      dropout_factors<A>(factors_, job_, at);
      multiply_by<P>(scores_, factors_, at);
    }
    const Word* probabilities;
    if constexpr (P::per_word == 2) {
      pair_keys(paired_, scores_, at.keys);
      probabilities = paired_;
    } else
      probabilities = scores_;
    multiply<P, true, Into::rescaled>(
        {sums_, e_.columns, probabilities, query_block, right_.first + at.from / P::per_word * right_.step, right_.step,
         at.queries <= few ? at.queries : round_up(at.queries, row_step), e_.columns, words, A{1}, alpha_});
  }
  void store(Index n, Index h, Index first, Index count) {
    const AttentionShape& s = job_.s;
    T* const to = o_ + ((n * s.queries + first) * s.heads + h) * s.width;
    A* const stats = stats_ + ((n * s.heads + h) * s.queries + first) * 2;
    P::run([=, &l = l_, &m = m_, width = s.width, token = s.heads * s.width, sums = static_cast<const A*>(sums_),
            columns = e_.columns] {
      for (Index i = 0; i < count; ++i) {
        const A total = l[i];
        stats[2 * i] = m[i];
        stats[2 * i + 1] = total;
#pragma omp simd
        for (Index d = 0; d < width; ++d) put(to[i * token + d], total == 0 ? A{} : sums[i * columns + d] / total);
      }
    });
  }

  const AttentionJob& job_;
  T* o_;
  A* stats_;
  const T *q_, *k_, *v_;
  Extents<P> e_;
  bool in_place_;
  Index room_, at_ = -1;
  struct Matrix {
    const Word* first;
    Index step;  // elements from one row to the next
  };
  Matrix left_ = {}, right_ = {};  // current keys and values
  Buffer<Word> keys_, values_, queries_, turned_;
  Buffer<A> scores_;
  Buffer<Word> paired_;
  Buffer<A> factors_, sums_;
  A m_[query_block], l_[query_block], alpha_[query_block];
};

void attention(View o, View stats, View q, View k, View v, const AttentionArgs& args) {
  constexpr auto op = kernel::Attention::name;
  const AttentionJob job(check_attention(o, stats, q, k, v, args, op), args);
  const AttentionShape& s = job.s;
  with_code(q.dtype, op, [&]<class P, class T>(P, T) {
    parallel_for(s.samples * s.heads * job.blocks(), query_block * s.keys * s.width, [&](Index begin, Index end) {
      ForwardBlocks<P, T> blocks(job, o, stats, q, k, v);
      for (Index task = begin; task < end; ++task) blocks.run(task);
    });
  });
}

const Kernel<kernel::Attention> attention_cpu{DeviceKind::cpu, attention};

}  // namespace
}  // namespace trireme::tiles
