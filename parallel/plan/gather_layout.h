// GatherLayout: how ranks gather weights that passes read converted to bf16 or f16 (PartInfo::read_as). These weights
// are sent in that type, half the bytes, as in FSDP's MixedPrecision(param_dtype) (Zhao et al., arXiv 2304.11277). The
// passes compute the same bits: a weight that is rounded before it is sent, and rounded again when it is read, is
// rounded once.
#pragma once
#include <optional>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// The messages of one all_gather of weights among `ranks` ranks. Each rank sends a block of words of two bytes: the
/// f32 weights of its shard that are not converted, two words each, and then the converted ones, one word each. All
/// blocks are as long as the longest.
class GatherLayout {
 public:
  /// The argument of an action (Action::arguments) whose weights only passes read before they are dropped: zero(3).
  static constexpr const char* as_read = "as_read";

  GatherLayout(const Plan&, const Action&, int ranks);
  /// Whether words are sent. False: the gather sends the shards as they are, because the action does not have the
  /// argument as_read, no weight of its slice is converted, or words would be no fewer bytes.
  bool is_packed() const { return words_ > 0; }
  /// The calls of the gather: the blocks, and the remainder of the slice in f32 (parallel/plan/shards.h).
  std::vector<PlannedCall> calls() const;
  /// Bytes of the blocks of this rank and of all ranks.
  Index bytes() const { return (ranks_ + 1) * words_ * 2; }

  /// Starts the gather. values: the flat block; wire: receives the blocks of all ranks, kept by the caller until
  /// unpack(). A collective call.
  Work start(Communicator&, const FlatBuffer& values, Tensor& wire) const;
  /// When the Work is done: writes the weights of other ranks to values. This rank's shard keeps its f32 weights.
  void unpack(const Communicator&, const FlatBuffer& values, const Tensor& wire) const;

 private:
  struct Run {
    Slice slice;
    std::optional<DType> as;  // none: f32
  };
  Slice shard(int rank) const { return {slice_.begin + rank * each_, slice_.begin + (rank + 1) * each_}; }
  Index words_of(int rank) const;
  /// Calls f(weights of the shard as a slice, their place in the block `wire`) for the pieces of a rank's shard.
  template <class F>
  void each_piece(int rank, const Tensor& wire, const F& f) const;

  Slice slice_;
  int ranks_;
  Index each_, words_ = 0;
  std::vector<Run> runs_;  // in order, neighbours of one type joined
};

}  // namespace trireme
