#include "tools/study/sha256.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>

namespace trireme {
namespace {

/// The first 32 bits of the fractional part of the square or cube root (`root` 2 or 3) of a prime, in integers. FIPS
/// 180-4, 4.2.2 and 5.3.3, defines the constants this way.
constexpr std::uint32_t root_bits(std::uint32_t prime, int root) {
  using Wide = unsigned __int128;
  std::uint64_t low = 0, high = std::uint64_t{1} << 40;  // of the root times 2^32
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    const Wide square = static_cast<Wide>(middle) * middle;
    const bool below =
        root == 2 ? square <= static_cast<Wide>(prime) << 64 : square * middle <= static_cast<Wide>(prime) << 96;
    (below ? low : high) = middle;
  }
  return static_cast<std::uint32_t>(low);
}

constexpr std::array<std::uint32_t, 64> primes = [] {
  std::array<std::uint32_t, 64> found{};
  std::size_t n = 0;
  for (std::uint32_t candidate = 2; n < found.size(); ++candidate) {
    bool prime = true;
    for (std::size_t i = 0; i < n; ++i) prime = prime && candidate % found[i] != 0;
    if (prime) found[n++] = candidate;
  }
  return found;
}();
constexpr std::array<std::uint32_t, 64> rounds = [] {
  std::array<std::uint32_t, 64> k{};
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = root_bits(primes[i], 3);
  return k;
}();

void add_block(std::array<std::uint32_t, 8>& state, const unsigned char* block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t b = 0; b < 4; ++b) w[i] = w[i] << 8 | block[4 * i + b];
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t x = w[i - 15], y = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ x >> 3) +
           (std::rotr(y, 17) ^ std::rotr(y, 19) ^ y >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t t =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + rounds[i] + w[i];
    const std::uint32_t u = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t;
    d = c;
    c = b;
    b = a;
    a = t + u;
  }
  const std::array<std::uint32_t, 8> add{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += add[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  std::string padded(bytes);
  padded += '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  for (int shift = 56; shift >= 0; shift -= 8)
    padded += static_cast<char>(static_cast<std::uint64_t>(bytes.size()) * 8 >> shift);
  std::array<std::uint32_t, 8> state{};
  for (std::size_t i = 0; i < 8; ++i) state[i] = root_bits(primes[i], 2);
  for (std::size_t at = 0; at < padded.size(); at += 64)
    add_block(state, reinterpret_cast<const unsigned char*>(padded.data()) + at);
  std::string text;
  for (const std::uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace trireme
