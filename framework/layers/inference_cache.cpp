#include "framework/layers/inference_cache.h"

#include <cmath>
#include <memory>

#include "framework/autograd/tape.h"
#include "framework/layers/conv.h"
#include "framework/layers/norm.h"
#include "framework/tensor/memory_tracker.h"
#include "framework/tensor/watch_pause.h"

namespace trireme {

InferenceCache::InferenceCache()
    : filters_([](std::size_t bytes) {
        const MemoryScope packed(MemoryKind::packed);
        const auto block = std::make_shared<Tensor>(Tensor::empty({static_cast<Index>(bytes)}, DType::u8));
        return std::shared_ptr<void>(block, block->view().data);
      }) {}

const Tensor& InferenceCache::keep(const Tensor& weight) {
  return kept_.try_emplace(weight.view().data, weight).first->second;
}

const InferenceCache::Folded& InferenceCache::fold(const ConvNd& conv, const BatchNorm& norm, DType dtype) {
  const Key key{{conv.weight.view().data, norm.weight.view().data}, dtype};
  if (auto known = folded_.find(key); known != folded_.end()) return known->second;

  const NoGrad no_grad;
  const WatchPause pause;  // the folded filter outlives a dry run
  const std::vector<double> gamma = norm.weight.to_vector(), beta = norm.bias.to_vector(),
                            mean = norm.running_mean.to_vector(), variance = norm.running_var.to_vector(),
                            bias = conv.bias ? conv.bias.to_vector() : std::vector<double>(gamma.size());
  std::vector<double> scale(gamma.size()), shift(gamma.size());
  for (std::size_t c = 0; c < gamma.size(); ++c) {
    scale[c] = gamma[c] / std::sqrt(variance[c] + norm.options.eps);
    shift[c] = beta[c] + (bias[c] - mean[c]) * scale[c];
  }
  // f32 weights of f64 data are folded in f64.
  const Tensor weight = size_of(dtype) > size_of(conv.weight.dtype()) ? conv.weight.to(dtype) : conv.weight;
  const auto channels = static_cast<Index>(scale.size());
  Shape per_filter{channels};
  for (int axis = 1; axis < weight.rank(); ++axis) per_filter.push_back(1);
  const Device device = weight.device();
  Folded folded{mul(weight, Tensor::of(scale, per_filter, weight.dtype()).to(device)).to(dtype),
                Tensor::of(shift, {channels}, dtype).to(device),
                {conv.weight, norm.weight}};
  return folded_.emplace(key, std::move(folded)).first->second;
}

}  // namespace trireme
