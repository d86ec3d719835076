// Ties: weights that several parts of a model use, such as token embeddings that are also the weights of the last
// layer. The flat block holds them once, in the slice of the first such part. If these parts are in several programs
// (stages of a pipeline), each program has a copy. The copies' gradients are summed (ActionKind::all_reduce with
// Peer::members), and every program updates its copy. The program of the first part is the owner: it counts the weights
// in norms and saves them.
//
// Copies keep the same bits, because the sum over programs is the last sum of their gradients; sums over data ranks
// come before it. A transport may add in an order that depends on the topology (NCCL, MPI over several hosts), so a sum
// over data ranks may be rounded differently in each stage. The last sum gives all programs the same bits.
#pragma once
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// Weights with copies in several programs.
struct Tie {
  Slice slice;                ///< slice of one tensor, from PartInfo::tied
  std::vector<int> programs;  ///< indices of the programs whose parts use it, ascending
  int owner;                  ///< program of the part whose slice has the weights
};
/// The ties of a plan, in the order of the flat block. Empty if no part uses weights of another program.
std::vector<Tie> ties_of(const Plan&);
/// The slices of ties that a program updates but does not own.
std::vector<Slice> copies_in(const Plan&, std::size_t program);

/// The slices of all weights that several parts use, in one program or in several, in the order of the flat block.
std::vector<Slice> tied_slices(const Plan&);
/// Whether a part uses weights in the slice: in its own slice, or tied to another part's.
bool uses(const PartInfo&, const Slice&);
/// Whether any of the slices overlaps s.
bool overlaps(const std::vector<Slice>& slices, const Slice& s);
/// The slice in pieces, in order, cut at the begin and end of each slice in `at`, which are disjoint and in order.
std::vector<Slice> cut_at(const Slice&, const std::vector<Slice>& at);
/// The actions of a program that sum copies of weights in a slice with other programs.
std::vector<ActionId> tied_sums(const Program&, const Slice&);

}  // namespace trireme
