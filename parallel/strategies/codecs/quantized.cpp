// Codecs that send all numbers in few bits, in blocks with separate scales.
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/philox.h"
#include "parallel/strategies/codecs/codecs.h"
#include "parallel/strategies/codecs/encode.h"

namespace trireme {
namespace {

/// Calls f(first number, count, offset of its codes in the wire) for each block; returns the bytes of all blocks. A
/// block is some scales, then the codes of its numbers, lowest bits first. Blocks do not cross tensors; bytes between
/// tensors stay 0.
template <class F>
Index each_block(const CodecContext& now, int scales, int bits, F f) {
  const auto block = static_cast<Index>(now.argument("block"));
  Index at = 0;
  for (const auto& [position, shape] : now.tensors)
    for (Index i = std::max<Index>(0, position), end = std::min(now.size, position + shape.numel()); i < end;
         i += block) {
      const Index n = std::min(block, end - i);
      f(i, n, at);
      at += scales * now.element + (n * bits + 7) / 8;
    }
  return at;
}
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Packs n codes, one per byte and followed by zeros, to codes of `bits` bits; and the reverse.
template <int bits>
void pack(const std::uint8_t* codes, Index n, std::uint8_t* out) {
  constexpr int each = 8 / bits;
  for (Index i = 0; i < n; i += each) {
    unsigned byte = 0;
#pragma GCC unroll 8
    for (int j = 0; j < each; ++j) byte |= static_cast<unsigned>(codes[i + j]) << (j * bits);
    *out++ = static_cast<std::uint8_t>(byte);
  }
}
template <int bits>
void unpack(const std::uint8_t* in, Index n, std::uint8_t* codes) {
  constexpr int each = 8 / bits, mask = (1 << bits) - 1;
  for (Index i = 0; i < n; i += each, ++in)
#pragma GCC unroll 8
    for (int j = 0; j < each; ++j) codes[i + j] = static_cast<std::uint8_t>(*in >> (j * bits) & mask);
}
/// Buffer for the codes of a block, padded for packing by eight.
std::vector<std::uint8_t> room_for_codes(const CodecContext& now) {
  return std::vector<std::uint8_t>(static_cast<std::size_t>(now.argument("block")) + 8);
}

/// Bits per number: enough for all levels with both signs, rounded up to a power of two, so that bytes hold whole
/// codes.
int bits_of(const CodecContext& now) {
  const double levels = now.argument("levels");
  return levels <= 1 ? 2 : levels <= 7 ? 4 : 8;
}

// A block has its norm, and for each number the level plus `levels`.
Index length_of_levels(const CodecContext& now) {
  return each_block(now, 1, bits_of(now), [](Index, Index, Index) {});
}

void encode_levels(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  const std::uint64_t key = detail::random(now, true).key;
  const int bits = bits_of(now);
  std::vector<std::uint8_t> codes = room_for_codes(now);
  std::vector<std::uint32_t> random(codes.size());
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
      std::memcpy(out, &norm, sizeof norm);
      out += sizeof norm;
      philox_fill(random.data(), key, 0, static_cast<std::uint64_t>(begin), (n + 3) / 4);
      // Rounds |v| / norm up with a probability equal to its distance from the lower level.
      vectorised([v, n, r = random.data(), c = codes.data(), levels = static_cast<T>(now.argument("levels")),
                  scale = norm > 0 ? static_cast<T>(now.argument("levels")) / norm : T{0}] {
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
          const T u = static_cast<T>(static_cast<std::int32_t>(r[i] >> 8)) * T{0x1p-24};
          const T at = std::abs(v[i]) * scale + u;
          const auto level = static_cast<T>(static_cast<std::int32_t>(std::min(levels, at)));  // NaN: then the norm is
                                                                                               // NaN, too
          c[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(levels + std::copysign(level, v[i])));
        }
      });
      std::fill(codes.begin() + n, codes.begin() + n + 8, std::uint8_t{0});
      (bits == 8 ? pack<8> : bits == 4 ? pack<4> : pack<2>)(codes.data(), n, out);
    });
  });
}

void decode_levels(const CodecContext& now, const Tensor& wire, const Tensor& numbers) {
  const int bits = bits_of(now);
  const auto levels = static_cast<std::int32_t>(now.argument("levels"));
  std::vector<std::uint8_t> codes = room_for_codes(now);
  detail::with_type(numbers, [&]<class T>(T) {
    each_block(now, 1, bits, [&](Index begin, Index n, Index at) {
      const T unit = load<T>(wire.data<std::byte>() + at) / static_cast<T>(levels);
      T* const x = numbers.data<T>() + begin;
      const std::uint8_t *const from = wire.data<std::uint8_t>() + at + sizeof(T), *const c = codes.data();
      (bits == 8 ? unpack<8> : bits == 4 ? unpack<4> : unpack<2>)(from, n, codes.data());
#pragma omp simd  // of the machine's least vectors: no product and sum in one, so that all ranks come to the same
      for (Index i = 0; i < n; ++i) x[i] += unit * static_cast<T>(std::int32_t{c[i]} - levels);
    });
  });
}

template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
/// All bits set if a number is negative by its sign bit; else none.
template <class T>
Bits<T> sign_of(T value) {
  return std::bit_cast<Bits<T>>(value) >> (8 * sizeof(T) - 1);
}

// A block has the means of its negative and of its other numbers, and the sign of each number.
Index length_of_signs(const CodecContext& now) {
  return each_block(now, 2, 1, [](Index, Index, Index) {});
}

void encode_signs(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  std::vector<std::uint8_t> codes = room_for_codes(now);
  detail::with_type(numbers, [&]<class T>(T) {
    T* const all = detail::with_residual<T>(now, numbers);
    each_block(now, 2, 1, [&](Index begin, Index n, Index at) {
      T* const v = all + begin;
      T means[2];  // of the negative numbers; of the others
      vectorised([v, n, to = &means[0]] {
        T above = 0, below = 0;
        Bits<T> negative = 0;
#pragma omp simd reduction(+ : above, below, negative)
        for (Index i = 0; i < n; ++i) {
          const Bits<T> bits = std::bit_cast<Bits<T>>(v[i]), sign = sign_of(v[i]);
          above += std::bit_cast<T>(bits & ~sign);
          below += std::bit_cast<T>(bits & sign);
          negative -= sign;
        }
        to[0] = negative > 0 ? below / static_cast<T>(negative) : 0;
        to[1] = negative < n ? above / static_cast<T>(n - negative) : 0;
      });
      auto* out = wire.data<std::uint8_t>() + at;
      std::memcpy(out, means, sizeof means);
      out += sizeof means;
      vectorised(
          [v, n, c = codes.data(), low = std::bit_cast<Bits<T>>(means[0]), high = std::bit_cast<Bits<T>>(means[1])] {
#pragma omp simd
            for (Index i = 0; i < n; ++i) {
              const Bits<T> sign = sign_of(v[i]);
              c[i] = static_cast<std::uint8_t>(1 + sign);
              v[i] -= std::bit_cast<T>((low & sign) | (high & ~sign));
            }
          });
      std::fill(codes.begin() + n, codes.begin() + n + 8, std::uint8_t{0});
      pack<1>(codes.data(), n, out);
    });
  });
}

void decode_signs(const CodecContext& now, const Tensor& wire, const Tensor& numbers) {
  std::vector<std::uint8_t> codes = room_for_codes(now);
  detail::with_type(numbers, [&]<class T>(T) {
    each_block(now, 2, 1, [&](Index begin, Index n, Index at) {
      const auto* const from = wire.data<std::byte>() + at;
      const T low = load<T>(from), high = load<T>(from + sizeof(T));
      const std::uint8_t *const signs = wire.data<std::uint8_t>() + at + 2 * sizeof(T), *const c = codes.data();
      T* const x = numbers.data<T>() + begin;
      unpack<1>(signs, n, codes.data());
#pragma omp simd
      for (Index i = 0; i < n; ++i) x[i] += c[i] != 0 ? high : low;
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
