// Initialisers equal to PyTorch's in distribution. Numbers come from Philox keyed by (seed, full name of the tensor), so a
// tensor's start does not depend on the other layers, on the rank, or on the element type (f64 holds the f32 numbers).
#pragma once
#include <cstdint>

#include "framework/layer.h"

namespace trireme {

void uniform(const Tensor&, double low, double high, std::uint64_t key);
void normal(const Tensor&, double mean, double deviation, std::uint64_t key);   ///< Box-Muller
/// He et al. 2015 (arXiv 1502.01852), as torch.nn.init: fan from the tensor's shape ([O, spatial..., I]).
enum class Fan : std::uint8_t { in, out };
void kaiming_uniform(const Tensor&, double negative_slope, Fan, std::uint64_t key);
void kaiming_normal(const Tensor&, Fan, std::uint64_t key);
void xavier_uniform(const Tensor&, std::uint64_t key);  ///< Glorot & Bengio 2010

/// Gives every weight and bias of the model PyTorch's default for its layer (kaiming_uniform(sqrt 5) for weights of rank >= 2,
/// uniform(+-1/sqrt fan_in) for the bias beside one; 1-D norm scales stay 1, their shifts 0).
void initialize(Module& model, std::uint64_t seed);

}  // namespace trireme
