// Operands: what an action reads and writes. Check, memory and drawings follow them instead of kinds of actions.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/liveness.h"

namespace trireme {

/// What an operand is.
enum class OperandKind : std::uint8_t {
  weights,     ///< a slice of the flat block of values
  gradients,   ///< a slice of the flat block of gradients
  state,       ///< the optimizer's, of a slice
  statistics,  ///< running statistics: a slice of the packed buffers
  activation,  ///< output of a part, of one micro-batch
  cotangent,   ///< its gradient
  number,      ///< one that ranks agree on: Action::field
};

/// Something that actions of one role share.
struct Operand {
  OperandKind kind;
  Slice slice = {};                                 ///< of weights to statistics
  int part = -1, microbatch = 0;                    ///< of activations and their gradients; part -1: the model's input
  std::string name = {};                            ///< of a number
  bool overlaps(const Operand&) const;              ///< whether they have anything in common
  bool operator==(const Operand&) const = default;  ///< member by member
};
std::string to_string(const Operand&);  ///< "gradients [0, 100)", "activation of part 2 micro 1"

struct Access {
  std::vector<Operand> reads, writes;
};
/// What an action of the role accesses. live: of that role.
Access accesses(const Plan&, const Role&, const Liveness& live, const Action&);

}  // namespace trireme
