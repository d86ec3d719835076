// Operands: what an action reads and writes, whatever its kind.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/liveness.h"

namespace trireme {

/// What an operand is.
enum class OperandKind : std::uint8_t {
  weights,     ///< a slice of the flat block of values
  gradients,   ///< a slice of the flat block of gradients
  state,       ///< of a slice: the optimizer's, or one of Plan::state by its name
  statistics,  ///< running statistics: a slice of the packed buffers
  activation,  ///< output of a part, of one micro-batch
  cotangent,   ///< its gradient
  scratch,     ///< of the action's own, by name
  number,      ///< one that ranks agree on: Action::field
};

/// Something that actions of one program share.
struct Operand {
  OperandKind kind;
  Slice slice = {};                                 ///< of weights to statistics
  int part = -1, microbatch = 0;                    ///< of activations and their gradients; part -1: the model's input
  std::string name = {};                            ///< of a number, state or scratch; the optimizer's state: empty
  int version = 0;                                  ///< of weights and gradients: updates behind the newest
  bool overlaps(const Operand&) const;              ///< whether they have anything in common
  bool operator==(const Operand&) const = default;  ///< member by member
};
std::string to_string(const Operand&);  ///< "gradients [0, 100)", "activation of part 2 micro 1"

struct Access {
  std::vector<Operand> reads, writes;
};
/// What an action of the program accesses, by its kind's row, its codec's states included. live: of that program.
Access accesses(const Plan&, const Program&, const Liveness& live, const Action&);

}  // namespace trireme
