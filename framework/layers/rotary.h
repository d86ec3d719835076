// RotaryEmbedding: positions of tokens as rotations of queries and keys (Su et al., arXiv 2104.09864).
#pragma once
#include <memory>

#include "framework/ops/ops.h"

namespace trireme {

/// ops rope() by the tokens' positions: 0 to T - 1, or those behind the tokens that a KvCache has. Copies share the
/// table of angles, which is no state of the model: it is made when needed, for as many positions as were asked for,
/// once for each type and device. Layers of one model hold copies. Any number of threads may call it.
class RotaryEmbedding {
 public:
  /// positions: most tokens of a sample. head_size: even. interleaved: pairs are (2 i, 2 i + 1). Throws Error for
  /// positions below 1 and an odd head_size.
  RotaryEmbedding(Index positions, Index head_size, const RopeOptions& = {}, bool interleaved = false);
  /// x [N, T, heads, D] -> the same shape. Throws Error for more tokens than there are positions.
  Tensor operator()(const Tensor& x) const;

 private:
  struct Tables;
  Tensor table(Index rows, DType, Device) const;

  Index positions_, size_;
  RopeOptions options_;
  bool interleaved_;
  std::shared_ptr<Tables> tables_;
};

}  // namespace trireme
