// Philox4x32-10, a counter-based random number generator (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC'11). A number is a pure function of key and counter, so it does not depend on ranks, threads or order.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

namespace trireme {

/// The generator for one key; call it with a counter.
struct Philox {
  std::uint64_t key = 0;  ///< Philox's k0 in the lower 32 bits, k1 in the upper 32

  /// Four random 32-bit words for the 128-bit counter (high, low).
  constexpr std::array<std::uint32_t, 4> operator()(std::uint64_t high, std::uint64_t low) const {
    std::uint32_t c0 = static_cast<std::uint32_t>(low), c1 = static_cast<std::uint32_t>(low >> 32);
    std::uint32_t c2 = static_cast<std::uint32_t>(high), c3 = static_cast<std::uint32_t>(high >> 32);
    std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
      std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0,
                    n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<std::uint32_t>(p1);
      c3 = static_cast<std::uint32_t>(p0);
      c0 = n0;
      c2 = n2;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {c0, c1, c2, c3};
  }
};

/// Mixes two 64-bit words into one (finaliser of splitmix64), to derive keys from (seed, step, layer).
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a + 0x9E3779B97F4A7C15ull * (b + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// The key of a layer's random numbers in one step: mix(mix(seed, step), layer).
struct MaskKey {
  /// A key that is already mixed.
  constexpr MaskKey(std::uint64_t key) : seed(key) {}  // NOLINT: implicit
  /// The step is read when the kernel runs: `at` points to it in the memory of the kernel's device. For work that is
  /// captured once and launched in many steps (CUDA graphs).
  constexpr MaskKey(std::uint64_t run_seed, const std::int64_t* at, std::uint64_t of_layer)
      : seed(run_seed), layer(of_layer), step(at) {}
  /// The mixed key, for Philox. If `step` is set, call this on its device.
  constexpr std::uint64_t operator()() const {
    return step ? mix(mix(seed, static_cast<std::uint64_t>(*step)), layer) : seed;
  }

  std::uint64_t seed,                  ///< seed of the run; without `step` the mixed key
      layer = 0;                       ///< number of the layer; used only with `step`
  const std::int64_t* step = nullptr;  ///< one number in the memory of the kernel's device, or null
};

/// The upper 24 of 32 random bits as a number in [0, 1).
constexpr float uniform_float(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

/// The number t for which bits >> 8 >= t exactly if uniform_float(bits) >= p.
inline std::uint32_t drop_threshold(double p) { return static_cast<std::uint32_t>(std::ceil(p * 0x1p24)); }

}  // namespace trireme
