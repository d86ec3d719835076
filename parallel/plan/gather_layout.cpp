#include "parallel/plan/gather_layout.h"

#include <algorithm>
#include <map>

#include "framework/tensor/launch.h"
#include "framework/tensor/memory_tracker.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/core/runtime.h"
#include "parallel/plan/codec.h"

namespace trireme {
namespace {

constexpr Index alignment = 32;  // words: blocks begin at multiples of 64 bytes

}  // namespace

GatherLayout::GatherLayout(const Plan& plan, const Action& a, int ranks)
    : slice_(a.slice), ranks_(ranks), each_(a.slice.size() / ranks) {
  if (!find_argument(a, as_read) || each_ == 0) return;
  std::map<Index, std::optional<DType>> types;  // by first element, up to the next one: padding has its tensor's type
  for (const PartInfo& part : plan.parts) {
    if (!part.slice.overlaps(slice_)) continue;
    for (const auto& [begin, shape] : part.tensors) {
      const auto at = part.read_as.find(begin);
      types[begin] = at != part.read_as.end() ? std::optional(at->second) : std::nullopt;
    }
  }
  const Slice even{slice_.begin, slice_.begin + ranks * each_};
  Run now{{even.begin, even.begin}, {}};
  const auto close = [&](Index end) {
    now.slice.end = end;
    if (now.slice.size() > 0) runs_.push_back(now);
    now.slice.begin = end;
  };
  for (const auto& [begin, as] : types) {
    if (begin >= even.end) break;
    if (begin > even.begin && as != now.as) close(begin);
    now.as = as;
  }
  close(even.end);
  for (int rank = 0; rank < ranks; ++rank) words_ = std::max(words_, words_of(rank));
  words_ = (words_ + alignment - 1) / alignment * alignment;
  if (words_ >= 2 * each_) words_ = 0;
}

Index GatherLayout::words_of(int rank) const {
  const Slice own = shard(rank);
  Index words = 0;
  for (const Run& run : runs_)
    words +=
        std::max<Index>(0, std::min(run.slice.end, own.end) - std::max(run.slice.begin, own.begin)) * (run.as ? 1 : 2);
  return words;
}

std::vector<PlannedCall> GatherLayout::calls() const {
  std::vector<PlannedCall> all{{CallKind::all_gather, ranks_ * words_ * 2}};
  if (const Index rest = slice_.size() - ranks_ * each_; rest > 0)
    all.push_back({CallKind::broadcast, rest * size_of(DType::f32)});
  return all;
}

template <class F>
void GatherLayout::each_piece(int rank, const Tensor& wire, const F& f) const {
  const Slice own = shard(rank);
  View to = wire.view();
  auto* word = static_cast<std::byte*>(to.data);
  for (const bool converted : {false, true})
    for (const Run& run : runs_) {
      const Slice piece{std::max(run.slice.begin, own.begin), std::min(run.slice.end, own.end)};
      if (piece.size() <= 0 || run.as.has_value() != converted) continue;
      to.data = word;
      to.shape = {piece.size()};
      to.dtype = run.as.value_or(DType::f32);
      f(piece, to);
      word += to.bytes();
    }
}

Work GatherLayout::start(Communicator& comm, const FlatBuffer& values, Tensor& wire) const {
  const MemoryScope packed(MemoryKind::packed);
  const Device device = values.device_of(slice_.begin);
  const Tensor mine = Tensor::zeros({words_}, DType::bf16, device);
  each_piece(comm.rank(), mine, [&](const Slice& piece, const View& to) {
    const View from = values.rows(piece.begin, piece.end).view();
    if (to.dtype == from.dtype)
      copy_block(to, from);
    else
      launch<kernel::Cast>(to, from);
  });
  wire = Tensor::empty({ranks_, words_}, DType::bf16, device);
  Work blocks = comm.all_gather(wire, mine), rest;
  if (const Index begin = slice_.begin + ranks_ * each_; begin < slice_.end)
    rest = comm.broadcast(values.rows(begin, slice_.end), ranks_ - 1);
  return when_all({std::move(blocks), std::move(rest)});
}

void GatherLayout::unpack(const Communicator& comm, const FlatBuffer& values, const Tensor& wire) const {
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != comm.rank())
      each_piece(rank, wire.view_rows(rank, rank + 1), [&](const Slice& piece, const View& from) {
        const View to = values.rows(piece.begin, piece.end).view();
        if (to.dtype == from.dtype)
          copy_block(to, from);
        else
          launch<kernel::Cast>(to, from);
      });
}

}  // namespace trireme
