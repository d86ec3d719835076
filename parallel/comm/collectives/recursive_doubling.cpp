#include "parallel/comm/collectives/collectives.h"

namespace trireme::collectives {

void recursive_doubling(Communicator& link, const Tensor& x, ReduceOp op) {
  Tensor scratch = Tensor::like(x);
  Fold fold(link, x, scratch, op);
  if (fold.rank() >= 0)
    for (int distance = 1; distance < fold.ranks(); distance *= 2) {
      const int peer = fold.real(fold.rank() ^ distance);
      exchange(link, x, peer, scratch, peer);
      accumulate(x, scratch, op);
    }
  fold.finish(x);
}

}  // namespace trireme::collectives
