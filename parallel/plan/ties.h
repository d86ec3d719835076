// Ties: weights that several parts of a model use, as a language model's last layer uses its token embedding. They lie
// in the flat block once, in the slice of the first such part. Where these parts stand in several programs (stages of a
// pipeline), each program holds a copy: the gradients of all are summed (ActionKind::all_reduce with Peer::members),
// and every program updates its copy alike. The program of the first part is the owner, which counts the weights in
// norms, and saves them.
//
// Copies stay equal bit by bit because the sum over programs is the last sum of their gradients: sums over data ranks
// come before it. A transport may add by topology (NCCL, MPI over several hosts) and so round differently in each
// stage. The last sum gives all programs the same bits, whatever its operands are.
#pragma once
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// Weights with copies in several programs.
struct Tie {
  Slice slice;                ///< one tensor's, of PartInfo::tied
  std::vector<int> programs;  ///< that run parts which use it, ascending
  int owner;                  ///< the one of the part that holds it
};
/// In the order of the flat block; empty where no part uses what is held in another program.
std::vector<Tie> ties_of(const Plan&);
/// The ties that a program updates but does not own.
std::vector<Slice> copies_in(const Plan&, std::size_t program);

/// All weights that parts use beside the one that holds them, in the order of the flat block.
std::vector<Slice> tied_slices(const Plan&);
/// Whether a part reads weights in a slice, its own or others'.
bool uses(const PartInfo&, const Slice&);
/// Whether any of the slices overlaps s.
bool overlaps(const std::vector<Slice>& slices, const Slice& s);
/// A slice in pieces, in order, that neither of `at`, which are apart and in order, reaches over.
std::vector<Slice> cut_at(const Slice&, const std::vector<Slice>& at);
/// The actions of a program that sum copies of weights in a slice with other programs.
std::vector<ActionId> tied_sums(const Program&, const Slice&);

}  // namespace trireme
