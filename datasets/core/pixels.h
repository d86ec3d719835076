// Conversion of a sample's u8 pixels to the model's input type.
#pragma once
#include <functional>
#include <span>

#include "datasets/core/dataset.h"

namespace trireme {

/// Converts one sample and writes it to its position in a batch. Several threads may call it.
using PixelConverter = std::function<void(std::span<const std::uint8_t> pixels, std::byte* to)>;

/// (value / 255 - mean[c]) / std[c] in dtype; u8: unscaled pixels. Computed in f32 (f64 in f64) in the order of
/// torchvision's ToTensor and Normalize, so f32 batches equal torchvision's bit for bit.
PixelConverter pixel_converter(const PixelScale&, const Shape& sample, DType);

/// The same conversion as alpha[c] value + shift[c], for kernel::Normalize.
struct PixelFactors {
  std::vector<double> alpha,  ///< factor per channel
      shift;                  ///< offset per channel
};
/// The factors of a scale for samples of this shape and type.
PixelFactors pixel_factors(const PixelScale&, const Shape& sample);

}  // namespace trireme
