// MessageCheck: runs a plan's messages and collectives on a few mesh coordinates, with actions that take no time, and
// reports what would deadlock or would not match.
#include <algorithm>
#include <map>
#include <tuple>

#include "parallel/plan/check/diagnostics.h"

namespace trireme {
namespace {

constexpr int most_data_ranks = 8;

/// Ranks at (program, index on the data axis). Programs are the coordinates of every other axis.
class MessageCheck {
 public:
  MessageCheck(const Plan& plan, const std::string& data_axis, int data_ranks, Diagnostics& faults)
      : plan_(plan), data_axis_(data_axis), faults_(faults) {
    bool across = false;  // messages along the data axis; otherwise its coordinates are all alike
    for (auto& program : plan.programs)
      for (auto& a : program.actions) across = across || (is_message(a) && a.peer.axis == data_axis);
    width_ = across ? std::min(data_ranks, most_data_ranks) : 1;
    for (auto& program : plan.programs) waits_.push_back(dependencies(program));
    for (int r = 0; r < programs(); ++r)
      for (int d = 0; d < width_; ++d) ranks_.push_back({r, d, std::vector<State>(plan.programs[r].actions.size())});
  }

  void run() {
    const std::size_t before = faults_.size();
    pair_messages();
    group_collectives();
    if (faults_.size() > before) return;  // what follows would be a deadlock for a reason already given
    while (advance()) {}
    report_stuck();
  }

 private:
  struct State {
    bool started = false, finished = false;
    std::vector<std::pair<int, ActionId>> partners;  // that must have started too: (rank, action)
  };
  struct Rank {
    int program, data;
    std::vector<State> states;
  };
  using Key = std::tuple<int, int, Index, Index>;  // part, micro, slice
  Key key(const Action& a) const { return {a.part, a.microbatch.index, a.slice.begin, a.slice.end}; }
  int programs() const { return static_cast<int>(plan_.programs.size()); }
  int count(int rank) const { return static_cast<int>(ranks_[rank].states.size()); }
  const Action& action(int rank, ActionId id) const { return plan_.programs[ranks_[rank].program].actions[id]; }
  std::string place(int rank, ActionId id) const { return trireme::place(plan_.programs[ranks_[rank].program], id); }

  /// Whether the rank runs the part forward: then what it sends over the cut behind it is the activation.
  bool runs(int rank, int part) const {
    auto& list = plan_.programs[ranks_[rank].program].actions;
    return std::any_of(list.begin(), list.end(),
                       [&](auto& a) { return a.kind == ActionKind::forward && a.part == part; });
  }
  /// The rank at the other end, or -1 where there is none. The data axis is a ring.
  int peer(int rank, const Peer& p) const {
    const int program = ranks_[rank].program, data = ranks_[rank].data;
    if (p.axis == data_axis_) return program * width_ + ((data + p.offset) % width_ + width_) % width_;
    int other = program + p.offset;
    return other < 0 || other >= programs() ? -1 : other * width_ + data;
  }

  // Sends and receives of a channel are paired by what they carry; that they come in one order is a demand of
  // its own.
  void pair_messages() {
    struct Channel {
      std::vector<ActionId> sends, recvs;
    };
    std::map<std::pair<int, int>, Channel> channels;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
      for (ActionId id = 0; id < count(rank); ++id) {
        const Action& a = action(rank, id);
        if (!is_message(a)) continue;
        int other = peer(rank, a.peer);
        if (other < 0)
          faults_.add("{}: there is no program there", place(rank, id));
        else if (a.kind == ActionKind::send)
          channels[{rank, other}].sends.push_back(id);
        else
          channels[{other, rank}].recvs.push_back(id);
      }
    for (auto& [ends, channel] : channels) pair_channel(ends.first, ends.second, channel.sends, channel.recvs);
  }

  void pair_channel(int from, int to, const std::vector<ActionId>& sends, std::vector<ActionId> recvs) {
    std::vector<ActionId> order;
    std::map<ActionId, int> later;  // steps from the send to the receive
    for (ActionId s : sends) {
      auto match = std::find_if(recvs.begin(), recvs.end(),
                                [&](ActionId r) { return key(action(to, r)) == key(action(from, s)); });
      if (match == recvs.end()) {
        faults_.add("{}: nobody receives it", place(from, s));
        continue;
      }
      order.push_back(*match);
      const int steps = later[*match] = action(to, *match).microbatch.steps_ago - action(from, s).microbatch.steps_ago;
      if (steps < 0)
        faults_.add("{} is in a step before that of {}, which sends it", place(to, *match), place(from, s));
      if (steps == 0) {  // else it has come before the step begins
        ranks_[from].states[s].partners = {{to, *match}};
        ranks_[to].states[*match].partners = {{from, s}};
      }
      recvs.erase(match);
    }
    for (ActionId r : recvs) faults_.add("{}: nobody sends it", place(to, r));
    // Activations and gradients have tags of their own, so the two kinds may pass each other.
    for (bool forward : {true, false}) {
      std::vector<ActionId> kind;
      for (ActionId r : order)
        if (runs(from, action(to, r).part) == forward) kind.push_back(r);
      auto crossed = std::adjacent_find(kind.begin(), kind.end(), [&](ActionId a, ActionId b) {
        return std::pair(later[a], a) > std::pair(later[b], b);
      });
      if (crossed != kind.end())
        faults_.add("messages cross: {} comes before {}, but they are sent in the other order", place(to, crossed[1]),
                    place(to, crossed[0]));
    }
  }

  // The k-th collective along an axis must be the same for all who share it: for programs, along the axis that they lie
  // on. Along the others all ranks run one list.
  void group_collectives() {
    for (int d = 0; d < width_; ++d) {
      using Group = std::pair<std::string, std::vector<int>>;       // axis, and those who take part
      std::map<Group, std::map<int, std::vector<ActionId>>> lists;  // by rank
      for (int r = 0; r < programs(); ++r)
        for (ActionId id = 0; id < count(r * width_ + d); ++id) {
          const Action& a = action(r * width_ + d, id);
          const auto axes = names_in(a.peer.axis);
          if (is_collective(a) && std::find(axes.begin(), axes.end(), plan_.stage_axis) != axes.end())
            lists[{a.peer.axis, a.peer.members}][r * width_ + d].push_back(id);
        }
      for (auto& [group, by_rank] : lists) {
        for (int r = 0; r < programs(); ++r)
          if (group.second.empty() || std::ranges::find(group.second, r) != group.second.end())
            (void)by_rank[r * width_ + d];
        group_axis(group.first, by_rank);
      }
    }
  }

  void group_axis(const std::string& axis, std::map<int, std::vector<ActionId>>& by_rank) {
    const auto& [one, first] = *by_rank.begin();
    const Program& its = plan_.programs[ranks_[one].program];
    for (const auto& [rank, list] : by_rank) {
      const Program& other = plan_.programs[ranks_[rank].program];
      if (list.size() != first.size()) {
        faults_.add("program {} makes {} collectives along '{}', program {} makes {}", its.name, first.size(), axis,
                    other.name, list.size());
        return;
      }
      for (std::size_t k = 0; k < list.size(); ++k) {
        const Action &a = action(one, first[k]), &b = action(rank, list[k]);
        if (a.kind != b.kind || a.slice != b.slice || a.payload != b.payload || its.trigger(a) != other.trigger(b))
          faults_.add("collective {} along '{}' differs: {}, but {}", k, axis, place(one, first[k]),
                      place(rank, list[k]));
      }
    }
    for (auto& [rank, list] : by_rank)
      for (std::size_t k = 0; k < list.size(); ++k)
        for (auto& [other, its] : by_rank)
          if (other != rank) ranks_[rank].states[list[k]].partners.push_back({other, its[k]});
  }

  bool may_start(int rank, ActionId id) const {
    auto& states = ranks_[rank].states;
    return std::ranges::all_of(waits_[ranks_[rank].program][id], [&](const Dependency& d) {
      return d.share > 0 ? states[d.on].finished : states[d.on].started;
    });
  }

  bool advance() {
    bool moved = false;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
      for (ActionId id = 0; id < count(rank); ++id) {
        State& s = ranks_[rank].states[id];
        if (!s.started && may_start(rank, id)) s.started = moved = true;
        bool met = std::all_of(s.partners.begin(), s.partners.end(),
                               [&](auto& p) { return ranks_[p.first].states[p.second].started; });
        if (s.started && !s.finished && met) s.finished = moved = true;
      }
    return moved;
  }

  void report_stuck() {
    std::string waiting;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
      for (ActionId id = 0; id < count(rank); ++id)
        if (auto& s = ranks_[rank].states[id]; s.started && !s.finished)
          waiting += (waiting.empty() ? "" : "; ") + place(rank, id);
    if (!waiting.empty()) faults_.add("deadlock: these wait for partners that never start: {}", waiting);
  }

  const Plan& plan_;
  std::string data_axis_;
  Diagnostics& faults_;
  int width_ = 1;
  std::vector<std::vector<std::vector<Dependency>>> waits_;  // by program and action
  std::vector<Rank> ranks_;                                  // program-major
};

}  // namespace

void check_messages(const Plan& plan, const std::string& data_axis, int data_ranks, Diagnostics& faults) {
  MessageCheck(plan, data_axis, data_ranks, faults).run();
}

}  // namespace trireme
