#include "parallel/comm/collectives/collectives.h"

namespace trireme::collectives {

void ring(Communicator& link, const Tensor& x, ReduceOp op) {
  const int p = link.size(), me = link.rank(), right = (me + 1) % p, left = (me + p - 1) % p;
  const Index n = x.numel();
  auto chunk = [&](int i) {
    i = ((i % p) + p) % p;
    return slice(x, n * i / p, n * (i + 1) / p);
  };
  Tensor scratch = Tensor::empty({n / p + 1}, x.dtype());
  for (int step = 0; step < p - 1; ++step) {
    Tensor mine = chunk(me - step - 1), other = slice(scratch, 0, mine.numel());
    exchange(link, chunk(me - step), right, other, left);
    accumulate(mine, other, op);
  }
  // Chunk me + 1 is complete here; the complete ones go round.
  for (int step = 0; step < p - 1; ++step) exchange(link, chunk(me + 1 - step), right, chunk(me - step), left);
}

}  // namespace trireme::collectives
