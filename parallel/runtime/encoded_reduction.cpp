#include "parallel/runtime/encoded_reduction.h"

#include "framework/ops/ops.h"
#include "framework/tensor/memory_tracker.h"

namespace trireme {

Work EncodedReduction::start(Communicator& comm, const Codec& codec, const Tensor& x, const Tensor& state) {
  const MemoryScope packed(MemoryKind::packed);
  const Index length = codec.length(x.numel());
  if (state && before_) before_.copy_from(state);
  if (state && !before_) before_ = state.clone();
  if (!mine_) mine_ = Tensor::empty({length}, codec.wire, x.device());
  codec.encode(x, mine_, state);
  if (codec.is_summable) return comm.all_reduce(mine_);
  if (!all_) all_ = Tensor::empty({comm.size(), length}, codec.wire, x.device());
  return comm.all_gather(all_, mine_);
}

void EncodedReduction::finish(const Communicator& comm, const Codec& codec, const Tensor& x) const {
  if (codec.is_summable) return codec.decode(mine_, x);
  const Tensor one = Tensor::like(x);
  for (Index r = 0; r < comm.size(); ++r) {
    codec.decode(all_.view_rows(r, r + 1).reshape({mine_.numel()}), r == 0 ? x : one);
    if (r > 0) add_into(x, one);
  }
}

}  // namespace trireme
