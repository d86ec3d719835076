// InferenceCache: packed filters and batch norms folded into convolutions, valid while an Inference guard
// (framework/layers/inference.h) lives, since weights must not change in that time.
#pragma once
#include <map>
#include <utility>

#include "framework/tensor/tensor.h"
#include "kernels/contracts/conv.h"

namespace trireme {

struct BatchNorm;
struct ConvNd;

class InferenceCache {
 public:
  InferenceCache();
  InferenceCache(const InferenceCache&) = delete;
  InferenceCache& operator=(const InferenceCache&) = delete;

  /// ConvOptions::filters of weights held here. A MemoryTracker counts the packed ones as MemoryKind::packed.
  FilterCache& filters() { return filters_; }
  /// Holds on to a weight, so that its address stands for it.
  const Tensor& keep(const Tensor& weight);

  /// A convolution with a batch norm folded in.
  struct Folded {
    Tensor weight,   ///< the convolution's filter shape
        bias;        ///< [C]
    Tensor from[2];  ///< the filter and the norm's scale: kept, so that no other tensor gets their addresses
  };
  /// norm(conv(x)) as one convolution: w gamma rstd, beta + (bias - mean) gamma rstd, in dtype.
  const Folded& fold(const ConvNd&, const BatchNorm&, DType);

 private:
  using Key = std::pair<std::pair<const void*, const void*>, DType>;
  FilterCache filters_;
  std::map<const void*, Tensor> kept_;
  std::map<Key, Folded> folded_;
};

}  // namespace trireme
