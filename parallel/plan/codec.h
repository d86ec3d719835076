// Codec: how a reduction's numbers travel: a row (a constant), in the tree or outside of it, that actions point to.
#pragma once
#include <map>
#include <optional>
#include <string_view>

#include "parallel/plan/plan.h"

namespace trireme {

struct CodecContext;

/// Encoded vectors are either summed as they are, by the communicator, or gathered from all ranks, decoded one by one
/// and summed in the order of ranks: the same bits on every rank. A codec may take several rounds: each encodes, from
/// what the rounds before brought, into a vector of its own (PowerSGD's two factors); these are summable.
struct Codec {
  std::string_view name;           ///< in texts: lower case
  std::optional<DType> wire = {};  ///< elements of an encoded vector; none: those of the parameters
  bool is_summable = false;        ///< the sum of encoded vectors decodes to the sum of the vectors
  /// Elements of `wire` that encode the vector in this round: the same on every rank. 0: nothing is sent.
  Index (*length)(const CodecContext&) = nullptr;
  /// numbers [size], of the parameters' type, into wire [length]. numbers is the codec's own until it is decoded: what
  /// a round leaves there, the next one finds. Reads and writes the context's states.
  void (*encode)(const CodecContext&, const Tensor& numbers, const Tensor& wire) = nullptr;
  /// Summable: numbers [size] becomes what the last round's sum, wire, stands for. Else it is called for each rank's
  /// wire and adds to numbers, which are 0 before.
  void (*decode)(const CodecContext&, const Tensor& wire, const Tensor& numbers) = nullptr;
  /// A State of the plan that a codec keeps, one number per parameter: a residual, a momentum.
  struct Kept {
    std::string_view name = {};      ///< of the State; empty: none
    std::string_view argument = {};  ///< the codec does without it where the action's argument of this name is 0
  };
  Kept states[2] = {};  ///< that it keeps from step to step
  int rounds = 1;       ///< at least 1; more than one: is_summable
  /// Bytes of tensors that encode or decode make for the time of a call; null: none.
  Index (*working)(const CodecContext&) = nullptr;
  bool on_host = false;  ///< encode and decode want host memory: what lies on a device is copied there and back
};

/// The arguments of a codec that encodes or decodes a reduction's slice. All members except rank and states are equal
/// on all ranks.
struct CodecContext {
  /// element: bytes of a parameter. step: steps before this one.
  CodecContext(const Plan&, const Action&, Index element, std::int64_t step);
  /// The action's argument of this name. Throws Error where there is none.
  double argument(std::string_view name) const;

  const Action& action;             ///< the reduction
  Index size,                       ///< number of elements of the vector
      element;                      ///< bytes per element
  std::int64_t step;                ///< steps before this one
  std::map<Index, Shape> tensors;   ///< shapes of parameters by position in the vector; may reach over its ends
  int round = 0;                    ///< in [0, Codec::rounds)
  int ranks = 1;                    ///< that reduce together
  int rank = 0;                     ///< of this one, along the axis; decode, not summable: of who encoded the vector
  std::vector<Tensor> sums = {};    ///< of the rounds before this one, which the codec may change
  std::vector<Tensor> states = {};  ///< [size] each, in the order of Codec::states; undefined: it does without
};

/// The number that an action has under this name; none: it has none.
std::optional<double> find_argument(const Action&, std::string_view name);
/// Whether the action sends encoded numbers in a step: its argument "from", if it has one, says from which on.
bool is_encoded(const Action&, std::int64_t step);
/// Whether a codec sums gradients in f16, which ends at 65504: they may overflow in any step.
bool sums_in_f16(const Plan&);
/// The states that the action's codec keeps, in the order of Codec::states; empty names for those it does without.
std::vector<std::string> codec_states(const Action&);

/// The plan with its gradient reductions (all_reduce) encoded, with these arguments, and the codec's states declared.
Plan with_codec(Plan, const Codec&, const std::vector<std::pair<std::string, double>>& arguments = {});

}  // namespace trireme
