// Collective algorithms as data: what a rank sends and receives, round by round. One engine runs the rounds over send
// and recv of a Communicator; cost() and tests read the same rounds. For p ranks and n elements, with a = latency of a
// message, b = time per element sent, c = time per element reduced, an all-reduce takes
//   ring                2(p-1)a + 2n(p-1)/p b + n(p-1)/p c   Patarasuk and Yuan, JPDC 69 (2009)
//   recursive_doubling  log2(p) (a + nb + nc)                Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), 4.4
//   rabenseifner        2 log2(p) a + 2n(p-1)/p b + n(p-1)/p c: recursive halving, then doubling. ICCS 2004
//   tree                2 log2(p) (a + nb) + log2(p) nc: a binomial tree to rank 0 and back
//   hierarchical(m)     tree to the first rank of each m, ring among these, tree back. Jia et al., arXiv:1807.11205
//   torus(r)            ranks in r rows: ring reduce_scatter along rows, ring all_reduce along columns, ring all_gather
//                       along rows, 2(p/r-1)a + 2(r-1)a and ring's b and c. Mikami et al., arXiv:1811.05233
// Without a number m and r are the largest divisor of p up to sqrt(p). Where an algorithm needs a power of two (or a
// multiple of r) of ranks, the first ranks fold in pairs: one of each gives its vector to the other and sits out, which
// adds 2(a + nb) + nc; but then torus's reduce_scatter is ring's. Every all-reduce leaves the same bits on every rank.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/tensor/flat_buffer.h"
#include "parallel/comm/call.h"

namespace trireme::collectives {

/// What a rank does at once: it sends elements `out` of its vector to rank `to` while it receives elements `in` from
/// rank `from`. Nothing is sent or received where the slice is empty.
struct Round {
  int to = -1;
  Slice out = {};
  int from = -1;
  Slice in = {};
  bool reduce = false;  ///< in = op(in, what came); else what came is copied to in
};
using Rounds = std::vector<Round>;

/// A vector in blocks, one for each rank: block i is [blocks[i], blocks[i + 1]), of any size, 0 included. So there is
/// one number more than there are ranks; the first is 0, the last the number of elements.
using Blocks = std::vector<Index>;
/// Blocks whose sizes differ by at most one.
Blocks even_blocks(Index elements, int ranks);
inline Slice block(const Blocks& b, int i) {
  return {b[static_cast<std::size_t>(i)], b[static_cast<std::size_t>(i) + 1]};
}
inline int ranks(const Blocks& b) { return static_cast<int>(b.size()) - 1; }

/// Whether algorithms do such calls: all_reduce, reduce_scatter, all_gather, broadcast and reduce. Each works in place
/// on a vector of which every rank has a copy, or room for one. What a rank does not end up with (the other blocks
/// after reduce_scatter, the vector of all but the root after reduce) holds partial results.
bool is_scheduled(CallKind);

/// The rounds of one rank.
using Generator = std::function<Rounds(int rank, const Blocks&)>;

/// An algorithm is reduce (to rank 0) or reduce_scatter (block i to rank i), or both. The rest is derived unless given:
/// either of the two from the other by scatter or gather along a binomial tree; all_reduce is reduce_scatter (or
/// reduce) followed by its reversal; all_gather and broadcast are the reversals of reduce_scatter and reduce, so that
/// rabenseifner's broadcast is van de Geijn's scatter and all_gather.
struct Algorithm {
  std::string name;
  Generator reduce = {}, reduce_scatter = {}, all_reduce = {};  ///< all_reduce and reduce get even blocks
};
/// "ring", "torus", "torus(4)", ... Throws Error with the list for another name.
Algorithm find_algorithm(const std::string& name);
std::vector<std::string> algorithm_names();

/// The rounds of one rank. blocks: of all_reduce, broadcast and reduce only the number of elements counts. root: of
/// broadcast and reduce.
Rounds schedule(const Algorithm&, CallKind, int rank, const Blocks&, int root = 0);
/// Runs them, on this thread, on x, a vector in host memory. Nobody else may send on link meanwhile. Returns the bytes
/// that this rank sent.
Index run(Communicator& link, const Rounds&, const Tensor& x, ReduceOp = ReduceOp::sum);

/// Seconds per message, per byte sent, per byte reduced.
struct LinkCost {
  double latency = 0, per_byte = 0, per_reduced_byte = 0;
};
/// Seconds that a collective on even blocks (and to or from rank 0) takes between ranks that are all linked alike, and
/// send and receive at once: those of the rounds of rank 0, which in the algorithms above is as busy as any and kept
/// waiting by none. So it is quick for 100,000 ranks.
double cost(const Algorithm&, CallKind, int ranks, Index bytes, const LinkCost&);

/// The algorithm for a call, or null: the communicator's own. All ranks must choose alike. bytes: of the whole vector.
using Choice = std::function<std::shared_ptr<const Algorithm>(CallKind, int ranks, Index bytes)>;
/// Wraps inner so that all_reduce, reduce_scatter, all_gather and broadcast run by what `choose` says, on a thread and
/// a communicator of their own: the caller computes on meanwhile. Communicators that are split from it do the same.
/// Tensors on devices go by way of the host; but where NCCL links the devices, only those of all_reduce, and only where
/// there is an algorithm. sent, if any, counts the bytes that algorithms sent from this rank. In virtual time the
/// inner's collectives run, and take what the algorithm's rounds cost: bits and bytes are the inner's. A collective
/// call.
std::unique_ptr<Communicator> with_algorithm(std::unique_ptr<Communicator>&& inner, Choice choose,
                                             std::shared_ptr<std::atomic<Index>> sent = {});
/// By one algorithm for all sizes. with_all_reduce is the same for all_reduce alone.
std::unique_ptr<Communicator> with_algorithm(std::unique_ptr<Communicator>&& inner, const Algorithm&,
                                             std::shared_ptr<std::atomic<Index>> sent = {});

/// Which algorithm is fastest for what, as measured: made once by measure_algorithms(), kept as text with a run, and
/// the same again when the run is resumed. A row holds for the calls that are nearest to it.
struct AlgorithmTable {
  struct Row {
    CallKind kind;
    int ranks;
    Index bytes;
    std::string algorithm;  ///< "default": the communicator's own
    bool operator==(const Row&) const = default;
  };
  std::vector<Row> rows;
  /// The name in the row of this kind with the number of ranks, and then of bytes, that is nearest (their ratios
  /// count); "default" where there is none.
  std::string find(CallKind, int ranks, Index bytes) const;
  /// A line "all_reduce 8 65536 ring" for each row.
  std::string to_text() const;
  /// Throws Error naming the line that to_text() would not write.
  static AlgorithmTable of_text(const std::string&);
  /// find() as with_algorithm wants it.
  Choice choice() const;
};
struct MeasureOptions {
  std::vector<CallKind> kinds = {CallKind::all_reduce, CallKind::reduce_scatter, CallKind::all_gather,
                                 CallKind::broadcast, CallKind::reduce};
  std::vector<Index> bytes = {Index{1} << 10, Index{1} << 14, Index{1} << 18, Index{1} << 22};
  int rounds = 4;  ///< the best of them counts; the first does not
};
/// Measures "default" and every named algorithm on all ranks, and on groups of half as many, a quarter, ... that work
/// at the same time. The slowest rank counts; rank 0 decides, so that the table is the same on all ranks. A collective
/// call.
AlgorithmTable measure_algorithms(Communicator&, const MeasureOptions& = {});

// Parts that algorithms share.

/// The rounds backwards, sending what was received and the other way round, and copying: it spreads what a schedule
/// has gathered or reduced.
Rounds reversed(const Rounds&);
/// rounds, then their reversal.
Rounds there_and_back(Rounds rounds);
/// Adds the rounds of a group of ranks, of which i has the number real(i) outside, on the part of the vector that
/// begins at offset.
void append(Rounds& to, const Rounds& group, const std::function<int(int)>& real, Index offset = 0);
/// The rounds that `of` makes for `count` ranks, at least half of all: of the first 2(p - count) ranks each odd one
/// gives its vector to its neighbour and sits out. all: all_reduce, on even blocks; else reduce_scatter, in which the
/// neighbour has the blocks of both.
Rounds folded(int rank, const Blocks&, int count, bool all, const Generator& of);
/// Along a binomial tree to rank 0: the whole vector is reduced, or the blocks are gathered.
Rounds to_root(int rank, const Blocks&, bool reduce);
/// reduce_scatter in a ring; block (i + shift) modulo p ends at rank i.
Rounds ring_reduce_scatter(int rank, const Blocks&, int shift = 0);

Algorithm ring();
Algorithm recursive_doubling();
Algorithm rabenseifner();
Algorithm tree();
Algorithm hierarchical(int node_size);  ///< 0: by the number of ranks, as the head of this file says
Algorithm torus(int rows);              ///< likewise

}  // namespace trireme::collectives
