#include "parallel/model/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "framework/tensor/memory_tracker.h"
#include "parallel/async/channel_plan.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/plan/gather_layout.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/shards.h"

namespace trireme {
namespace {

/// Number of messages that may wait for an action that takes some: one from each rank that sends there.
Index messages_of(const Plan& plan, const Program& program, const Action& a) {
  const Trigger& t = program.trigger(a);
  return std::max<Index>(t.count, std::ssize(senders_to(plan, t.channel, plan.range(program, a.peer.axis).begin)));
}

/// How many numbers of an action's slice other ranks update, for the rank that needs most memory.
Index others_of(const Plan& plan, const Action& a) {
  const int ranks = plan.size(a.peer.axis);
  return a.slice.size() - shard_of(a, a.peer.root >= 0 ? a.peer.root : ranks - 1, ranks).size();
}

/// Memory of a reduction's codec. kept: allocated from step to step, for copies of the states (EncodedReduction::undo)
/// and for the encoded vectors. working: allocated during encoding and decoding.
struct CodecMemory {
  Index kept = 0, working = 0;
};
CodecMemory codec_memory(const Plan& plan, const Action& a, int ranks, Index element) {
  CodecMemory m;
  const auto from = static_cast<std::int64_t>(find_argument(a, "from").value_or(0));
  for (const std::string& state : codec_states(a)) m.kept += state.empty() ? 0 : a.slice.size() * element;
  const Index wire = a.codec->wire ? static_cast<Index>(size_of(*a.codec->wire)) : element;
  const Index each = a.slice.size() / ranks, rest = a.slice.size() % ranks;
  const bool scatters = a.kind == ActionKind::reduce_scatter;
  if (scatters) m.kept += (a.slice.size() + ranks * (each + rest)) * wire;
  for (int round = 0; round < a.codec->rounds && !scatters; ++round) {
    CodecContext now(plan, a, element, from);
    now.ranks = ranks;
    now.round = round;
    m.kept += a.codec->length(now) * wire * (a.codec->is_summable ? 1 : 1 + ranks);
  }
  if (a.codec->working) m.working = a.codec->working(CodecContext(plan, a, element, from));
  if (scatters) m.working = std::max(m.working, std::max(each, rest) * element);
  return m;
}

/// Adds up the tensors that are in memory at each action of a program.
class MemoryWalk {
 public:
  /// Counts one kind of memory: tensors that parts keep (saved) and that their passes allocate (kind, of
  /// PartCost::Bytes). cuts: also counts tensors that cross cuts.
  MemoryWalk(const Plan& plan, const Program& program, const Liveness& live, Index element, Index PartCost::*saved,
             MemoryKind kind, bool cuts)
      : plan_(plan),
        program_(program),
        live_(live),
        element_(element),
        saved_(saved),
        kind_(static_cast<std::size_t>(kind)),
        cuts_(cuts) {}
  Index most();

 private:
  using Place = std::pair<int, MicroBatch>;  // segment or part, and micro-batch
  const PartCost& cost(int part) const { return plan_.parts[static_cast<std::size_t>(part)].cost; }
  Index saved(int part) const {
    const bool on_device = saved_ == &PartCost::saved;
    return saved_ ? cost(part).*saved_ - (on_device ? cost(part).offloaded : 0) : 0;
  }
  Index output(int part) const { return cuts_ && part + 1 < std::ssize(plan_.parts) ? cost(part).output : 0; }
  const Segment& segment(int s) const { return live_.segments[static_cast<std::size_t>(s)]; }
  /// Bytes kept from forward to backward, with the input of the segment if a message brought it.
  Index kept(const Segment& s) const {
    Index all = cuts_ && s.end < std::ssize(plan_.parts) ? cost(s.end - 1).unsaved : 0;
    for (int p = s.first; p < s.end; ++p) all += saved(p);
    return all + arrived(s);
  }
  Index arrived(const Segment& s) const {
    return s.first > 0 && live_.segment_of(s.first - 1) < 0 ? output(s.first - 1) : 0;
  }
  Index deferred(const Segment& s) const {
    Index all = 0;
    for (int p = s.first; p < s.end; ++p) all += cost(p).deferred_bytes[kind_];
    return all;
  }
  Index most_of(const Segment&, const Action&) const;
  void see(Index working) { most_ = std::max(most_, held_ + working); }
  void set(Index& of, Index bytes) { held_ += bytes - std::exchange(of, bytes); }
  void pass(const Action&);
  void message(const Action&);

  const Plan& plan_;
  const Program& program_;
  const Liveness& live_;
  Index element_;
  Index PartCost::*saved_;
  std::size_t kind_;
  bool cuts_;
  Index held_ = 0, most_ = 0;
  std::map<Place, Index> alive_;                    // by segment
  std::vector<Place> sent_;                         // from gradients_: in transit, at most until the next message
  std::map<Place, Index> activations_, gradients_;  // that have arrived over the cut after a part, or wait to be sent
};

/// The most bytes during a pass of a segment, in addition to alive_.
Index MemoryWalk::most_of(const Segment& s, const Action& a) const {
  Index before = 0, behind = deferred(s), most = 0;
  for (int p = s.first; p < s.end; ++p) {
    const PartCost& c = cost(p);
    behind -= c.deferred_bytes[kind_];
    if (a.kind == ActionKind::forward)
      most = std::max({most, before + c.forward_bytes[kind_], before + saved(p)});
    else if (a.kind == ActionKind::backward)
      most = std::max({most, before + c.backward_bytes[kind_], before + saved(p)});
    else if (a.kind == ActionKind::backward_input)
      most = std::max({most, before + behind + c.backward_input_bytes[kind_], before + saved(p)});
    else
      most = std::max(most, before + c.backward_weight_bytes[kind_]);
    before += a.kind == ActionKind::backward_weight ? c.deferred_bytes[kind_] : saved(p);
  }
  const Index leaf = a.kind == ActionKind::backward_weight ? 0 : arrived(s);
  return most + leaf;
}

void MemoryWalk::pass(const Action& a) {
  const int number = live_.segment_of(a.part);
  const Segment& s = segment(number);
  const bool forward = a.kind == ActionKind::forward;
  Index& own = alive_[{number, a.microbatch}];
  if (forward) set(activations_[{s.first - 1, a.microbatch}], 0);
  set(own, 0);
  see(most_of(s, a));
  if (forward) return set(own, kept(s));
  if (a.kind == ActionKind::backward_weight) return;
  if (a.kind == ActionKind::backward_input) set(own, deferred(s));
  if (s.first > 0) set(gradients_[{s.first - 1, a.microbatch}], output(s.first - 1));
  see(0);
  set(gradients_[{s.end - 1, a.microbatch}], 0);
}

void MemoryWalk::message(const Action& a) {
  const bool forward = a.payload == OperandKind::activation;
  if (a.kind == ActionKind::recv)
    set((forward ? activations_ : gradients_)[{a.part, a.microbatch}], output(a.part));
  else
    for (const Place& sent :
         std::exchange(sent_, forward ? std::vector<Place>{} : std::vector<Place>{{a.part, a.microbatch}}))
      set(gradients_[sent], 0);
  see(0);
}

Index MemoryWalk::most() {
  for (const Liveness::Range& r : live_.ranges)
    if (r.microbatch.steps_ago > 0) set(alive_[{r.segment, r.microbatch}], kept(segment(r.segment)));
  ActionId last = -1;
  for (ActionId id = 0; id < std::ssize(program_.actions); ++id)
    if (program_.actions[static_cast<std::size_t>(id)].kind == ActionKind::forward) last = id;
  Index statistics = 0;  // of batch norms, until all micro-batches have theirs: two f64 numbers each
  for (const PartInfo& part : plan_.parts)
    if (cuts_ && plan_.microbatches > 1 && live_.segment_of(static_cast<int>(&part - plan_.parts.data())) >= 0)
      statistics += part.buffers.size() * static_cast<Index>(sizeof(double));
  held_ += statistics;
  std::map<std::pair<int, ActionKind>, Index> own;  // by phase: for kinds that callers define, one after another
  for (ActionId id = 0; id < std::ssize(program_.actions); ++id) {
    const Action& a = program_.actions[static_cast<std::size_t>(id)];
    if (is_pass(a) && a.kind != ActionKind::loss && live_.starts_segment(a)) pass(a);
    if (is_message(a)) message(a);
    if (id == last) held_ -= std::exchange(statistics, 0);
    const int ranks = plan_.size(program_, a.peer);
    if (cuts_ && a.kind->memory && (ranks > 1 || a.peer.axis.empty()))
      see(own[{a.phase, a.kind}] += a.kind->memory(a, ranks, element_));
    if (cuts_ && sums_messages(a) && find_argument(a, "scale")) see(a.slice.size() * element_);
  }
  see(0);
  return most_;
}

/// The most bytes of gathers in flight that send words (GatherLayout), from their start until an action waits for them.
Index gathers_of(const Plan& plan, const Program& program) {
  std::map<ActionId, Index> flying;
  Index now = 0, most = 0;
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    const Action& a = program.actions[static_cast<std::size_t>(id)];
    for (const ActionId before : a.after)
      if (const auto done = flying.extract(before)) now -= done.mapped();
    const int ranks = plan.size(program, a.peer);
    if (a.kind != ActionKind::all_gather || ranks == 1) continue;
    if (const GatherLayout layout(plan, a, ranks); layout.is_packed()) now += flying[id] = layout.bytes();
    most = std::max(most, now);
  }
  return most;
}

Index packed_of(const Plan& plan, const Program& program, const Liveness& live, Index element) {
  Index encoded = gathers_of(plan, program),
        most = MemoryWalk(plan, program, live, element, nullptr, MemoryKind::packed, false).most();
  for (const Action& a : program.actions)
    if (const int ranks = plan.size(program, a.peer); a.codec && is_reduction(a) && ranks > 1) {
      const CodecMemory m = codec_memory(plan, a, ranks, element);
      encoded += m.kept;
      most = std::max(most, m.working);
    }
  for (const Action& a : program.actions)
    if (averages_statistics(a)) most = std::max(most, a.slice.size() * element);
  Index taken = 0;
  std::map<int, Index> sent;  // copies by phase, as the next message may change the originals
  for (const Action& a : program.actions) {
    if (sums_messages(a)) taken += a.slice.size() * messages_of(plan, program, a) * element;
    if (sends_to_channel(a) && program.serves()) most = std::max(most, sent[a.phase] += a.slice.size() * element);
  }
  return encoded + most + taken;
}

/// Bytes of the whole pages in a slice of a flat block that begins at a page.
Index pages_in(const Slice& s, const MemoryOptions& o) {
  const Index begin = (s.begin * o.element + o.page - 1) / o.page, end = s.end * o.element / o.page;
  return std::max<Index>(0, end - begin) * o.page;
}

/// Bytes that a drop returns to the system, on the rank that keeps the most.
Index given_back(const Plan& plan, const Action& a, const MemoryOptions& o) {
  const int ranks = plan.size(a.peer.axis);
  const auto by = [&](int rank) {
    const Slice own = shard_of(a, rank, ranks);
    return pages_in({a.slice.begin, own.begin}, o) + pages_in({own.end, a.slice.end}, o);
  };
  return a.peer.root >= 0 ? by(a.peer.root) : std::min({by(0), by(std::min(1, ranks - 1)), by(ranks - 1)});
}

/// Bytes of the flat block of the newest weights, or of gradients, on a rank. whole: numbers that the program updates.
Index block_of(const Plan& plan, std::size_t program, Index whole, const MemoryOptions& o) {
  if (!plan.has_stages()) return std::max(whole, plan.parameters) * o.element;  // a server writes to its whole block
  Index bytes = plan.parameters * o.element, end = 0;
  auto own = plan.updated(program);
  own.push_back({plan.parameters, plan.parameters});
  for (const Slice& s : own) {
    bytes -= pages_in({end, s.begin}, o);
    end = s.end;
  }
  return bytes;
}

/// Bytes of the pages of a flat block that writing the slices touches, with the block's last page if it is not full:
/// the runtime writes zeros there.
Index touched_pages(const std::vector<Slice>& slices, Index whole, const MemoryOptions& o) {
  const Index end = whole * o.element;
  Index bytes = 0, next = 0;  // bytes of pages before `next`
  auto all = detail::joined(slices);
  all.push_back({end / o.page * o.page / o.element, whole});
  for (const Slice& s : all) {
    const Index from = std::max(next, s.begin * o.element / o.page * o.page);
    next = std::max(next, std::min(end, (s.end * o.element + o.page - 1) / o.page * o.page));
    bytes += std::max<Index>(0, next - from);
  }
  return bytes;
}

/// The most of `block` bytes of gradients held at a time, if other ranks' shards are dropped after their reduction.
Index gradients_of(const Plan& plan, const Program& program, const Liveness& live, Index block,
                   const MemoryOptions& o) {
  std::map<Index, std::pair<Slice, Index>> dropped;  // by the start of the slice: bytes of other ranks' shards
  std::map<Index, Index> held;                       // of these bytes, the ones that backward has written
  Index more = 0, most = 0;
  for (const Action& a : program.actions)
    if (drops(a, OperandKind::gradients)) dropped[a.slice.begin] = {a.slice, given_back(plan, a, o)};
  if (dropped.empty()) return block;
  for (const auto& [begin, drop] : dropped) block -= drop.second;
  const auto write = [&](const Slice& written) {
    for (const auto& [begin, drop] : dropped)
      if (drop.first.overlaps(written) && held.emplace(begin, drop.second).second) more += drop.second;
  };
  for (const Action& a : program.actions) {
    if (completes(a)) {
      const Segment& segment = live.segment_with(a.part);
      write({plan.parts[static_cast<std::size_t>(segment.first)].slice.begin,
             plan.parts[static_cast<std::size_t>(segment.end - 1)].slice.end});
    }
    if (is_reduction(a)) write(a.slice);
    most = std::max(most, more);
    if (drops(a, OperandKind::gradients))
      if (const auto gone = held.extract(a.slice.begin)) more -= gone.mapped();
  }
  return block + most;
}

/// Bytes of weights.
struct HeldWeights {
  Index between = 0,  // steps
      gathered = 0;   // at a time, of other ranks' shards
};
/// Of `block` bytes of weights, if other ranks' shards are gathered before they are read.
HeldWeights weights_of(const Plan& plan, const Program& program, Index block, const MemoryOptions& o) {
  std::map<Index, Index> dropped;  // bytes of other ranks' shards, by the start of the slice
  for (const Action& a : program.actions)
    if (drops(a, OperandKind::weights)) dropped[a.slice.begin] = given_back(plan, a, o);
  HeldWeights held{.between = block};
  for (const auto& [begin, bytes] : dropped) held.between -= bytes;
  Index gathered = 0;
  for (const Action& a : program.actions) {
    const auto at = dropped.find(a.slice.begin);
    if (at == dropped.end()) continue;
    if (a.kind == ActionKind::all_gather) gathered += at->second;
    if (drops(a, OperandKind::weights)) gathered -= at->second;
    held.gathered = std::max(held.gathered, gathered);
  }
  return held;
}

/// How many numbers a program updates, or receives.
Index updated_by(const Program& program) {
  Index whole = 0;
  for (const Action& a : program.actions)
    if (a.kind == ActionKind::update || receives_weights(a)) whole += a.slice.size();
  return whole;
}
/// How many of them the rank with the most updates.
Index updated_by_rank(const Plan& plan, const Program& program) {
  Index own = 0;
  for (const Action& a : program.actions)
    if (a.kind == ActionKind::update) own += a.slice.size() - others_of(plan, a);
  return own;
}

}  // namespace

std::vector<RankMemory> predict_memory(const Plan& plan, const MemoryOptions& options) {
  std::vector<RankMemory> all;
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    const Program& program = plan.programs[r];
    const Liveness live(program);
    const Index whole = updated_by(program), own = updated_by_rank(plan, program);
    const Index block = block_of(plan, r, whole, options);
    RankMemory m;
    const HeldWeights held = weights_of(plan, program, block, options);
    m.weights = held.between + held.gathered + (whole * (program.versions - 1) + plan.buffers) * options.element;
    // A server gets gradients for the weights that it updates.
    m.gradients = program.serves() ? touched_pages(plan.updated(r), plan.parameters, options)
                                   : gradients_of(plan, program, live, block, options);
    for (const State& state : plan.state)
      m.optimizer += std::max(whole, plan.parameters) *
                     (state.dtype ? static_cast<Index>(size_of(*state.dtype)) : options.element);
    m.optimizer += own * options.states * options.element;
    m.activations =
        MemoryWalk(plan, program, live, options.element, &PartCost::saved, MemoryKind::activations, true).most();
    m.halos = MemoryWalk(plan, program, live, options.element, &PartCost::halo, MemoryKind::halos, false).most();
    m.packed = packed_of(plan, program, live, options.element);
    m.offloaded =
        MemoryWalk(plan, program, live, options.element, &PartCost::offloaded, MemoryKind::offloaded, false).most();
    all.push_back(m);
  }
  return all;
}

std::vector<PhaseMemory> predict_phases(const Plan& plan, const MemoryOptions& options) {
  std::vector<PhaseMemory> all;
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    const Program& program = plan.programs[r];
    const HeldWeights held = weights_of(plan, program, block_of(plan, r, updated_by(program), options), options);
    const Index between = held.between + plan.buffers * options.element;
    all.push_back({.construction = between,
                   .evaluation = between + held.gathered,
                   .checkpoint = between + updated_by_rank(plan, program) * options.states * options.element});
  }
  return all;
}

std::string phases_table(const Plan& plan, const std::vector<PhaseMemory>& phases) {
  std::string text =
      fmt::format("{:<20} {:>12} {:>12} {:>12}\n", "MB outside of steps", "construction", "evaluation", "checkpoint");
  const auto mb = [](Index bytes) { return static_cast<double>(bytes) / 1e6; };
  for (std::size_t r = 0; r < phases.size(); ++r)
    text += fmt::format("{:<20} {:>12.2f} {:>12.2f} {:>12.2f}\n", plan.programs[r].name, mb(phases[r].construction),
                        mb(phases[r].evaluation), mb(phases[r].checkpoint));
  return text;
}

std::string memory_table(const Plan& plan, const std::vector<RankMemory>& predicted,
                         const std::vector<RankMemory>& measured, const std::vector<int>& programs) {
  bool offloads = false;
  for (const auto* all : {&predicted, &measured})
    for (const RankMemory& m : *all) offloads = offloads || m.offloaded > 0;
  std::string text = fmt::format("{:<20} {:>10} {:>10} {:>10} {:>11} {:>10} {:>10} {:>10}{}{}\n", "MB per rank",
                                 "weights", "gradients", "optimizer", "activations", "halos", "packed", "total",
                                 offloads ? "    on host" : "", measured.empty() ? "" : "  predicted");
  const auto line = [&](const std::string& name, const RankMemory& m, const std::string& error) {
    auto mb = [](Index bytes) { return static_cast<double>(bytes) / 1e6; };
    text += fmt::format("{:<20} {:>10.2f} {:>10.2f} {:>10.2f} {:>11.2f} {:>10.2f} {:>10.2f} {:>10.2f}{}{}\n", name,
                        mb(m.weights), mb(m.gradients), mb(m.optimizer), mb(m.activations), mb(m.halos), mb(m.packed),
                        mb(m.total()), offloads ? fmt::format(" {:>10.2f}", mb(m.offloaded)) : "", error);
  };
  const auto error = [](const RankMemory& says, const RankMemory& is) {
    return fmt::format(" {:>+9.1f} %", 100 * (static_cast<double>(says.total()) / static_cast<double>(is.total()) - 1));
  };
  for (std::size_t r = 0; r < predicted.size(); ++r) {
    line(plan.programs[r].name + (measured.empty() ? "" : ", predicted"), predicted[r], "");
    for (std::size_t rank = 0; rank < measured.size(); ++rank)
      if (programs[rank] == static_cast<int>(r))
        line(fmt::format("  rank {}, measured", rank), measured[rank], error(predicted[r], measured[rank]));
  }
  return text;
}

}  // namespace trireme
