// Parts that the attention kernels share: the arguments of a call, a block's sample and head, and tiles of scores. A
// block of threads owns a tile of rows (queries or keys) and processes the tiles of the other side. So each result has
// one writer and its sums one order, without atomics.
//
// A Tile (FmaTile in attention_fma.cuh for f32 and f64, MmaTile in attention_mma.cuh on tensor cores) defines how a
// tile of rows x columns scores is stored in the registers of a block's threads. Element (r, c) of a thread is row(r),
// column(c); result x of its row r is element output(x) of the slab. It computes:
//   keep<slot>(own rows, at) loads the block's own rows from `at` on, for all later steps
//   enter(first, second, at) loads the other side's tiles to slots 0 and 1, until the next call
//   product<slot>(s, own, at, other, at)   s = own other^T over D
//   accumulate<slot>(out, weights, x, at, first)  out += weights x over the tile's tokens, elements first..first + slab
// All threads of the block take part; operands are those that keep() and enter() had for that slot.
#pragma once
#include <bit>
#include <limits>

#include "kernels/contracts/attention.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/plans/attention_checks.h"

namespace trireme::gpu {

/// The numbers of a call, as kernels take them. A: the type of sums.
template <class A>
struct AttentionJob {
  int queries, keys;  ///< Tq and Tk
  Index samples, heads, kv_heads, width;
  A scale, kept_scale;  ///< kept_scale: of a probability that dropout keeps
  std::uint32_t threshold;
  bool causal, drops, vector;               ///< vector: rows of operands may be read 16 bytes at a time
  Index head_at, alibi_heads, alibi_power;  ///< alibi_heads: 0 without ALiBi
  Index q_at, window, all_queries, all_keys;
  TokenMap query_map, key_map;
  const Index *q_starts, *lengths, *ids;  ///< i64 [N], may be null
  const Index* first_keys;                ///< i64 [N, Tq], may be null
  MaskKey key;
  TokenStrides q, k, v;
};

/// Rows of one head of one sample: row t at data + t * stride. Rows from `count` on are read as zeros.
template <class T>
struct HeadRows {
  const T* data;
  Index stride;
  int count;
};

/// A TokenMap in int.
struct Positions {
  int first, step, turn, jump;
  __device__ explicit Positions(const TokenMap& m)
      : first(static_cast<int>(m.first)),
        step(static_cast<int>(m.step)),
        turn(m.turn < limit ? static_cast<int>(m.turn) : limit),
        jump(static_cast<int>(m.jump)) {}
  __device__ int at(int i) const { return first + i * step + (i < turn ? 0 : jump); }
  /// How many of `count` tokens come before `index`.
  __device__ int before(int index, int count) const {
    const int run = min(turn, count), some = in_run(index, first, 0, run);
    return some < run ? some : in_run(index, first + jump, run, count);
  }

 private:
  static constexpr int limit = 1 << 30;
  __device__ int in_run(int index, int from, int begin, int end) const {
    if (index <= from) return begin;
    return min(max((index - from + step - 1) / step, begin), end);
  }
};

/// A block's sample and query head.
template <class A>
struct AttentionHead {
  Index sample, head;
  int position, queries, keys, all_keys, window;  ///< position: added to those of the queries; keys: of visible ones
  bool causal;
  const Index* first_keys;  ///< of this sample's queries, or null
  A scale, slope;
  Positions query_map, key_map;
  std::uint64_t mask_key, id, first, row;  ///< first: the mask's element of the text's first query and key; row: of all

  __device__ AttentionHead(const AttentionJob<A>& job, Index n, Index h)
      : sample(n),
        head(h),
        queries(job.queries),
        all_keys(job.keys),
        causal(job.causal),
        first_keys(job.first_keys ? job.first_keys + n * job.queries : nullptr),
        scale(job.scale),
        query_map(job.query_map),
        key_map(job.key_map) {
    constexpr Index far = (Index{1} << 30) - 1;  // queries from this position on see all keys, or none
    const Index at = job.q_at + (job.q_starts ? job.q_starts[n] : 0);
    position = static_cast<int>(at < -far ? -far : at > far ? far : at);
    window = job.window > 0 && job.window < far ? static_cast<int>(job.window) : 0;
    const Index length = job.lengths ? job.lengths[n] : far;
    keys = key_map.before(static_cast<int>(length < 0 ? 0 : length > far ? far : length), job.keys);
    const Index global = job.head_at + h, power = job.alibi_power;
    slope = 0;  // as alibi_slope(), which is the host's
    if (job.alibi_heads > 0)
      slope = static_cast<A>(
          global < power
              ? std::exp2(-8.0 * static_cast<double>(global + 1) / static_cast<double>(power))
              : std::exp2(-4.0 * static_cast<double>(2 * (global - power) + 1) / static_cast<double>(power)));
    mask_key = job.drops ? job.key() : 0;
    id = static_cast<std::uint64_t>(job.ids ? job.ids[n] : n);
    row = static_cast<std::uint64_t>(job.all_keys);
    first = static_cast<std::uint64_t>(global * job.all_queries) * row;
  }
  /// From a key to a query, in tokens.
  __device__ int distance(int i, int j) const { return position + query_map.at(i) - key_map.at(j); }
  /// Query i, and later ones, attend to no key before this position.
  __device__ int lower(int i) const {
    const int near = window == 0 ? 0 : position + query_map.at(i) - window + 1;
    if (!first_keys) return near;
    constexpr Index far = Index{1} << 30;
    const Index first = first_keys[min(i, queries - 1)];
    return first > near ? static_cast<int>(first < far ? first : far) : near;
  }
  __device__ bool sees(int i, int j) const {
    if (j >= keys) return false;
    if (!causal) return true;
    const int key = key_map.at(j);
    return key <= position + query_map.at(i) && key >= lower(i);
  }
  __device__ A score(A product, int i, int j) const {
    const A v = product * scale;
    return slope == A(0) ? v : v + slope * static_cast<A>(-distance(i, j));
  }
  /// First key that none of the queries before `queries`, at least one, attends to.
  __device__ int end(int queries) const {
    return causal ? min(keys, key_map.before(position + query_map.at(queries - 1) + 1, all_keys)) : keys;
  }
  /// First key that query i, or a later one, attends to.
  __device__ int begin(int i) const { return window == 0 && !first_keys ? 0 : key_map.before(lower(i), all_keys); }
  /// First of `queries` that attends to key j, or to a later one.
  __device__ int first_query(int j, int queries) const {
    return causal ? query_map.before(key_map.at(j) - position, queries) : 0;
  }
  /// Number of the mask's element.
  __device__ std::uint64_t element(int i, int j) const {
    return first + static_cast<std::uint64_t>(query_map.at(i)) * row + static_cast<std::uint64_t>(key_map.at(j));
  }
};

/// Which of a thread's elements dropout keeps: bit r * columns + c for element (r, c) of the tile at query i0 and key
/// j0. A Philox number serves up to four keys that follow one another.
template <class Tile, bool keys_are_rows, class A>
__device__ unsigned kept_bits(const AttentionHead<A>& head, std::uint32_t threshold, int i0, int j0) {
  constexpr int inner = keys_are_rows ? Tile::thread_rows : Tile::thread_columns,
                count = Tile::thread_rows * Tile::thread_columns;
  static_assert(count <= 32);
  unsigned kept = 0;
  std::uint64_t last = ~std::uint64_t{0};
  std::array<std::uint32_t, 4> bits{};
#pragma unroll 1
  for (int x = 0; x < count; ++x) {
    const int along = x % inner, across = x / inner;
    const int r = keys_are_rows ? along : across, c = keys_are_rows ? across : along;
    const int i = i0 + (keys_are_rows ? Tile::column(c) : Tile::row(r)),
              j = j0 + (keys_are_rows ? Tile::row(r) : Tile::column(c));
    const std::uint64_t e = head.element(i, j);
    if (e / 4 != last) {
      last = e / 4;
      bits = Philox{head.mask_key}(head.id, last);
    }
    const int skip = static_cast<int>(e % 4);
    const std::uint32_t own = skip < 2 ? (skip == 0 ? bits[0] : bits[1]) : (skip == 2 ? bits[2] : bits[3]);
    if (own >> 8 >= threshold) kept |= 1u << (r * Tile::thread_columns + c);
  }
  return kept;
}

/// This block's tile of rows, head (of `heads`), sample and slab of D. The last rows of a causal mask attend to most
/// keys: they come first, so that all blocks end at about the same time; `descending` selects that order.
struct AttentionBlock {
  int tile;
  Index head, sample;
  int slab;

  __device__ AttentionBlock(int tiles, Index heads, Index samples, bool descending) {
    Index at = blockIdx.x;
    tile = static_cast<int>(at % tiles);
    at /= tiles;
    if (descending) tile = tiles - 1 - tile;
    head = at % heads;
    at /= heads;
    sample = at % samples;
    slab = static_cast<int>(at / samples);
  }
};

/// Results of one head of one sample: row t at data + t * stride.
template <class Tile, class T, class A, int outputs>
__device__ void store_rows(T* data, Index stride, int rows, int at, int column, Index width,
                           const A (&out)[Tile::thread_rows][outputs]) {
#pragma unroll
  for (int r = 0; r < Tile::thread_rows; ++r) {
    const int row = at + Tile::row(r);
    if (row >= rows) continue;
#pragma unroll
    for (int x = 0; x < outputs; ++x) {
      const int to = column + Tile::output(x);
      if (to < width) data[row * stride + to] = rounded<T>(out[r][x]);
    }
  }
}

}  // namespace trireme::gpu
