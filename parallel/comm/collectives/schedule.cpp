// Common parts of algorithms: derived schedules, the engine that runs rounds, and cost().
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/reduce.h"

namespace trireme::collectives {

Blocks even_blocks(Index elements, int ranks) {
  Blocks b;
  for (Index i = 0; i <= ranks; ++i) b.push_back(elements * i / ranks);
  return b;
}

Rounds reversed(const Rounds& rounds) {
  Rounds back;
  for (auto r = rounds.rbegin(); r != rounds.rend(); ++r) back.push_back({r->from, r->in, r->to, r->out, false});
  return back;
}

void append(Rounds& to, const Rounds& group, const std::function<int(int)>& real, Index offset) {
  const auto moved = [&](const Slice& s) { return Slice{s.begin + offset, s.end + offset}; };
  for (const Round& r : group) {
    to.push_back({r.to, moved(r.out), r.from, moved(r.in), r.reduce});
    if (r.to >= 0) to.back().to = real(r.to);
    if (r.from >= 0) to.back().from = real(r.from);
  }
}

Rounds there_and_back(Rounds rounds) {
  const Rounds back = reversed(rounds);
  rounds.insert(rounds.end(), back.begin(), back.end());
  return rounds;
}

Rounds folded(int rank, const Blocks& blocks, int count, bool all, const Generator& of) {
  const int extra = ranks(blocks) - count;
  const auto real = [extra](int i) { return std::min(2 * i, i + extra); };
  const Slice whole{0, blocks.back()}, result = all ? whole : block(blocks, std::min(rank | 1, ranks(blocks) - 1));
  Blocks among = even_blocks(whole.end, count);
  for (int i = 0; !all && i < count; ++i) among[static_cast<std::size_t>(i)] = block(blocks, real(i)).begin;
  const bool paired = rank < 2 * extra;
  if (paired && rank % 2 == 1) return {{.to = rank - 1, .out = whole}, {.from = rank - 1, .in = result}};
  Rounds rounds;
  if (paired) rounds.push_back({.from = rank + 1, .in = whole, .reduce = true});
  append(rounds, of(paired ? rank / 2 : rank - extra, among), real);
  if (paired) rounds.push_back({.to = rank + 1, .out = result});
  return rounds;
}

bool is_scheduled(CallKind kind) { return kind <= CallKind::all_gather || kind == CallKind::broadcast; }

Rounds schedule(const Algorithm& a, CallKind kind, int rank, const Blocks& blocks, int root) {
  const int p = ranks(blocks), relative = (rank - root + p) % p;
  const Blocks even = even_blocks(blocks.back(), p);
  Rounds rounds;
  switch (kind) {
    case CallKind::all_gather: return reversed(schedule(a, CallKind::reduce_scatter, rank, blocks));
    case CallKind::broadcast: return reversed(schedule(a, CallKind::reduce, rank, blocks, root));
    case CallKind::all_reduce:
      if (a.all_reduce) return a.all_reduce(rank, even);
      return there_and_back((a.reduce_scatter ? a.reduce_scatter : a.reduce)(rank, even));
    case CallKind::reduce_scatter:
      if (a.reduce_scatter) return a.reduce_scatter(rank, blocks);
      rounds = a.reduce(rank, even);
      append(rounds, reversed(to_root(rank, blocks, false)), std::identity());
      return rounds;
    case CallKind::reduce: {
      Rounds to_zero = (a.reduce ? a.reduce : a.reduce_scatter)(relative, even);
      if (!a.reduce) append(to_zero, to_root(relative, even, false), std::identity());
      append(rounds, to_zero, [=](int i) { return (i + root) % p; });
      return rounds;
    }
    default: fail("schedule", "there are no rounds for {}", name_of(kind));
  }
}

Index run(Communicator& link, const Rounds& rounds, const Tensor& x, ReduceOp op) {
  Index largest = 0, sent = 0;
  for (const Round& r : rounds)
    if (r.reduce) largest = std::max(largest, r.in.size());
  const Tensor scratch = Tensor::empty({largest}, x.dtype());
  for (const Round& r : rounds) {
    const Tensor own = x.view_rows(r.in.begin, r.in.end), in = r.reduce ? scratch.view_rows(0, r.in.size()) : own;
    Work incoming = in.numel() > 0 ? link.recv(in, r.from) : Work{};
    if (r.out.size() > 0) link.send(x.view_rows(r.out.begin, r.out.end), r.to).wait();
    incoming.wait();
    if (r.reduce) reduce_into(own.view().data, in.view().data, in.numel(), x.dtype(), op);
    sent += r.out.size() * size_of(x.dtype());
  }
  return sent;
}

double cost(const Algorithm& a, CallKind kind, int ranks, Index bytes, const LinkCost& link) {
  double seconds = 0;
  for (const Round& r : schedule(a, kind, 0, even_blocks(bytes, ranks)))
    if (const Index most = std::max(r.in.size(), r.out.size()); most > 0)
      seconds += link.latency + static_cast<double>(most) * link.per_byte +
                 static_cast<double>(r.reduce ? r.in.size() : 0) * link.per_reduced_byte;
  return seconds;
}

}  // namespace trireme::collectives
