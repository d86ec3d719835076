// Collective algorithms as data: the messages of a rank, round by round. One engine runs the rounds over send and recv
// of a Communicator; cost() and the tests read the same rounds. For p ranks and n elements, with a = latency of a
// message, b = time per element sent, c = time per element reduced, an all-reduce takes
//   ring                2(p-1)a + 2n(p-1)/p b + n(p-1)/p c   Patarasuk and Yuan, JPDC 69 (2009)
//   recursive_doubling  log2(p) (a + nb + nc)                Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), 4.4
//   rabenseifner        2 log2(p) a + 2n(p-1)/p b + n(p-1)/p c: recursive halving, then doubling. ICCS 2004
//   tree                2 log2(p) (a + nb) + log2(p) nc: a binomial tree to rank 0 and back
//   hierarchical(m)     tree to the first rank of each m, ring among these, tree back. Jia et al., arXiv:1807.11205
//   torus(r)            ranks in r rows: ring reduce_scatter along rows, ring all_reduce along columns, ring all_gather
//                       along rows, 2(p/r-1)a + 2(r-1)a and ring's b and c. Mikami et al., arXiv:1811.05233
// By default m and r are the largest divisor of p up to sqrt(p). If an algorithm needs a power of two (or a multiple of
// r) of ranks, some of the first ranks form pairs: one rank of a pair gives its vector to the other, waits, and gets
// the result, which adds 2(a + nb) + nc. The reduce_scatter of torus is then ring's. Every all-reduce gives the same
// bits on every rank.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/tensor/flat_buffer.h"
#include "parallel/comm/call.h"

namespace trireme::collectives {

/// One round of a rank: it sends elements `out` of its vector to rank `to` and at the same time receives elements `in`
/// from rank `from`. An empty slice means that nothing is sent or received.
struct Round {
  int to = -1;          ///< destination rank
  Slice out = {};       ///< elements to send
  int from = -1;        ///< source rank
  Slice in = {};        ///< elements to receive into
  bool reduce = false;  ///< true: in = op(in, received); false: in = received
};
/// The rounds of one rank, in order.
using Rounds = std::vector<Round>;

/// The block boundaries of a vector with one block per rank: block i is [blocks[i], blocks[i + 1]) and may be empty.
/// There are ranks + 1 boundaries: the first is 0, the last the number of elements.
using Blocks = std::vector<Index>;
/// Blocks whose sizes differ by at most one.
Blocks even_blocks(Index elements, int ranks);
/// The elements of block i.
inline Slice block(const Blocks& b, int i) {
  return {b[static_cast<std::size_t>(i)], b[static_cast<std::size_t>(i) + 1]};
}
/// The number of blocks.
inline int ranks(const Blocks& b) { return static_cast<int>(b.size()) - 1; }

/// Whether algorithms exist for this kind: all_reduce, reduce_scatter, all_gather, broadcast and reduce. Each works in
/// place on a whole vector on every rank. Elements that are not a rank's result hold partial results: the other blocks
/// after reduce_scatter, and the vector of ranks other than the root after reduce.
bool is_scheduled(CallKind);

/// Makes the rounds of one rank.
using Generator = std::function<Rounds(int rank, const Blocks&)>;

/// An algorithm is reduce (to rank 0) or reduce_scatter (block i to rank i), or both. The rest is derived unless given:
/// either of the two from the other by scatter or gather along a binomial tree; all_reduce is reduce_scatter (or
/// reduce) followed by its reversal; all_gather and broadcast are the reversals of reduce_scatter and reduce, so that
/// rabenseifner's broadcast is van de Geijn's scatter and all_gather.
struct Algorithm {
  std::string name;         ///< for find_algorithm(): "ring"
  Generator reduce = {},    ///< rounds of reduce, for even blocks
      reduce_scatter = {},  ///< rounds of reduce_scatter
      all_reduce = {};      ///< rounds of all_reduce, for even blocks
};
/// "ring", "torus", "torus(4)", ... Throws Error with the list for another name.
Algorithm find_algorithm(const std::string& name);
/// The names that find_algorithm() takes.
std::vector<std::string> algorithm_names();

/// The rounds of one rank. blocks: all_reduce, broadcast and reduce use only the number of elements. root: used by
/// broadcast and reduce.
Rounds schedule(const Algorithm&, CallKind, int rank, const Blocks&, int root = 0);
/// Runs the rounds on this thread on x, a vector in host memory. Nothing else may use link meanwhile. Returns the
/// number of bytes that this rank sent.
Index run(Communicator& link, const Rounds&, const Tensor& x, ReduceOp = ReduceOp::sum);

/// The cost of a link in seconds.
struct LinkCost {
  double latency = 0,        ///< seconds per message
      per_byte = 0,          ///< seconds per byte sent
      per_reduced_byte = 0;  ///< seconds per byte reduced
};
/// Seconds of a collective on even blocks (and root 0) if all links are equal and send and receive at the same time. It
/// is the time of rank 0's rounds: in these algorithms no rank is busier than rank 0, and rank 0 never waits. So it is
/// fast even for 100,000 ranks.
double cost(const Algorithm&, CallKind, int ranks, Index bytes, const LinkCost&);

/// Chooses the algorithm for a call; null: the communicator's own. All ranks must choose the same. bytes: size of the
/// whole vector.
using Choice = std::function<std::shared_ptr<const Algorithm>(CallKind, int ranks, Index bytes)>;
/// Wraps inner so that all_reduce, reduce_scatter, all_gather and broadcast run by the algorithm that `choose` returns.
/// They run on a separate thread and communicator, so the caller can compute meanwhile. Communicators that are split
/// from the result do the same. Tensors on devices go through the host; but if NCCL links the devices, only an
/// all_reduce that has an algorithm does. sent, if given, counts the bytes that algorithms send from this rank. In
/// virtual time inner's collectives run with the duration of the algorithm's rounds: bits and bytes are inner's. A
/// collective call.
std::unique_ptr<Communicator> with_algorithm(std::unique_ptr<Communicator>&& inner, Choice choose,
                                             std::shared_ptr<std::atomic<Index>> sent = {});
/// As above, with one algorithm for all sizes. with_all_reduce() (parallel/comm/communicator.h) does the same for
/// all_reduce only.
std::unique_ptr<Communicator> with_algorithm(std::unique_ptr<Communicator>&& inner, const Algorithm&,
                                             std::shared_ptr<std::atomic<Index>> sent = {});

/// The measured fastest algorithm per call. measure_algorithms() makes the table once; a run stores it as text and uses
/// it again when resumed. A row applies to the calls that are nearest to it.
struct AlgorithmTable {
  /// The fastest algorithm for one call.
  struct Row {
    CallKind kind;                                ///< of the call
    int ranks;                                    ///< number of ranks
    Index bytes;                                  ///< size of the whole vector
    std::string algorithm;                        ///< "default": the communicator's own
    bool operator==(const Row&) const = default;  ///< member by member
  };
  std::vector<Row> rows;  ///< in any order
  /// The algorithm of the row of this kind with the nearest number of ranks, then the nearest number of bytes (by
  /// ratio); "default" if the kind has no row.
  std::string find(CallKind, int ranks, Index bytes) const;
  /// One line per row: "all_reduce 8 65536 ring".
  std::string to_text() const;
  /// Reads to_text(). Throws Error that names a line of another form.
  static AlgorithmTable of_text(const std::string&);
  /// find() as a Choice for with_algorithm().
  Choice choice() const;
};
/// What measure_algorithms() measures.
struct MeasureOptions {
  std::vector<CallKind> kinds = {CallKind::all_reduce, CallKind::reduce_scatter, CallKind::all_gather,
                                 CallKind::broadcast, CallKind::reduce};                        ///< kinds to measure
  std::vector<Index> bytes = {Index{1} << 10, Index{1} << 14, Index{1} << 18, Index{1} << 22};  ///< vector sizes
  int rounds = 4;  ///< timed rounds; the best counts, without the first
};
/// Measures "default" and every named algorithm on all ranks, and on groups of a half, a quarter, ... of the ranks that
/// run at the same time. The slowest rank counts. Rank 0 chooses, so the table is the same on all ranks. A collective
/// call.
AlgorithmTable measure_algorithms(Communicator&, const MeasureOptions& = {});

// Building blocks of algorithms.

/// The rounds in reverse order with send and receive swapped, copying instead of reducing: spreads a result that a
/// schedule has gathered or reduced.
Rounds reversed(const Rounds&);
/// The rounds followed by reversed(rounds).
Rounds there_and_back(Rounds rounds);
/// Appends the rounds of a group of ranks, on the part of the vector that begins at offset. real(i): rank outside the
/// group of its rank i.
void append(Rounds& to, const Rounds& group, const std::function<int(int)>& real, Index offset = 0);
/// The rounds of `of` for `count` of p ranks, count at least p/2. Each odd rank among the first 2(p - count) gives its
/// vector to its neighbour and pauses. all: all_reduce on even blocks; else reduce_scatter, in which the neighbour has
/// the blocks of both ranks.
Rounds folded(int rank, const Blocks&, int count, bool all, const Generator& of);
/// A binomial tree to rank 0: reduces the whole vector, or gathers the blocks.
Rounds to_root(int rank, const Blocks&, bool reduce);
/// reduce_scatter in a ring; block (i + shift) modulo p ends at rank i.
Rounds ring_reduce_scatter(int rank, const Blocks&, int shift = 0);

Algorithm ring();                       ///< see the head of this file
Algorithm recursive_doubling();         ///< see the head of this file
Algorithm rabenseifner();               ///< see the head of this file
Algorithm tree();                       ///< see the head of this file
Algorithm hierarchical(int node_size);  ///< ranks per node; 0: the default of the head of this file
Algorithm torus(int rows);              ///< rows of ranks; 0: the default of the head of this file

}  // namespace trireme::collectives
