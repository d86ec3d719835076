#include "parallel/plan/shards.h"

#include "framework/autograd/node.h"
#include "kernels/core/runtime.h"
#include "parallel/plan/action_kind.h"

namespace trireme {
Slice shard_of(const Slice& slice, int rank, int ranks) {
  const Index each = slice.size() / ranks, begin = slice.begin + rank * each;
  return {begin, rank == ranks - 1 ? slice.end : begin + each};
}

Slice shard_of(const Action& a, int rank, int ranks) {
  if (a.peer.root < 0) return shard_of(a.slice, rank, ranks);
  return rank == a.peer.root ? a.slice : Slice{a.slice.end, a.slice.end};
}

std::string shard_axis(const Program& program) {
  std::string most;
  for (const Action& a : program.actions)
    if (a.kind == ActionKind::update && (most.empty() || names_in(a.peer.axis).size() > names_in(most).size()))
      most = a.peer.axis;
  return most;
}

bool keeps_shards(const Program& program) {
  for (const Action& a : program.actions) {
    if (a.kind == ActionKind::all_gather && a.payload == OperandKind::weights) return true;
    if (a.kind == ActionKind::update) return false;
  }
  return false;
}

namespace {

void release_pages(const FlatBuffer& flat, const Slice& slice, const Slice& but) {
  for (const Slice& others : {Slice{slice.begin, but.begin}, Slice{but.end, slice.end}})
    for (const Slice& s : flat.cut(others)) {
      const View v = flat.rows(s.begin, s.end).view();
      runtime(v.device.kind).discard(v.data, static_cast<std::size_t>(v.bytes()), v.device);
    }
}

}  // namespace

void restore_pages(const FlatBuffer& flat, const Slice& slice) {
  for (const Slice& s : flat.cut(slice)) {
    const View v = flat.rows(s.begin, s.end).view();
    runtime(v.device.kind).restore(v.data, static_cast<std::size_t>(v.bytes()), v.device);
  }
}

void zero_pages(const FlatBuffer& flat, const Slice& slice) {
  for (const Slice& s : flat.cut(slice)) {
    const View v = flat.rows(s.begin, s.end).view();
    runtime(v.device.kind).zero(v.data, static_cast<std::size_t>(v.bytes()), v.device);
  }
}

std::size_t resident_bytes(const FlatBuffer& flat, const Slice& slice) {
  std::size_t bytes = 0;
  for (const Slice& s : flat.cut(slice)) {
    const View v = flat.rows(s.begin, s.end).view();
    bytes += runtime(v.device.kind).resident(v.data, static_cast<std::size_t>(v.bytes()), v.device);
  }
  return bytes;
}

void release_gradients(Parameters& parameters, const Slice& slice, const Slice& but) {
  release_pages(parameters.grads(), slice, but);
  const auto& entries = parameters.entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Slice room{entries[i].slice.begin, i + 1 < entries.size() ? entries[i + 1].slice.begin : parameters.size()};
    for (const Slice& others : {Slice{slice.begin, but.begin}, Slice{but.end, slice.end}})
      if (others.size() > 0 && others.overlaps(room)) detail::set_grad_given_back(entries[i].tensor);
  }
}

void release_values(Parameters& parameters, const Slice& slice, const Slice& but) {
  release_pages(parameters.values(), slice, but);
  for (const Slice& others : {Slice{slice.begin, but.begin}, Slice{but.end, slice.end}})
    if (others.size() > 0) parameters.mark_released(others, true);
}

// One collective for the equal shares. A second one for the remainder of fewer elements than ranks: every rank gets all
// of it.

Work reduce_shards(Communicator& comm, const Tensor& x) {
  const Index n = x.numel(), each = n / comm.size(), even = each * comm.size();
  Work shares, rest;
  if (each > 0)
    shares = comm.reduce_scatter(x.view_rows(comm.rank() * each, (comm.rank() + 1) * each), x.view_rows(0, even));
  if (even < n) rest = comm.all_reduce(x.view_rows(even, n));
  return when_all({std::move(shares), std::move(rest)});
}

Work sum_shards(Communicator& replicas, const Tensor& x, int share, int shares) {
  const Index n = x.numel(), each = n / shares, even = each * shares;
  Work mine, rest;
  if (each > 0) mine = replicas.all_reduce(x.view_rows(share * each, (share + 1) * each));
  if (even < n) rest = replicas.all_reduce(x.view_rows(even, n));
  return when_all({std::move(mine), std::move(rest)});
}

Work all_gather_updated(const Action& a, Communicator& comm, const Tensor& x) {
  if (a.peer.root >= 0) return comm.broadcast(x, a.peer.root);
  const Index n = x.numel(), each = n / comm.size(), even = each * comm.size();
  Work shares, rest;
  if (each > 0)
    shares = comm.all_gather(x.view_rows(0, even), x.view_rows(comm.rank() * each, (comm.rank() + 1) * each));
  if (even < n) rest = comm.broadcast(x.view_rows(even, n), comm.size() - 1);
  return when_all({std::move(shares), std::move(rest)});
}

}  // namespace trireme
