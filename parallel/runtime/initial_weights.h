// InitialWeights: deferred initialization. The distributions of a model's tensors are read before ranks divide the
// tensors, and each rank later draws only what it holds.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "framework/io/checkpoint.h"
#include "framework/layers/module.h"

namespace trireme {

class InitialWeights {
 public:
  /// Reads the Init of each tensor by its first name. The shapes must be whole: Init::of_bias() depends on them.
  explicit InitialWeights(Module& model);
  /// Draws the weights and buffers that a rank holds (CheckpointShard::holds and holds_buffers), with the bits of
  /// initialize(model, seed). The parameters are those of the same model, divided or not.
  void draw(const Parameters&, const CheckpointShard& shard, std::uint64_t seed) const;

 private:
  std::map<std::string, Init> inits_;
};

}  // namespace trireme
