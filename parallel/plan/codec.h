// Codec: a compression of gradients for a reduction over ranks, as in PyTorch's DDP communication hooks. A codec is a
// constant, of the library or of a plugin; Action::codec points to it.
#pragma once
#include <map>
#include <optional>
#include <string_view>

#include "parallel/plan/plan.h"

namespace trireme {

struct CodecContext;

/// A reduction with a codec runs in one of two ways. If is_summable, the communicator sums the encoded vectors, and
/// decode() runs once on the sum. Otherwise each rank gathers the encoded vectors, then decodes and sums them in the
/// order of ranks, so every rank gets the same bits. A summable codec may need several rounds, such as PowerSGD for its
/// two factors: each round encodes one vector from the sums of earlier rounds.
struct Codec {
  std::string_view name;           ///< name in texts of plans and strategies, lower case
  std::optional<DType> wire = {};  ///< type of an encoded vector; none: the parameters' type
  bool is_summable = false;        ///< the sum of encoded vectors decodes to the sum of the vectors
  /// Number of elements of the encoded vector in this round, the same on every rank. 0: nothing is sent.
  Index (*length)(const CodecContext&) = nullptr;
  /// Encodes numbers [size], of the parameters' type, to wire [length]. May change `numbers`; later rounds get the
  /// changed values. Reads and writes CodecContext::states.
  void (*encode)(const CodecContext&, const Tensor& numbers, const Tensor& wire) = nullptr;
  /// If is_summable: sets numbers [size] to the vector that wire, the sum of the last round, encodes. Otherwise: runs
  /// once per rank and adds the vector that the rank's wire encodes to numbers, which are 0 at first.
  void (*decode)(const CodecContext&, const Tensor& wire, const Tensor& numbers) = nullptr;
  /// A state that a codec keeps between steps (parallel/plan/plan.h: State), one number per parameter: a residual, a
  /// momentum.
  struct Kept {
    std::string_view name = {};      ///< name of the State; empty: no state
    std::string_view argument = {};  ///< if the action's argument of this name is 0, the state is not kept
  };
  Kept states[2] = {};  ///< states between steps
  int rounds = 1;       ///< number of rounds, at least 1; above 1 the codec must be summable
  /// Bytes of temporary tensors in encode() or decode(); null: none.
  Index (*working)(const CodecContext&) = nullptr;
  bool on_host = false;  ///< encode() and decode() get host memory; tensors on devices are copied
  /// Element i of the encoded vector encodes number i alone: length is size, rounds is 1. Then the codec can also
  /// encode a reduce_scatter: each rank sends the others their shards, decodes the shards that it gets, and sums them
  /// in the parameters' type, in the order of ranks. decode() then gets one shard, or the remainder of fewer numbers
  /// than ranks: CodecContext::size is its number of elements, and the context has no tensors and no states.
  bool is_elementwise = false;
};

/// The arguments of a codec that encodes or decodes a reduction's slice. All members except rank and states are equal
/// on all ranks.
struct CodecContext {
  /// element: bytes of a parameter. step: steps before this one.
  CodecContext(const Plan&, const Action&, Index element, std::int64_t step);
  /// The action's argument of this name. Throws Error if it has none.
  double argument(std::string_view name) const;

  const Action& action;            ///< the reduction
  Index size,                      ///< number of elements of the vector
      element;                     ///< bytes per element
  std::int64_t step;               ///< steps before this one
  std::map<Index, Shape> tensors;  ///< shapes of the parameters by their first position in the vector; the vector may
                                   ///< cut the first and last one
  int round = 0;                   ///< in [0, Codec::rounds)
  int ranks = 1;                   ///< number of ranks that reduce together
  int rank =
      0;  ///< this rank along the axis; in decode() of a codec that is not summable, the rank that encoded the vector
  std::vector<Tensor> sums = {};    ///< results of earlier rounds; the codec may change them
  std::vector<Tensor> states = {};  ///< [size] each, in the order of Codec::states; undefined: not kept
};

/// The action's argument of this name; none: it has none.
std::optional<double> find_argument(const Action&, std::string_view name);
/// Whether the action sends encoded numbers in a step. Its argument "from", if it has one, is the first such step.
bool is_encoded(const Action&, std::int64_t step);
/// Whether a codec of the plan sums gradients in f16, which may overflow (the largest f16 is 65504).
bool sums_in_f16(const Plan&);
/// The states that the action's codec keeps, in the order of Codec::states; empty names for states that are not kept.
std::vector<std::string> codec_states(const Action&);

/// The plan with its gradient reductions encoded, with these arguments, and the codec's states declared.
Plan with_codec(Plan, const Codec&, const std::vector<std::pair<std::string, double>>& arguments = {});

}  // namespace trireme
