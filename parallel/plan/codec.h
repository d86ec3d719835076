// Codec: how a reduction's numbers travel: a row (a constant), in the tree or outside of it, that actions point to.
#pragma once
#include <string_view>

#include "parallel/plan/plan.h"

namespace trireme {

/// Encoded vectors are either summed as they are, by the communicator, or gathered from all ranks, decoded one by one
/// and summed in the order of ranks: the same bits on every rank.
struct Codec {
  std::string_view name;     ///< in texts: lower case
  DType wire = DType::f32;   ///< elements of an encoded vector
  bool is_summable = false;  ///< the sum of encoded vectors decodes to the sum of the vectors
  /// Elements of `wire` that encode a vector of n numbers: the same on every rank.
  Index (*length)(Index n) = nullptr;
  /// numbers [n], of the parameters' type, on the host or a device, into wire [length(n)]. state [n]: this rank's
  /// numbers of the state below, to read and write; undefined without one.
  void (*encode)(const Tensor& numbers, const Tensor& wire, const Tensor& state) = nullptr;
  void (*decode)(const Tensor& wire, const Tensor& numbers) = nullptr;  ///< the other way round
  std::string_view state = {};  ///< a State of the plan that it keeps (a residual); empty: none
};

/// The plan with its gradient reductions (all_reduce) encoded, and the codec's state declared.
Plan with_codec(Plan, const Codec&);

}  // namespace trireme
