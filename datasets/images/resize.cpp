#include "datasets/images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/vector.h"

namespace trireme {
namespace {

using Four [[gnu::vector_size(4 * sizeof(float))]] = float;

/// Calls f with the number of inputs per output, as a compile-time constant for usual numbers.
template <class F>
[[gnu::always_inline]] inline void with_taps(Index most, const F& f) {
  switch (most) {
    case 2: return f(std::integral_constant<Index, 2>{});
    case 3: return f(std::integral_constant<Index, 3>{});
    case 4: return f(std::integral_constant<Index, 4>{});
    default: return f(most);
  }
}

/// to[i] = sum over j of weights[j] x from[j][i]: one output row of the vertical pass.
template <class Taps>
[[gnu::always_inline]] inline void mix_rows(float* to, const std::uint8_t* from, Index line, Index values,
                                            const float* weights, Taps taps) {
  const Index most = taps;
#pragma omp simd
  for (Index i = 0; i < values; ++i) {
    float sum = 0;
#pragma GCC unroll 4
    for (Index j = 0; j < most; ++j) sum += static_cast<float>(from[j * line + i]) * weights[j];
    to[i] = sum;
  }
}

/// One output row of the horizontal pass for three channels, pixel by pixel. Reads and writes a float after the last
/// pixel.
template <class Taps>
[[gnu::always_inline]] inline void mix_pixels(float* to, const float* from, Index outputs, const Index* begin,
                                              const float* weights, Taps taps) {
  const Index most = taps;
  for (Index i = 0; i < outputs; ++i, weights += most) {
    const float* pixel = from + 3 * begin[i];
    Four sum{};
#pragma GCC unroll 4
    for (Index j = 0; j < most; ++j) {
      Four value;
      std::memcpy(&value, pixel + 3 * j, sizeof value);
      sum += value * weights[j];
    }
    std::memcpy(to + 3 * i, &sum, sizeof sum);
  }
}

/// The same for any number of channels.
[[gnu::always_inline]] inline void mix_any(float* to, const float* from, Index outputs, const Index* begin,
                                           const float* weights, Index most, Index channels) {
  for (Index i = 0; i < outputs; ++i)
    for (Index c = 0; c < channels; ++c) {
      float sum = 0;
      for (Index j = 0; j < most; ++j) sum += from[(begin[i] + j) * channels + c] * weights[i * most + j];
      to[i * channels + c] = sum;
    }
}

[[gnu::always_inline]] inline void round_all(std::uint8_t* to, const float* from, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) to[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(from[i] + 0.5f));
}

}  // namespace

/// Outputs sample [first, first + extent) of inputs in [low, high). The filter is two inputs wide when enlarging, two
/// outputs wide when shrinking. Pixel centres are at half integers.
void Resizer::Filter::fill(double first, double extent, Index low, Index high, Index outputs) {
  const double scale = extent / static_cast<double>(outputs), width = std::max(scale, 1.0);
  most = std::min(high - low, static_cast<Index>(std::ceil(2 * width)));
  begin.resize(static_cast<std::size_t>(outputs));
  weights.assign(static_cast<std::size_t>(outputs * most), 0);
  for (Index i = 0; i < outputs; ++i) {
    const double centre = first + (static_cast<double>(i) + 0.5) * scale;
    const Index from = std::clamp(static_cast<Index>(std::floor(centre - width + 0.5)), low, high - most);
    float* weight = weights.data() + i * most;
    double sum = 0;
    const auto at = [&](Index j) {
      return std::max(0.0, 1 - std::abs(static_cast<double>(from + j) + 0.5 - centre) / width);
    };
    for (Index j = 0; j < most; ++j) sum += at(j);
    for (Index j = 0; j < most; ++j) weight[j] = static_cast<float>(at(j) / sum);
    begin[static_cast<std::size_t>(i)] = from;
  }
}

void Resizer::Filter::mirror() {
  std::reverse(begin.begin(), begin.end());
  for (Index i = 0, j = std::ssize(begin) - 1; i < j; ++i, --j)
    std::swap_ranges(weights.begin() + i * most, weights.begin() + (i + 1) * most, weights.begin() + j * most);
}

void Resizer::operator()(const PixelBlock& block, const Crop& crop, Index height, Index width, std::uint8_t* to) {
  const auto fill = [&](Filter& filter, double first, double extent, Index offset, Index inputs, Index outputs) {
    const double begin = first / block.reduction - static_cast<double>(offset), count = extent / block.reduction;
    const auto whole = [&](double x) { return std::clamp<Index>(static_cast<Index>(x), 0, inputs); };
    const Index low = crop.bounded ? std::min(whole(std::floor(begin)), inputs - 1) : 0;
    const Index high = crop.bounded ? std::max(whole(std::ceil(begin + count)), low + 1) : inputs;
    filter.fill(begin, count, low, high, outputs);
    return low;
  };
  const Index left = fill(across_, crop.left, crop.width, block.left, block.width, width);
  fill(down_, crop.top, crop.height, block.top, block.height, height);
  const Index last = across_.begin.back() + across_.most, channels = block.channels, line = block.line();
  if (crop.flip) across_.mirror();
  from_.resize(static_cast<std::size_t>(last * channels + 1));
  to_.resize(static_cast<std::size_t>(width * channels + 1));
  const Index first = left * channels, values = (last - left) * channels;
  vectorised([=, pixels = block.values.data() + first, across = &across_, down = &down_, mixed = from_.data(),
              row = to_.data()] {
    const Index *beside = across->begin.data(), *below = down->begin.data();
    const float *weights = across->weights.data(), *weights_down = down->weights.data();
    for (Index y = 0; y < height; ++y) {
      with_taps(down->most, [=](auto most) {
        mix_rows(mixed + first, pixels + below[y] * line, line, values, weights_down + y * most, most);
      });
      if (channels == 3)
        with_taps(across->most, [=](auto most) { mix_pixels(row, mixed, width, beside, weights, most); });
      else
        mix_any(row, mixed, width, beside, weights, across->most, channels);
      round_all(to + y * width * channels, row, width * channels);
    }
  });
}

}  // namespace trireme
