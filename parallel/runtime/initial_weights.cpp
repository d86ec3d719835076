#include "parallel/runtime/initial_weights.h"

#include "framework/io/weights.h"
#include "kernels/core/random.h"

namespace trireme {

InitialWeights::InitialWeights(Module& model) {
  model.visit(StateVisitor([&](const NamedState& leaf) { inits_.emplace(leaf.name, leaf.init); }));
}

void InitialWeights::draw(const Parameters& parameters, const CheckpointShard& shard, std::uint64_t seed) const {
  for (const StoredTensor& t : stored_weights(parameters, shard.holds, shard.holds_buffers))
    if (t.tensor.numel() > 0) inits_.at(t.name)(t.tensor, mix(seed, key_of_name(t.name)), t.whole, t.at);
}

}  // namespace trireme
