#include "parallel/comm/transport/call.h"

#include <cstdlib>

namespace trireme {
namespace {

void check_defined(std::string_view name, const Tensor& x) {
  check(x.defined(), name, "got an undefined tensor, expected one with memory");
}

Call blocks_call(CallKind kind, const Tensor& large, const Tensor& small, Index blocks, ReduceOp op) {
  auto name = name_of(kind);
  check_defined(name, large);
  check_defined(name, small);
  check(large.dtype() == small.dtype(), name, "in and out must have one type, got {} and {}", large.dtype(),
        small.dtype());
  check(large.numel() == small.numel() * blocks, name,
        "got {} elements on one side and {} on the other, expected {} times as many", large.numel(), small.numel(),
        blocks);
  return {kind, large.numel(), large.dtype(), op, 0};
}

}  // namespace

std::string_view name_of(CallKind kind) {
  switch (kind) {
    case CallKind::all_reduce: return "all_reduce";
    case CallKind::reduce_scatter: return "reduce_scatter";
    case CallKind::all_gather: return "all_gather";
    case CallKind::broadcast: return "broadcast";
    case CallKind::all_to_all: return "all_to_all";
    case CallKind::barrier: return "barrier";
    case CallKind::split: return "split";
  }
  return "?";
}

std::string to_string(const Call& c) {
  if (c.kind == CallKind::barrier || c.kind == CallKind::split) return std::string(name_of(c.kind));
  auto text = fmt::format("{} of {} {}", name_of(c.kind), c.count, name_of(c.type));
  if (c.kind == CallKind::all_reduce || c.kind == CallKind::reduce_scatter)
    text += c.op == ReduceOp::sum ? " (sum)" : c.op == ReduceOp::max ? " (max)" : " (min)";
  if (c.kind == CallKind::broadcast) text += fmt::format(" from rank {}", c.root);
  return text;
}

Call all_reduce_call(const Tensor& x, ReduceOp op) {
  check_defined("all_reduce", x);
  return {CallKind::all_reduce, x.numel(), x.dtype(), op, 0};
}

Call reduce_scatter_call(const Tensor& out, const Tensor& in, ReduceOp op, int size) {
  return blocks_call(CallKind::reduce_scatter, in, out, size, op);
}

Call all_gather_call(const Tensor& out, const Tensor& in, int size) {
  return blocks_call(CallKind::all_gather, out, in, size, ReduceOp::sum);
}

Call broadcast_call(const Tensor& x, int root, int size) {
  check_defined("broadcast", x);
  check(root >= 0 && root < size, "broadcast", "root is rank {}, there are {} ranks", root, size);
  return {CallKind::broadcast, x.numel(), x.dtype(), ReduceOp::sum, root};
}

Call all_to_all_call(const Tensor& out, const Tensor& in, int size) {
  auto call = blocks_call(CallKind::all_to_all, out, in, 1, ReduceOp::sum);
  check(call.count % size == 0, "all_to_all", "{} elements do not divide into {} equal blocks", call.count, size);
  return call;
}

void check_message(std::string_view name, const Tensor& x, int peer, int tag, int size) {
  check_defined(name, x);
  check(peer >= 0 && peer < size, name, "peer is rank {}, there are {} ranks", peer, size);
  check(tag >= 0 && tag < 32768, name, "tag is {}, expected one in [0, 32768)", tag);
}

std::vector<std::int64_t> gather_numbers(Communicator& comm, std::span<const std::int64_t> mine) {
  const auto n = static_cast<Index>(mine.size());
  const Tensor all = Tensor::empty({n * comm.size()}, DType::i64), own = Tensor::empty({n}, DType::i64);
  std::copy(mine.begin(), mine.end(), own.data<std::int64_t>());
  comm.all_gather(all, own).wait();
  const auto values = all.view().span<std::int64_t>();
  return {values.begin(), values.end()};
}

std::chrono::duration<double> collective_timeout() {
  const char* text = std::getenv("TRIREME_TIMEOUT");
  double seconds = text ? std::atof(text) : 0;
  return std::chrono::duration<double>(seconds > 0 ? seconds : 300);
}

}  // namespace trireme
