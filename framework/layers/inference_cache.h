// InferenceCache: packed filters, and convolutions with folded batch norms. It is valid while an Inference guard
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

  /// ConvOptions::filters for the weights that keep() holds. A MemoryTracker counts packed filters as
  /// MemoryKind::packed.
  FilterCache& filters() { return filters_; }
  /// Holds a weight, so that its address stays unique.
  const Tensor& keep(const Tensor& weight);

  /// A convolution with a folded batch norm.
  struct Folded {
    Tensor weight,   ///< filter, in the convolution's shape
        bias;        ///< [C]
    Tensor from[2];  ///< the filter and the norm's scale, held so that their addresses stay unique
  };
  /// norm(conv(x)) as one convolution, in dtype: weight w gamma rstd and bias beta + (bias - mean) gamma rstd.
  const Folded& fold(const ConvNd&, const BatchNorm&, DType);

 private:
  using Key = std::pair<std::pair<const void*, const void*>, DType>;
  FilterCache filters_;
  std::map<const void*, Tensor> kept_;
  std::map<Key, Folded> folded_;
};

}  // namespace trireme
