#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/reduce.h"

namespace trireme::collectives {

Tensor slice(const Tensor& x, Index begin, Index end) { return x.view_rows(begin, end); }

void send(Communicator& link, const Tensor& x, int to) {
  if (x.numel() > 0) link.send(x, to).wait();
}

void recv(Communicator& link, const Tensor& x, int from) {
  if (x.numel() > 0) link.recv(x, from).wait();
}

void exchange(Communicator& link, const Tensor& out, int to, const Tensor& in, int from) {
  Work incoming = in.numel() > 0 ? link.recv(in, from) : Work{};
  send(link, out, to);
  incoming.wait();
}

void accumulate(const Tensor& to, const Tensor& from, ReduceOp op) {
  reduce_into(to.view().data, from.view().data, to.numel(), to.dtype(), op);
}

Fold::Fold(Communicator& link, const Tensor& x, const Tensor& scratch, ReduceOp op) : link_(link) {
  const int size = link.size(), me = link.rank();
  while (ranks_ * 2 <= size) ranks_ *= 2;
  extra_ = size - ranks_;
  rank_ = me >= 2 * extra_ ? me - extra_ : me % 2 ? me / 2 : -1;
  if (me >= 2 * extra_) return;
  if (rank_ < 0) {
    send(link, x, me + 1);
  } else {
    recv(link, scratch, me - 1);
    accumulate(x, scratch, op);
  }
}

void Fold::finish(const Tensor& x) {
  const int me = link_.rank();
  if (me >= 2 * extra_) return;
  if (rank_ < 0)
    recv(link_, x, me + 1);
  else
    send(link_, x, me - 1);
}

}  // namespace trireme::collectives
