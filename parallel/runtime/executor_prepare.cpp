// Properties of a program's actions that the executor finds before the first step: communicators, shards, buckets, and
// the first and last of some kinds.
#include <algorithm>

#include "kernels/core/named_range.h"
#include "parallel/async/channel_plan.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/gather_layout.h"
#include "parallel/plan/shards.h"
#include "parallel/plan/ties.h"
#include "parallel/runtime/executor.h"

namespace trireme {

void Executor::prepare(Mesh& mesh) {
  std::vector<Slice> slices;
  std::vector<ActionId> ids;  // of the actions after the slices
  Slot* last_forward = nullptr;
  for (std::size_t id = 0; id < slots_.size(); ++id) {
    const Action& a = program_.actions[id];
    Slot& s = slots_[id];
    check(
        a.microbatch.index < plan_.microbatches, "executor",
        "action {} ({}): the plan has {} micro-batches, from 0; use one of them", id, [&] { return to_string(a); },
        plan_.microbatches);
    if (a.kind == ActionKind::forward) last_forward = &s;
    if (a.kind == ActionKind::loss) facts_.loss_end = static_cast<ActionId>(id) + 1;
    if (a.kind == ActionKind::agree && a.payload == OperandKind::loss) facts_.sums_loss = true;
    check(!is_message(a) || a.part >= 0, "executor",
          "action {} ({}) names no part: set Action::part to the part before the cut", id,
          [&] { return to_string(a); });
    if (plan_.size(program_, a.peer) > 1 && !is_channel(a))
      s.comm = a.kind == ActionKind::agree ? &ranks_.agreement(a.peer.axis, mesh) : &ranks_.group(a.peer, mesh);
    if (is_replica_sum(a)) s.share = mesh.index(a.shard_axis);
    s.shard = s.comm ? shard_of(a, s.comm->rank(), s.comm->size()) : a.slice;
    check(a.kind->start != nullptr, "executor",
          "action {} ({}): the row of its kind has no start function; set ActionRow::start", id,
          [&] { return to_string(a); });
    facts_.leaves_messages = facts_.leaves_messages || (a.kind->flush && s.comm);
    if (!a.on_ready || !is_reduction(a) || !s.comm) continue;
    s.bucket = static_cast<int>(slices.size());
    slices.push_back(a.slice);
    ids.push_back(static_cast<ActionId>(id));
  }
  if (last_forward) last_forward->last_forward = true;
  if (slices.empty()) return;
  buckets_ = std::make_unique<Buckets>(
      optimizer_.parameters(), std::move(slices),
      [this, ids](std::size_t i, const Tensor& gradients) {
        if (recorder_) recorder_->begin(ids[i]);
        time_.start(ids[i]);
        return start_reduction(ids[i], gradients);
      },
      backwards_by_entry());
}

/// Number of segments whose parts use a tensor; each adds a share of its gradient.
std::vector<int> Executor::backwards_by_entry() const {
  std::vector<int> all;
  for (const Parameters::Entry& e : optimizer_.parameters().entries()) {
    int count = 0;
    for (const Segment& s : tapes_.live().segments) {
      bool used = false;
      for (int p = s.first; p < s.end; ++p) used = used || uses(plan_.parts[static_cast<std::size_t>(p)], e.slice);
      count += used;
    }
    all.push_back(std::max(count, 1));
  }
  return all;
}

/// Finds the backwards that complete a part's gradients: those of the last micro-batch.
void Executor::prepare_backward() {
  Slot* last = nullptr;
  std::vector<std::pair<int, MicroBatch>> done;  // (part, micro) of completing backwards, from the end of the list
  for (std::size_t id = slots_.size(); id-- > 0;) {
    const Action& a = program_.actions[id];
    if (!is_backward(a)) continue;
    const bool whole = completes(a);
    auto at = std::find_if(done.begin(), done.end(), [&](auto& d) { return d.first == a.part; });
    if (whole && at == done.end()) at = done.insert(done.end(), {a.part, a.microbatch});
    check(at != done.end(), "executor", "action {} ({}) has no backward_weight after it: add one for the same part", id,
          [&] { return to_string(a); });
    slots_[id].completes = at->second == a.microbatch;
    if (!last) last = &slots_[id];
  }
  check(last != nullptr || program_.serves(), "executor",
        "a program of the plan has no backward, so it would train nothing: add one");
  if (last) last->last_backward = true;
}

void Executor::prepare_updates() {
  Slot* last = nullptr;
  own_.copies = copies_in(plan_, static_cast<std::size_t>(&program_ - plan_.programs.data()));
  for (std::size_t id = 0; id < slots_.size(); ++id) {
    const Action& a = program_.actions[id];
    const bool updates = a.kind == ActionKind::update, brought_in = a.microbatch.steps_ago == 0;
    slots_[id].decides =
        (updates || a.payload == OperandKind::ratios) && brought_in && std::ranges::none_of(slots_, &Slot::decides);
    if (!updates) continue;
    slots_[id].first_update = last == nullptr;
    last = &slots_[id];
    if (!overlaps(own_.copies, program_.actions[id].slice)) own_.shards.push_back(last->shard);
    if (last->shard.size() > 0) own_.updated.push_back(last->shard);
  }
  if (last) last->last_update = true;
  facts_.updates = last != nullptr;
  optimizer_.set_updates_per_step(updates_in_step(plan_, program_));
  for (std::size_t id = 0; id < slots_.size() && !facts_.updates; ++id) {
    const Action& a = program_.actions[id];
    slots_[id].first_send = a.kind == ActionKind::send && a.payload == OperandKind::gradients;
    if (slots_[id].first_send) break;
  }
  own_.updated = detail::joined(std::move(own_.updated));
}

/// Passes must read weights that are gathered in bf16 or f16 as the dry run has seen. The dry run has no loss, and a
/// layer may take another path in it.
void Executor::prepare_reads() {
  std::map<Index, DType> types;  // by first element of a weight that arrives rounded
  for (ActionId id = 0; id < actions(); ++id) {
    const Action& a = action(id);
    if (!slot(id).comm || !GatherLayout(plan_, a, slot(id).comm->size()).is_packed()) continue;
    for (const PartInfo& part : plan_.parts)
      for (const auto& [begin, type] : part.read_as)
        if (a.slice.overlaps({begin, begin + 1})) types[begin] = type;
  }
  if (types.empty()) return;
  reads_.emplace(optimizer_.parameters(), [types = std::move(types)](const Parameters::Entry& e, DType as) {
    const auto at = types.find(e.slice.begin);
    check(
        at == types.end() || at->second == as, "step",
        "'{}' is read in {}{}, but zero(3) gathers it in {}, because the passes of a dry run read it in no other type: "
        "convert it where it is read, weight.to(x.dtype()); or leave out PartProfile::example, to gather f32",
        e.name, as, [&] { return NamedRange::place(); }, at == types.end() ? as : at->second);
  });
}

}  // namespace trireme
