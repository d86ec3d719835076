// RotaryEmbedding: encodes positions of tokens as rotations of queries and keys (Su et al., arXiv 2104.09864).
#pragma once
#include <memory>

#include "framework/ops/ops.h"

namespace trireme {

/// rope() with the tokens' positions: 0 to T - 1, or continued after the tokens in a KvCache. Copies share the table of
/// angles, which is no state of the model. It is created on demand, once per type and device, for the number of
/// positions that was needed. Layers of one model hold copies. Thread-safe.
class RotaryEmbedding {
 public:
  /// positions: maximum number of tokens of a sample. head_size: even. interleaved: pairs are (2 i, 2 i + 1). Throws
  /// Error for positions below 1 and an odd head_size.
  RotaryEmbedding(Index positions, Index head_size, const RopeOptions& = {}, bool interleaved = false);
  /// x [N, T, heads, D] -> the same shape. Throws Error for more tokens than positions.
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
