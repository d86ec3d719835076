#include "kernels/cpu/philox.h"

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/vector.h"

namespace trireme {
namespace {

constexpr int counters = 16;  // per vector step
using Lanes [[gnu::vector_size(64)]] = std::uint64_t;

// Each 64-bit lane carries one 32-bit word of one counter; the multiplication ignores the upper halves, so they are not
// cleared between rounds. (GCC's code for the plain loop takes twice the time.)
[[gnu::target("arch=x86-64-v4")]] void sixteen(std::uint32_t* out, std::uint64_t key, std::uint64_t high,
                                               std::uint64_t low) {
  const auto m0 = (__m512i)(Lanes{} + 0xD2511F53u), m1 = (__m512i)(Lanes{} + 0xCD9E8D57u);
  Lanes c0[2], c1[2], c2[2], c3[2];
  for (unsigned h = 0; h < 2; ++h) {
    c0[h] = low + 8 * h + Lanes{0, 1, 2, 3, 4, 5, 6, 7};
    c1[h] = c0[h] >> 32;
    c2[h] = Lanes{} + high;
    c3[h] = c2[h] >> 32;
  }
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
    for (int h = 0; h < 2; ++h) {
      const auto p0 = (Lanes)_mm512_maskz_mul_epu32(0xff, (__m512i)c0[h], m0);
      const auto p1 = (Lanes)_mm512_maskz_mul_epu32(0xff, (__m512i)c2[h], m1);
      c0[h] = (p1 >> 32) ^ c1[h] ^ k0;
      c2[h] = (p0 >> 32) ^ c3[h] ^ k1;
      c1[h] = p1;
      c3[h] = p0;
    }
  for (int h = 0; h < 2; ++h, out += 32) {
    const Lanes a = (c0[h] & 0xffffffffu) | c1[h] << 32, b = (c2[h] & 0xffffffffu) | c3[h] << 32;
    const Lanes front = __builtin_shuffle(a, b, Lanes{0, 8, 1, 9, 2, 10, 3, 11});
    const Lanes back = __builtin_shuffle(a, b, Lanes{4, 12, 5, 13, 6, 14, 7, 15});
    std::memcpy(out, &front, sizeof front);
    std::memcpy(out + 16, &back, sizeof back);
  }
}

}  // namespace

void philox_fill(std::uint32_t* out, std::uint64_t key, std::uint64_t high, std::uint64_t low, Index n) {
  Index i = 0;
  if (vector_level() == VectorLevel::v4)
    for (; i + counters <= n; i += counters) sixteen(out + 4 * i, key, high, low + static_cast<std::uint64_t>(i));
  for (; i < n; ++i) {
    auto four = Philox{key}(high, low + static_cast<std::uint64_t>(i));
    std::memcpy(out + 4 * i, four.data(), sizeof four);
  }
}

}  // namespace trireme
