#include "framework/optim/averaged_weights.h"

#include "framework/tensor/launch.h"
#include "framework/tensor/storage.h"
#include "kernels/contracts/elementwise.h"

namespace trireme {

AveragedWeights::AveragedWeights(ParameterStore& weights, std::optional<double> decay)
    : weights_(weights), average_(weights.clone()), decay_(decay) {
  check(!decay || (*decay >= 0 && *decay < 1), "averaged_weights", "decay is {}, expected 0 <= decay < 1", *decay);
}

void AveragedWeights::update() {
  for (const ParameterStore::Entry& e : weights_.entries()) (void)e.tensor.view();  // throws where others hold it
  for (const ParameterStore::Buffer& b : weights_.buffers()) (void)b.tensor.view();
  const double keep = updates_ == 0 ? 0
                      : decay_      ? *decay_
                                    : static_cast<double>(updates_) / static_cast<double>(updates_ + 1);
  const auto &to = average_.values().blocks(), &from = weights_.values().blocks();
  for (std::size_t i = 0; i < to.size(); ++i) {
    launch<kernel::Axpby>(to[i], from[i], 1 - keep, keep);
    note_write(to[i]);
  }
  for (std::size_t i = 0; i < weights_.buffers().size(); ++i)
    average_.buffers()[i].tensor.copy_from(weights_.buffers()[i].tensor);
  ++updates_;
}

}  // namespace trireme
