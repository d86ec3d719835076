#include "framework/autograd/batch_norm_stats.h"

#include <algorithm>

#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/norm.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {

void BatchNormStats::add(const Tensor& running_mean, const Tensor& running_var, const Tensor& mean, const Tensor& m2,
                         double count, double momentum) {
  const NoGrad off;
  auto at = std::find_if(layers_.begin(), layers_.end(),
                         [&](const Layer& l) { return l.running_mean.view().data == running_mean.view().data; });
  if (at == layers_.end()) {
    // Separate handles: the layer's may show another ParameterStore's statistics when these are committed.
    layers_.push_back({running_mean.detach(), running_var.detach(), mean.to(DType::f64).clone(),
                       m2.to(DType::f64).clone(), count, momentum});
    return;
  }
  const double all = at->count + count;
  const Tensor delta = mean.to(DType::f64).clone();
  launch<kernel::Axpby>(delta, at->mean, -1.0, 1.0);
  launch<kernel::Axpby>(at->mean, delta, count / all, 1.0);
  launch<kernel::Map<pointwise::Square>>(delta, delta, pointwise::Square{});
  launch<kernel::Axpby>(at->m2, m2.to(DType::f64), 1.0, 1.0);
  launch<kernel::Axpby>(at->m2, delta, at->count * count / all, 1.0);
  at->count = all;
}

void BatchNormStats::commit() {
  const NoGrad off;
  for (const Layer& l : layers_)
    launch<kernel::BatchNormFinish>(Tensor::like(l.mean), l.running_mean, l.running_var, l.mean, l.m2, l.count, 1.0,
                                    l.momentum);
  clear();
}

}  // namespace trireme
