// From a sample's u8 pixels to the numbers that a model sees.
#pragma once
#include <functional>
#include <span>

#include "datasets/core/dataset.h"

namespace trireme {

/// Writes one sample's numbers to its place in a batch. May be called from several threads.
using PixelConverter = std::function<void(std::span<const std::uint8_t> pixels, std::byte* to)>;

/// (value / 255 - mean[c]) / std[c] in dtype; u8 gives the pixels as they are. Computed in f32 in the
/// order that torchvision's ToTensor and Normalize use (f64 in f64), once per value and channel: f32 batches
/// equal torchvision's bit for bit.
PixelConverter pixel_converter(const PixelScale&, const Shape& sample, DType);

/// The same as alpha[c] value + shift[c], for kernels: kernel::Normalize.
struct PixelFactors {
  std::vector<double> alpha, shift;
};
PixelFactors pixel_factors(const PixelScale&, const Shape& sample);

}  // namespace trireme
