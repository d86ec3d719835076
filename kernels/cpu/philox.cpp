#include "kernels/cpu/philox.h"

#include <cstring>
#include <utility>

#include "kernels/cpu/vector.h"

namespace trireme {
namespace {

template <int bytes>
struct Counters : Vectors<std::uint64_t, bytes> {
  using Words = typename Vectors<std::uint64_t, bytes>::Vector;
  using Integers = Words;
};

/// The words of a and b in turn, of the lower and of the upper half of counters.
template <class L, int... i>
[[gnu::always_inline]] inline void interleave(typename L::Vector& front, typename L::Vector& back,
                                              const typename L::Vector& a, const typename L::Vector& b,
                                              std::integer_sequence<int, i...>) {
  constexpr int lanes = sizeof...(i);
  instructions::shuffle<L, (i / 2 + i % 2 * lanes)...>(front, a, b);
  instructions::shuffle<L, (lanes / 2 + i / 2 + i % 2 * lanes)...>(back, a, b);
}

/// Two vectors of counters at a time. Each 64-bit lane carries one 32-bit word of one counter; the multiplication
/// ignores the upper halves, so they are not cleared between rounds. (GCC's code for the plain loop takes twice the
/// time.) Returns how many of the n counters it has done.
template <int bytes>
Index in_vectors(std::uint32_t* out, std::uint64_t key, std::uint64_t high, std::uint64_t low, Index n) {
  using L = Counters<bytes>;
  constexpr int lanes = L::lanes, together = 2 * lanes;
  L::run([=]() mutable {
    using Words = typename L::Vector;
    const Words m0 = Words{} + 0xD2511F53u, m1 = Words{} + 0xCD9E8D57u;
    Words count{};  // 0, 1, 2...
    for (unsigned i = 0; i < lanes; ++i) count[i] = i;
    for (Index done = 0; done + together <= n; done += together, low += together) {
      Words c0[2], c1[2], c2[2], c3[2];
      for (unsigned h = 0; h < 2; ++h) {
        c0[h] = low + lanes * h + count;
        c1[h] = c0[h] >> 32;
        c2[h] = Words{} + high;
        c3[h] = c2[h] >> 32;
      }
      auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
      for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int h = 0; h < 2; ++h) {
          Words p0, p1;
          instructions::multiply_lower<L>(p0, c0[h], m0);
          instructions::multiply_lower<L>(p1, c2[h], m1);
          c0[h] = (p1 >> 32) ^ c1[h] ^ k0;
          c2[h] = (p0 >> 32) ^ c3[h] ^ k1;
          c1[h] = p1;
          c3[h] = p0;
        }
      for (int h = 0; h < 2; ++h, out += 4 * lanes) {
        const Words a = (c0[h] & 0xffffffffu) | c1[h] << 32, b = (c2[h] & 0xffffffffu) | c3[h] << 32;
        Words front, back;
        interleave<L>(front, back, a, b, std::make_integer_sequence<int, lanes>{});
        std::memcpy(out, &front, sizeof front);
        std::memcpy(out + 2 * lanes, &back, sizeof back);
      }
    }
  });
  return n / together * together;
}

}  // namespace

void philox_fill(std::uint32_t* out, std::uint64_t key, std::uint64_t high, std::uint64_t low, Index n) {
  const VectorLevel level = vector_level();
  Index i = level == VectorLevel::v4   ? in_vectors<64>(out, key, high, low, n)
            : level == VectorLevel::v3 ? in_vectors<32>(out, key, high, low, n)
                                       : 0;
  for (; i < n; ++i) {
    auto four = Philox{key}(high, low + static_cast<std::uint64_t>(i));
    std::memcpy(out + 4 * i, four.data(), sizeof four);
  }
}

}  // namespace trireme
