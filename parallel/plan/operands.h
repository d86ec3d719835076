// Operands: the data that an action of any kind reads and writes.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/liveness.h"

namespace trireme {

/// The kind of an operand.
enum class OperandKind : std::uint8_t {
  weights,     ///< a slice of the flat block of values
  gradients,   ///< a slice of the flat block of gradients
  state,       ///< a slice of the optimizer's state, or of the Plan::state with its name
  statistics,  ///< running statistics: a slice of the packed buffers
  activation,  ///< output of a part, of one micro-batch
  cotangent,   ///< gradient of an activation
  scratch,     ///< private data of the action, by name
  number,      ///< a number that ranks agree on: Action::payload
};

/// A piece of data that actions of one program share.
struct Operand {
  OperandKind kind;                                 ///< what it is
  Slice slice = {};                                 ///< for weights, gradients, state and statistics
  int part = -1;                                    ///< for activations and cotangents; -1: the model's input
  MicroBatch microbatch = {};                       ///< for activations and cotangents
  std::string name = {};                            ///< for numbers, states and scratch; empty: the optimizer's state
  int version = 0;                                  ///< for weights and gradients: age in updates; 0: the newest
  bool overlaps(const Operand&) const;              ///< whether both share some data
  bool operator==(const Operand&) const = default;  ///< member by member
};
std::string to_string(const Operand&);  ///< "gradients [0, 100)", "activation of part 2 micro 1"

/// The operands of an action.
struct Access {
  std::vector<Operand> reads,  ///< that it reads
      writes;                  ///< that it writes
};
/// The operands of an action, from the row of its kind, including its codec's states. live: of that program.
Access accesses(const Plan&, const Program&, const Liveness& live, const Action&);

}  // namespace trireme
