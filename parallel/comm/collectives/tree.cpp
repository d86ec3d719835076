#include "parallel/comm/collectives/collectives.h"

namespace trireme::collectives {

void tree(Communicator& link, const Tensor& x, ReduceOp op) {
  const int p = link.size(), me = link.rank();
  Tensor scratch = Tensor::like(x);
  // A rank's children are those that differ in one bit below its lowest set bit; rank 0 is the root.
  int parent_bit = 1;
  for (; parent_bit < p && !(me & parent_bit); parent_bit *= 2)
    if (me + parent_bit < p) {
      recv(link, scratch, me + parent_bit);
      accumulate(x, scratch, op);
    }
  if (me) {
    send(link, x, me - parent_bit);
    recv(link, x, me - parent_bit);
  }
  for (int bit = parent_bit / 2; bit > 0; bit /= 2)
    if (me + bit < p) send(link, x, me + bit);
}

}  // namespace trireme::collectives
