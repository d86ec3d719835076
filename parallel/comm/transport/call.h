// Call: the description of one collective call, checked and put into words the same way on every transport.
#pragma once
#include <chrono>
#include <span>
#include <vector>

#include "parallel/comm/communicator.h"

namespace trireme {

enum class CallKind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier, split };

struct Call {
  CallKind kind = CallKind::barrier;
  Index count = 0;  ///< elements of the larger side
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  bool operator==(const Call&) const = default;
};

std::string_view name_of(CallKind);
/// "all_reduce of 4096 f32 (sum)"
std::string to_string(const Call&);

// Each checks its operands (types, counts, ranks) and returns the call. Throws Error.
Call all_reduce_call(const Tensor& x, ReduceOp op);
Call reduce_scatter_call(const Tensor& out, const Tensor& in, ReduceOp op, int size);
Call all_gather_call(const Tensor& out, const Tensor& in, int size);
Call broadcast_call(const Tensor& x, int root, int size);
Call all_to_all_call(const Tensor& out, const Tensor& in, int size);
/// name: "send" or "recv".
void check_message(std::string_view name, const Tensor& x, int peer, int tag, int size);

/// As many numbers from each rank, by rank. A collective call.
std::vector<std::int64_t> gather_numbers(Communicator&, std::span<const std::int64_t> mine);

/// How long a wait may last before it throws: TRIREME_TIMEOUT, in seconds; 300 if unset.
std::chrono::duration<double> collective_timeout();

}  // namespace trireme
