// Initialisers equal to PyTorch's in distribution. Numbers come from Philox keyed by (seed, full name of the
// tensor), so a tensor's start does not depend on the other layers, on the rank, or on the element type (f64
// holds the f32 numbers).
#pragma once
#include <cstdint>
#include <string_view>

#include "framework/layers/layer.h"

namespace trireme {

void uniform(const Tensor&, double low, double high,
             std::uint64_t key);  ///< [low, high); as bf16 or f16 it may round up to high
void normal(const Tensor&, double mean, double std, std::uint64_t key);  ///< Box-Muller
/// He et al. 2015 (arXiv 1502.01852), as torch.nn.init: fan from the tensor's shape ([O, spatial..., I]).
enum class Fan : std::uint8_t { in, out };
Index fan_of(const Shape& weight, Fan);
void kaiming_uniform(const Tensor&, double negative_slope, Fan, std::uint64_t key);
void kaiming_normal(const Tensor&, Fan, std::uint64_t key);  ///< gain of ReLU
void xavier_uniform(const Tensor&, std::uint64_t key);       ///< Glorot & Bengio 2010

/// PyTorch's start of Linear and Conv: kaiming_uniform(sqrt 5) for the weight, uniform(+-1/sqrt fan_in of
/// weight) for the bias.
void default_weight(const Tensor& weight, std::uint64_t key);
void default_bias(const Tensor& bias, const Tensor& weight, std::uint64_t key);

/// As the layer asks for (framework/layers/layer.h); start zero is for norm scales.
void start_weight(const Tensor& weight, Init, std::uint64_t key);
void start_bias(const Tensor& bias, const Tensor& weight, Init, std::uint64_t key);

/// Redraws a model from seed: every weight of rank >= 2 and the bias beside one as its Start says; 1-D norm scales
/// become 1 (start zero: 0), their shifts 0, running means 0 and variances 1. Other tensors of a layer's own keep what
/// they hold. Without it, the n-th layer that a thread makes starts from the n-th draw.
void initialize(Module& model, std::uint64_t seed);

/// The key that a full name stands for (FNV-1a): of a tensor's start, of a dropout layer's masks.
std::uint64_t key_of_name(std::string_view name);

}  // namespace trireme
