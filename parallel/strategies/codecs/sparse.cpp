// Codecs that send some of the numbers and keep the others: each rank's largest, random ones, or the largest chunks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "parallel/strategies/codecs/codecs.h"
#include "parallel/strategies/codecs/encode.h"

namespace trireme {
namespace {

/// How many of `count` numbers (or chunks) are sent in this step.
Index sent_of(const CodecContext& now, Index count) {
  const double ratio = now.argument("ratio"), warmup = now.argument("warmup");
  const double done = (static_cast<double>(now.step) - now.argument("from")) / std::max(warmup, 1.0);
  const double of_step = done < 1 && warmup > 0 ? std::max(ratio, std::pow(0.25, 1 + std::floor(4 * done))) : ratio;
  return std::clamp(static_cast<Index>(std::ceil(of_step * static_cast<double>(count))), Index{1}, count);
}

/// Local gradient clipping: scales the numbers to the L2 norm `clip` divided by the square root of the number of ranks,
/// if their norm is larger. Without `clip`, or with 0, they are unchanged.
template <class T>
void clip(const CodecContext& now, T* g) {
  const double most = find_argument(now.action, "clip").value_or(0) / std::sqrt(static_cast<double>(now.ranks));
  if (most == 0) return;
  double squares = 0;
  for (Index i = 0; i < now.size; ++i) squares += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  const double norm = std::sqrt(squares);
  if (norm <= most) return;
  const T factor = static_cast<T>(most / norm);
  for (Index i = 0; i < now.size; ++i) g[i] *= factor;
}

/// Unsent gradients v, and their momentum u (momentum correction; null: none).
template <class T>
struct Kept {
  T *v, *u;
  Kept(const CodecContext& now, const Tensor& numbers) : u(detail::state<T>(now, 1)) {
    clip(now, numbers.data<T>());
    if (u != nullptr)
      vectorised([u = u, g = numbers.data<T>(), m = static_cast<T>(now.argument("momentum")), n = now.size] {
#pragma omp simd
        for (Index i = 0; i < n; ++i) g[i] = u[i] = m * u[i] + g[i];
      });
    v = detail::with_residual<T>(now, numbers);
    if (now.argument("masking") == 0) u = nullptr;
  }
  /// Call when the number at i is sent.
  void clear(Index i) {
    v[i] = 0;
    if (u != nullptr) u[i] = 0;
  }
};

template <class T>
using Key = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
/// A key that is greater for larger magnitudes; NaN has the greatest.
template <class T>
Key<T> key_of(T value) {
  return std::bit_cast<Key<T>>(value) << 1;
}

/// The k largest of n numbers: those with keys above `least`, and the first `ties` with that key.
template <class T>
struct Largest {
  Key<T> least;
  Index ties;
  Largest(const T* v, Index n, Index k) {
    constexpr int digits = sizeof(T) == 8 ? 14 : 12, shift = 8 * sizeof(T) - digits;
    std::vector<std::uint32_t> counts(4 << digits);  // by the first digits of a key; four tables, because consecutive
                                                     // keys are often equal
    for (Index i = 0; i < n; ++i) ++counts[(i & 3) << digits | key_of(v[i]) >> shift];
    const auto count = [&](Key<T> digit) {
      Index all = 0;
      for (Index i = 0; i < 4; ++i) all += counts[static_cast<std::size_t>(i << digits | static_cast<Index>(digit))];
      return all;
    };
    Key<T> digit = (Key<T>{1} << digits) - 1;
    for (; count(digit) < k; --digit) k -= count(digit);
    std::vector<Key<T>> keys;
    for (Index i = 0; i < n; ++i)
      if (key_of(v[i]) >> shift == digit) keys.push_back(key_of(v[i]));
    std::ranges::nth_element(keys, keys.begin() + (k - 1), std::greater());
    least = keys[static_cast<std::size_t>(k - 1)];
    ties = k - std::count_if(keys.begin(), keys.begin() + k, [&](Key<T> key) { return key > least; });
  }
  bool takes(T value) {
    const Key<T> key = key_of(value);
    return key > least || (key == least && ties-- > 0);
  }
};

// The k numbers of a vector, then their positions.
Index length_of_largest(const CodecContext& now) { return sent_of(now, now.size) * (now.element + 4); }

void encode_largest(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  detail::with_type(numbers, [&]<class T>(T) {
    Kept<T> kept(now, numbers);
    const Index k = sent_of(now, now.size);
    Largest<T> largest(kept.v, now.size, k);
    auto* values = wire.data<std::byte>();
    auto* positions = values + k * now.element;
    for (Index i = 0; i < now.size; ++i) {
      if (!largest.takes(kept.v[i])) continue;
      const auto at = static_cast<std::uint32_t>(i);
      std::memcpy(values, kept.v + i, sizeof(T));
      values += sizeof(T);
      std::memcpy(positions, &at, sizeof at);
      positions += sizeof at;
      kept.clear(i);
    }
  });
}

void decode_largest(const CodecContext& now, const Tensor& wire, const Tensor& numbers) {
  detail::with_type(numbers, [&]<class T>(T) {
    const Index k = sent_of(now, now.size);
    const auto* values = wire.data<std::byte>();
    const auto* positions = values + k * now.element;
    for (Index i = 0; i < k; ++i) {
      T value;
      std::uint32_t at;
      std::memcpy(&value, values + i * now.element, sizeof value);
      std::memcpy(&at, positions + 4 * i, sizeof at);
      numbers.data<T>()[at] += value;
    }
  });
}

/// Calls f(position) for this step's random positions in order; they are equal on all ranks. Each set of positions has
/// the same probability (R. W. Floyd's algorithm: Bentley, Communications of the ACM 30, 1987).
template <class F>
void each_drawn(const CodecContext& now, F f) {
  const Philox random = detail::random(now, false);
  std::vector<std::uint64_t> drawn(static_cast<std::size_t>(now.size / 64 + 1));
  const auto bit = [&](Index i) { return std::uint64_t{1} << (i % 64); };
  for (Index last = now.size - sent_of(now, now.size); last < now.size; ++last) {
    const auto four = random(0, static_cast<std::uint64_t>(last));
    const auto word = static_cast<unsigned __int128>(std::uint64_t{four[0]} << 32 | four[1]);
    const Index at = static_cast<Index>(word * static_cast<unsigned __int128>(last + 1) >> 64);
    const bool again = drawn[static_cast<std::size_t>(at / 64)] & bit(at);
    drawn[static_cast<std::size_t>((again ? last : at) / 64)] |= bit(again ? last : at);
  }
  for (Index word = 0; word < std::ssize(drawn); ++word)
    for (std::uint64_t bits = drawn[static_cast<std::size_t>(word)]; bits != 0; bits &= bits - 1)
      f(64 * word + std::countr_zero(bits));
}

void encode_drawn(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  detail::with_type(numbers, [&]<class T>(T) {
    Kept<T> kept(now, numbers);
    each_drawn(now, [&, to = wire.data<T>()](Index i) mutable {
      *to++ = kept.v[i];
      kept.clear(i);
    });
  });
}

void decode_drawn(const CodecContext& now, const Tensor& wire, const Tensor& numbers) {
  detail::with_type(numbers, [&]<class T>(T) {
    T* const to = numbers.data<T>();
    std::fill_n(to, now.size, T{0});
    each_drawn(now, [to, from = wire.data<T>()](Index i) mutable { to[i] = *from++; });
  });
}

Index chunk_of(const CodecContext& now) { return std::min(static_cast<Index>(now.argument("chunk")), now.size); }
Index chunks_of(const CodecContext& now) { return (now.size + chunk_of(now) - 1) / chunk_of(now); }

/// First round: the norm of each chunk. Second round: the chosen chunks, the last one padded with zeros.
Index length_of_chunks(const CodecContext& now) {
  return now.round == 0 ? chunks_of(now) : sent_of(now, chunks_of(now)) * chunk_of(now);
}

/// Calls f(begin, end) for the chunks with the largest norms, in order.
template <class T, class F>
void each_largest(const CodecContext& now, F f) {
  const T* norms = now.sums[0].data<T>();
  const Index chunks = chunks_of(now), chunk = chunk_of(now);
  Largest<T> largest(norms, chunks, sent_of(now, chunks));
  for (Index c = 0; c < chunks; ++c)
    if (largest.takes(norms[c])) f(c * chunk, std::min((c + 1) * chunk, now.size));
}

void encode_chunks(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  detail::with_type(numbers, [&]<class T>(T) {
    T* to = wire.data<T>();
    if (now.round == 0) {
      const Kept<T> kept(now, numbers);
      const Index chunk = chunk_of(now);
      for (Index c = 0; c < chunks_of(now); ++c) {
        T sum = 0;
        const T *const v = kept.v + c * chunk, *const end = kept.v + std::min((c + 1) * chunk, now.size);
        for (const T* at = v; at < end; ++at) sum += std::abs(*at);
        to[c] = sum;
      }
      return;
    }
    T* const v = now.states[0] ? now.states[0].data<T>() : numbers.data<T>();
    T* const u = now.argument("masking") == 0 ? nullptr : detail::state<T>(now, 1);
    std::fill_n(to, wire.numel(), T{0});
    each_largest<T>(now, [&](Index begin, Index end) {
      std::copy(v + begin, v + end, to);
      to += chunk_of(now);
      std::fill(v + begin, v + end, T{0});
      if (u != nullptr) std::fill(u + begin, u + end, T{0});
    });
  });
}

void decode_chunks(const CodecContext& now, const Tensor& wire, const Tensor& numbers) {
  detail::with_type(numbers, [&]<class T>(T) {
    const T* from = wire.data<T>();
    std::fill_n(numbers.data<T>(), now.size, T{0});
    each_largest<T>(now, [&](Index begin, Index end) {
      std::copy_n(from, end - begin, numbers.data<T>() + begin);
      from += chunk_of(now);
    });
  });
}

constexpr Codec largest(std::string_view name) {
  return {.name = name,
          .wire = DType::u8,
          .length = length_of_largest,
          .encode = encode_largest,
          .decode = decode_largest,
          .states = {{"residual", "residual"}, {"local_momentum", "momentum"}},
          .on_host = true};
}

}  // namespace

const Codec codec_rows::topk = largest("topk");
const Codec codec_rows::dgc = largest("dgc");
const Codec codec_rows::randomk{.name = "randomk",
                                .is_summable = true,
                                .length = [](const CodecContext& now) { return sent_of(now, now.size); },
                                .encode = encode_drawn,
                                .decode = decode_drawn,
                                .states = {{"residual", "residual"}, {"local_momentum", "momentum"}},
                                .on_host = true};
const Codec codec_rows::chunks{.name = "chunks",
                               .is_summable = true,
                               .length = length_of_chunks,
                               .encode = encode_chunks,
                               .decode = decode_chunks,
                               .states = {{"residual", "residual"}, {"local_momentum", "momentum"}},
                               .rounds = 2,
                               .on_host = true};

}  // namespace trireme
