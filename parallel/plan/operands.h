// Operands: the data that an action reads and writes. check() finds races by them.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/liveness.h"

namespace trireme {

/// Whether operands of the kind are slices: of a flat block, the packed buffers, or a state.
constexpr bool is_slice(OperandKind kind) { return kind >= OperandKind::weights && kind <= OperandKind::state; }

/// A piece of data that actions of one program share.
struct Operand {
  OperandKind kind;                                 ///< kind of data
  Slice slice = {};                                 ///< for kinds with is_slice(); elements
  int part = -1;                                    ///< for activations and cotangents; -1: the model's input
  MicroBatch microbatch = {};                       ///< for activations and cotangents
  std::string name = {};                            ///< for flags, state and scratch; empty: all optimizer state
  int version = 0;                                  ///< for weights and gradients: age in updates; 0: the newest
  bool written = false;                             ///< whether the action writes it; false: only reads
  bool overlaps(const Operand&) const;              ///< whether both refer to some common data
  bool operator==(const Operand&) const = default;  ///< member by member
};
std::string to_string(const Operand&);  ///< "gradients [0, 100)", "activation of part 2 micro 1"

/// The operands of each action of the program, in list order: those of the row of its kind, and the states of its
/// codec.
std::vector<std::vector<Operand>> accesses(const Plan&, const Program&);

}  // namespace trireme
