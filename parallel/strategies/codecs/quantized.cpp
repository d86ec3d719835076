// All of the numbers in few bits, in blocks that have scales of their own.
#include <cmath>
#include <cstring>

#include "kernels/cpu/philox.h"
#include "parallel/strategies/codecs/codecs.h"
#include "parallel/strategies/codecs/encode.h"

namespace trireme {
namespace {

/// Calls f(first number, how many, where its codes begin in the wire) for each block; returns the bytes of all. A block
/// is so many scales, then the codes of its numbers, low bits first. It lies in one tensor: what is between tensors
/// stays 0.
template <class F>
Index each_block(const CodecContext& now, int scales, int bits, F f) {
  const auto block = static_cast<Index>(now.argument("block"));
  Index at = 0;
  for (const TensorSlice& t : now.tensors)
    for (Index i = std::max<Index>(0, t.slice.begin), end = std::min(now.size, t.slice.end); i < end; i += block) {
      const Index n = std::min(block, end - i);
      f(i, n, at), at += scales * now.element + (n * bits + 7) / 8;
    }
  return at;
}
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Bits of a number: enough for all levels with both signs. A power of two, so that bytes hold whole codes.
int bits_of(const CodecContext& now) {
  const double levels = now.argument("levels");
  return levels <= 1 ? 2 : levels <= 7 ? 4 : 8;
}

// A block is its norm, and of each number the level plus `levels`.
Index length_of_levels(const CodecContext& now) {
  return each_block(now, 1, bits_of(now), [](Index, Index, Index) {});
}

void encode_levels(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  const Index block = static_cast<Index>(now.argument("block")), rounded = block + 8;
  const std::uint64_t key = detail::random(now, true).key;
  const int bits = bits_of(now);
  std::vector<std::uint32_t> random(static_cast<std::size_t>(rounded));
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rounded));
  detail::with_type(numbers, [&]<class T>(T) {
    each_block(now, 1, bits, [&](Index begin, Index n, Index at) {
      const T* const v = numbers.data<T>() + begin;
      T norm = 0;
      vectorised([v, n, to = &norm] {
        T sum = 0;
#pragma omp simd reduction(+ : sum)
        for (Index i = 0; i < n; ++i) sum += v[i] * v[i];
        *to = std::sqrt(sum);
      });
      auto* out = wire.data<std::uint8_t>() + at;
      std::memcpy(out, &norm, sizeof norm), out += sizeof norm;
      philox_fill(random.data(), key, 0, static_cast<std::uint64_t>(begin), (n + 3) / 4);
      // |v| / norm lies between two levels, and becomes the upper one as often as it is near to that.
      vectorised([v, n, r = random.data(), c = codes.data(), levels = static_cast<T>(now.argument("levels")),
                  scale = norm > 0 ? static_cast<T>(now.argument("levels")) / norm : T{0}] {
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
          const T u = static_cast<T>(static_cast<std::int32_t>(r[i] >> 8)) * T{0x1p-24};
          const T at = std::abs(v[i]) * scale + u;
          const T level =
              static_cast<T>(static_cast<std::int32_t>(at < levels ? at : levels));  // NaN: the norm is, too
          c[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(levels + (v[i] < 0 ? -level : level)));
        }
      });
      std::fill(codes.begin() + n, codes.begin() + n + 8, std::uint8_t{0});
      const Index each = 8 / bits;
      for (Index i = 0; i < n; i += each) {
        unsigned byte = 0;
        for (Index j = 0; j < each; ++j) byte |= unsigned{codes[static_cast<std::size_t>(i + j)]} << (j * bits);
        *out++ = static_cast<std::uint8_t>(byte);
      }
    });
  });
}

void decode_levels(const CodecContext& now, const Tensor& wire, const Tensor& numbers) {
  const int bits = bits_of(now), each = 8 / bits, mask = (1 << bits) - 1;
  const auto levels = static_cast<int>(now.argument("levels"));
  detail::with_type(numbers, [&]<class T>(T) {
    each_block(now, 1, bits, [&](Index begin, Index n, Index at) {
      const T unit = load<T>(wire.data<std::byte>() + at) / static_cast<T>(levels);
      T* const x = numbers.data<T>() + begin;
      const auto* const from = wire.data<std::uint8_t>() + at + sizeof(T);
      for (Index i = 0; i < n; ++i)
        x[i] += unit * static_cast<T>((from[i / each] >> (i % each * bits) & mask) - levels);
    });
  });
}

// A block is the means of its negative and its other numbers, and the sign of each.
Index length_of_signs(const CodecContext& now) {
  return each_block(now, 2, 1, [](Index, Index, Index) {});
}

void encode_signs(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  detail::with_type(numbers, [&]<class T>(T) {
    T* const all = detail::with_residual<T>(now, numbers);
    each_block(now, 2, 1, [&](Index begin, Index n, Index at) {
      T* const v = all + begin;
      T means[2];  // of the numbers below 0, and of the others
      vectorised([v, n, means = &means[0]] {
        T above = 0, sum = 0, count = 0;
#pragma omp simd reduction(+ : above, sum, count)
        for (Index i = 0; i < n; ++i)
          above += v[i] >= 0 ? v[i] : 0, count += v[i] >= 0 ? 1 : 0, sum += v[i] >= 0 ? 0 : v[i];
        const T others = static_cast<T>(n) - count;
        means[0] = others > 0 ? sum / others : 0, means[1] = count > 0 ? above / count : 0;
      });
      auto* out = wire.data<std::uint8_t>() + at;
      std::memcpy(out, means, sizeof means), out += sizeof means;
      for (Index i = 0; i < n; i += 8) {
        unsigned byte = 0;
        for (Index j = 0; j < std::min<Index>(8, n - i); ++j) byte |= unsigned{v[i + j] >= 0} << j;
        *out++ = static_cast<std::uint8_t>(byte);
      }
      vectorised([v, n, low = means[0], high = means[1]] {
#pragma omp simd
        for (Index i = 0; i < n; ++i) v[i] -= v[i] >= 0 ? high : low;
      });
    });
  });
}

void decode_signs(const CodecContext& now, const Tensor& wire, const Tensor& numbers) {
  detail::with_type(numbers, [&]<class T>(T) {
    each_block(now, 2, 1, [&](Index begin, Index n, Index at) {
      const auto* const from = wire.data<std::byte>() + at;
      const T means[2] = {load<T>(from), load<T>(from + sizeof(T))};
      const auto* const signs = wire.data<std::uint8_t>() + at + 2 * sizeof(T);
      T* const x = numbers.data<T>() + begin;
      for (Index i = 0; i < n; ++i) x[i] += means[signs[i / 8] >> (i % 8) & 1];
    });
  });
}

}  // namespace

const Codec codec_rows::qsgd{.name = "qsgd",
                             .wire = DType::u8,
                             .length = length_of_levels,
                             .encode = encode_levels,
                             .decode = decode_levels,
                             .on_host = true};
const Codec codec_rows::onebit{.name = "onebit",
                               .wire = DType::u8,
                               .length = length_of_signs,
                               .encode = encode_signs,
                               .decode = decode_signs,
                               .states = {{"residual", "residual"}},
                               .on_host = true};

}  // namespace trireme
