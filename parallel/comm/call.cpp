#include "parallel/comm/call.h"

#include <algorithm>
#include <numeric>

#include "kernels/core/environment.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/fnv.h"

namespace trireme {
namespace {

thread_local double timeout_scale = 1;

void check_defined(std::string_view name, const Tensor& x) {
  check(x.defined(), name, "got an undefined tensor, expected one with memory");
}

void check_counts(std::string_view name, std::span<const Index> counts, const Tensor& mine, int rank, int size) {
  check(std::ssize(counts) == size, name, "got {} counts for {} ranks", counts.size(), size);
  for (int r = 0; r < size; ++r) check(counts[r] >= 0, name, "the count of rank {} is {}", r, counts[r]);
  check(counts[rank] == mine.numel(), name, "this rank's block has {} elements, its count is {}", mine.numel(),
        counts[rank]);
}

}  // namespace

std::string_view name_of(CallKind kind) {
  constexpr std::string_view names[] = {"all_reduce", "reduce",     "reduce_scatter", "all_gather", "gather", "scatter",
                                        "broadcast",  "all_to_all", "barrier",        "split",      "send",   "recv"};
  return names[static_cast<std::size_t>(kind)];
}

std::string to_string(const Call& c) {
  if (c.kind == CallKind::barrier || c.kind == CallKind::split) return std::string(name_of(c.kind));
  auto text = fmt::format("{}{} of {} {}", name_of(c.kind), c.counts_digest ? "v" : "", c.count, name_of(c.type));
  if (c.counts_digest) text += fmt::format(" (counts {:04x})", c.counts_digest & 0xffff);
  if (c.kind <= CallKind::reduce_scatter) {
    constexpr std::string_view ops[] = {"sum", "max", "min"};
    text += fmt::format(" ({})", c.average ? "average" : ops[static_cast<std::size_t>(c.op)]);
  }
  const bool to = c.kind == CallKind::reduce || c.kind == CallKind::gather || c.kind == CallKind::send;
  if (to || c.kind == CallKind::broadcast || c.kind == CallKind::scatter || c.kind == CallKind::recv)
    text += fmt::format(" {} rank {}", to ? "to" : "from", c.root);
  return text;
}

Call collective_call(CallKind kind, const Tensor& out, const Tensor& in, std::span<const Index> counts, int root,
                     ReduceOp op, int rank, int size) {
  const auto name = name_of(kind);
  check(root >= 0 && root < size, name, "root is rank {}, there are {} ranks", root, size);
  // Each rank has `mine`; `other` is one block, or the same number of elements.
  const bool to_owner = kind == CallKind::reduce_scatter || kind == CallKind::scatter;
  const bool blocks = to_owner || kind == CallKind::all_gather || kind == CallKind::gather;
  const Tensor &mine = to_owner ? out : in, &other = to_owner ? in : out;
  check_defined(name, mine);
  Call call{kind, mine.numel() * (blocks ? size : 1), mine.dtype(), op, root};
  if (!counts.empty()) {
    check_counts(name, counts, mine, rank, size);
    call.count = std::accumulate(counts.begin(), counts.end(), Index{0});
    Fnv digest;
    for (const Index count : counts) digest.add(count);
    call.counts_digest = std::max<std::uint64_t>(digest.value(), 1);
  }
  const bool rooted = kind == CallKind::reduce || kind == CallKind::gather || kind == CallKind::scatter;
  if (!rooted || rank == root) {
    check_defined(name, other);
    check(in.dtype() == out.dtype(), name, "in and out must have one type, got {} and {}", in.dtype(), out.dtype());
    check(blocks || in.numel() == out.numel(), name, "in has {} elements, out {}", in.numel(), out.numel());
    check(other.numel() == call.count, name, "got {} elements on one side and {} on the other, expected {}",
          other.numel(), mine.numel(), [&] {
            return counts.empty() ? fmt::format("{} times as many", size)
                                  : fmt::format("{}, the sum of the counts", call.count);
          });
  }
  check(kind != CallKind::all_to_all || call.count % size == 0, name, "{} elements do not divide into {} equal blocks",
        call.count, size);
  call.average = op == ReduceOp::average;
  check(!call.average || is_float(call.type), name, "there is no average of {}: sum, and divide", call.type);
  if (call.average) call.op = ReduceOp::sum;
  return call;
}

Call message_call(CallKind kind, const Tensor& x, int peer, int tag, int size) {
  check_defined(name_of(kind), x);
  check(peer >= 0 && peer < size, name_of(kind), "peer is rank {}, there are {} ranks", peer, size);
  check(tag >= 0 && tag < message_tags, name_of(kind), "tag is {}, expected one in [0, {})", tag, message_tags);
  return {kind, x.numel(), x.dtype(), ReduceOp::sum, peer, tag};
}

std::vector<Index> block_offsets(const Call& call, std::span<const Index> counts, int size) {
  const bool blocks =
      call.kind == CallKind::split ||
      (call.kind >= CallKind::reduce_scatter && call.kind <= CallKind::all_to_all && call.kind != CallKind::broadcast);
  if (!blocks) return {0, call.count};
  std::vector<Index> offsets(static_cast<std::size_t>(size) + 1);
  for (int r = 0; r < size; ++r) offsets[r + 1] = offsets[r] + (counts.empty() ? call.count / size : counts[r]);
  return offsets;
}

std::vector<std::int64_t> gather_numbers(Communicator& comm, std::span<const std::int64_t> mine, CallKind kind) {
  const auto n = static_cast<Index>(mine.size());
  const Tensor all = Tensor::empty({n * comm.size()}, DType::i64), own = Tensor::empty({n}, DType::i64);
  std::copy(mine.begin(), mine.end(), own.data<std::int64_t>());
  const Call call{kind, all.numel(), DType::i64};
  (kind == CallKind::all_gather ? comm.all_gather(all, own) : comm.start(call, all, own, {})).wait();
  const auto values = all.view().span<std::int64_t>();
  return {values.begin(), values.end()};
}

std::vector<int> split_members(Communicator& comm, int color, int key) {
  const std::array<std::int64_t, 2> mine{color, key};
  const auto all = gather_numbers(comm, mine, CallKind::split);
  std::vector<int> members;
  for (int r = 0; r < comm.size(); ++r)
    if (all[2 * r] == color) members.push_back(r);
  std::ranges::stable_sort(members, {}, [&](int r) { return all[2 * r + 1]; });
  return members;
}

std::string differing_text(const Call& first, int rank, const Call& other) {
  return fmt::format("{}: rank 0 called {}, rank {} called {}: every rank must make the same calls in the same order",
                     name_of(first.kind), to_string(first), rank, to_string(other));
}

std::chrono::duration<double> unscaled_timeout() {
  return std::chrono::duration<double>(environment_number("TRIREME_TIMEOUT").value_or(300));
}

std::chrono::duration<double> collective_timeout() { return timeout_scale * unscaled_timeout(); }

void scale_timeouts(double factor) { timeout_scale = std::max(1.0, factor); }
double scale_of_timeouts() { return timeout_scale; }

std::string late_text(std::string_view who, double seconds, std::string_view missing) {
  const std::string others = FlightRecorder::others();
  return fmt::format("{} waited {} s{}: another rank hangs or took another path{}{}", who, seconds, missing,
                     others.empty() ? "" : fmt::format(" ({})", others),
                     seconds == collective_timeout().count() ? ". TRIREME_TIMEOUT sets the patience in seconds" : "");
}

}  // namespace trireme
