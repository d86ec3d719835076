// All-reduce algorithms written on send and recv, to be studied and chosen. Each returns with the same bits on every
// rank. Costs for p ranks and n elements: a = latency of a message, b = time per element sent, c = time per element
// reduced.
#pragma once
#include "parallel/comm/communicator.h"

namespace trireme::collectives {

/// Reduces x, a vector, in place over all ranks of link, on which nobody else sends meanwhile. Any number of ranks and
/// elements.
using AllReduce = void(Communicator& link, const Tensor& x, ReduceOp op);

/// Wraps inner so that all_reduce runs by this algorithm, on a thread of its own and on the host: the caller computes
/// on meanwhile. A collective call.
std::unique_ptr<Communicator> with_all_reduce(std::unique_ptr<Communicator>&& inner, AllReduce&);

/// 2(p-1)a + 2n(p-1)/p b + n(p-1)/p c. Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 69 (2009).
AllReduce ring;
/// log2(p) (a + nb + nc). For short vectors. Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), section 4.4.
AllReduce recursive_doubling;
/// 2 log2(p) a + 2n(p-1)/p b + n(p-1)/p c: recursive halving, then recursive doubling. Rabenseifner, ICCS 2004.
AllReduce rabenseifner;
/// 2 log2(p) (a + nb) + log2(p) nc: a binomial tree to rank 0 and back.
AllReduce tree;

// Parts that the algorithms share.

/// Elements [begin, end) of x, sharing memory.
Tensor slice(const Tensor& x, Index begin, Index end);
/// Blocking send of x to one rank, tag 0. Empty tensors are not sent.
void send(Communicator& link, const Tensor& x, int to);
/// Blocking receive into x from one rank, tag 0; the counterpart of send().
void recv(Communicator& link, const Tensor& x, int from);
/// Sends out to one rank while receiving in from another. Empty tensors are not sent.
void exchange(Communicator& link, const Tensor& out, int to, const Tensor& in, int from);
/// to = op(to, from).
void accumulate(const Tensor& to, const Tensor& from, ReduceOp op);

/// Makes the number of ranks a power of two: of the first 2r ranks each even one gives its vector to its neighbour and
/// sits out.
class Fold {
 public:
  /// Sends x, or receives into scratch (of x's shape) and reduces into x. A collective call, as is finish().
  Fold(Communicator& link, const Tensor& x, const Tensor& scratch, ReduceOp op);
  int ranks() const { return ranks_; }  ///< a power of two
  int rank() const { return rank_; }    ///< this rank's number among them; -1: it sits out
  /// The rank of link with this number among them.
  int real(int folded) const { return folded < extra_ ? 2 * folded + 1 : folded + extra_; }
  /// Gives the result to those who sat out.
  void finish(const Tensor& x);

 private:
  Communicator& link_;
  int ranks_ = 1, extra_ = 0, rank_ = 0;
};

}  // namespace trireme::collectives
