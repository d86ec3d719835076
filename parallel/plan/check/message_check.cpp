// MessageCheck: plays the messages and collectives of a plan's programs on one rank each, in the order of an
// Interpreter with actions that take no time, and reports what would deadlock or would not match.
#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/interpreter.h"

namespace trireme {
namespace {

/// One rank for each program.
class MessageCheck {
 public:
  MessageCheck(const Plan& plan, Diagnostics& faults) : plan_(plan), faults_(faults) {
    for (const Program& program : plan.programs) ranks_.push_back({std::vector<State>(program.actions.size())});
  }

  void run() {
    const std::size_t before = faults_.size();
    pair_messages();
    group_collectives();
    if (faults_.size() > before) return;  // what follows would be a deadlock for a reason already given
    play();
    report_stuck();
  }

 private:
  struct State {
    bool started = false;
    std::vector<std::pair<int, ActionId>> partners;  // that must have started too: (rank, action)
  };
  struct Rank {
    std::vector<State> states;
    bool ended = false;
  };
  /// The functions that an Interpreter calls for a rank.
  struct Player {
    MessageCheck& check;
    const int rank;
    bool moved = false;
    int actions() const { return check.count(rank); }
    std::span<const ActionId> after(ActionId id) const { return check.action(rank, id).after; }
    bool is_inline(ActionId id) const { return check.action(rank, id).stream == Stream::compute; }
    static bool runs(ActionId) { return true; }
    bool start(ActionId id) { return check.ranks_[rank].states[id].started = moved = true; }
    bool wait(ActionId id) const { return check.has_ended(rank, id); }
    static bool serves() { return false; }  // play_channels() plays phases that messages start
    static int next_phase() { return -1; }
    static bool ends(int) { return true; }
  };
  using Key = std::tuple<OperandKind, int, int>;  // part, micro
  static Key key(const Action& a) { return {a.payload, a.part, a.microbatch.index}; }
  int ranks() const { return static_cast<int>(ranks_.size()); }
  int count(int rank) const { return static_cast<int>(ranks_[rank].states.size()); }
  const Action& action(int rank, ActionId id) const { return plan_.programs[rank].actions[id]; }
  std::string place(int rank, ActionId id) const { return trireme::place(plan_.programs[rank], id); }

  // Sends and receives between two ranks are paired by payload, part and micro-batch. That both ranks use the same
  // order is checked separately.
  void pair_messages() {
    struct Channel {
      std::vector<ActionId> sends, recvs;
    };
    std::map<std::pair<int, int>, Channel> channels;
    for (int rank = 0; rank < ranks(); ++rank)
      for (ActionId id = 0; id < count(rank); ++id) {
        const Action& a = action(rank, id);
        if (!is_message(a)) continue;
        const int other = rank + a.peer.offset;
        if (other < 0 || other >= ranks())
          faults_.add("{}: there is no program there, only programs 0 to {}", place(rank, id), ranks() - 1);
        else if (a.kind == ActionKind::send)
          channels[{rank, other}].sends.push_back(id);
        else
          channels[{other, rank}].recvs.push_back(id);
      }
    for (auto& [ends, channel] : channels) pair_channel(ends.first, ends.second, channel.sends, channel.recvs);
  }

  void pair_channel(int from, int to, const std::vector<ActionId>& sends, const std::vector<ActionId>& recvs) {
    std::vector<ActionId> order;
    std::map<ActionId, int> later;  // steps from the send to the receive
    std::map<Key, std::deque<ActionId>> open;
    for (const ActionId r : recvs) open[key(action(to, r))].push_back(r);
    for (ActionId s : sends) {
      auto& matches = open[key(action(from, s))];
      if (matches.empty()) {
        faults_.add("{}: nobody receives it; add a recv to program {}", place(from, s), plan_.programs[to].name);
        continue;
      }
      const ActionId match = matches.front();
      matches.pop_front();
      order.push_back(match);
      const int steps = later[match] = action(to, match).microbatch.steps_ago - action(from, s).microbatch.steps_ago;
      if (steps < 0) faults_.add("{} is in a step before that of {}, which sends it", place(to, match), place(from, s));
      if (steps == 0) {  // else it has come before the step begins
        ranks_[from].states[s].partners = {{to, match}};
        ranks_[to].states[match].partners = {{from, s}};
      }
    }
    for (const ActionId r : recvs)
      if (!later.contains(r))
        faults_.add("{}: nobody sends it; add a send to program {}", place(to, r), plan_.programs[from].name);
    // Activations and gradients have different tags, so a message of one kind may overtake one of the other.
    for (const OperandKind payload : {OperandKind::activation, OperandKind::cotangent}) {
      std::vector<ActionId> kind;
      for (ActionId r : order)
        if (action(to, r).payload == payload) kind.push_back(r);
      auto crossed = std::adjacent_find(kind.begin(), kind.end(), [&](ActionId a, ActionId b) {
        return std::pair(later[a], a) > std::pair(later[b], b);
      });
      if (crossed != kind.end())
        faults_.add("messages cross: {} comes before {}, but they are sent in the other order", place(to, crossed[1]),
                    place(to, crossed[0]));
    }
  }

  // The k-th collective along an axis must be the same on all of its ranks. Ranks with different programs are compared
  // along the axis of the programs; along other axes all ranks run the same program.
  void group_collectives() {
    using Group = std::pair<std::string, std::vector<int>>;       // axis, and the ranks that take part
    std::map<Group, std::map<int, std::vector<ActionId>>> lists;  // by rank
    for (int rank = 0; rank < ranks(); ++rank)
      for (ActionId id = 0; id < count(rank); ++id) {
        const Action& a = action(rank, id);
        if (!is_collective(a)) continue;
        const auto axes = names_in(a.peer.axis);
        if (std::find(axes.begin(), axes.end(), plan_.stage_axis) != axes.end())
          lists[{a.peer.axis, a.peer.members}][rank].push_back(id);
      }
    for (auto& [group, by_rank] : lists) {
      for (int rank = 0; rank < ranks(); ++rank)
        if (group.second.empty() || std::ranges::find(group.second, rank) != group.second.end()) (void)by_rank[rank];
      group_axis(group.first, by_rank);
    }
  }

  void group_axis(const std::string& axis, std::map<int, std::vector<ActionId>>& by_rank) {
    const auto& [one, first] = *by_rank.begin();
    const Program& its = plan_.programs[one];
    for (const auto& [rank, list] : by_rank) {
      const Program& other = plan_.programs[rank];
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

  /// Whether all ranks that take part in a started action have started it.
  bool has_ended(int rank, ActionId id) const {
    const State& s = ranks_[rank].states[id];
    return !s.started || std::ranges::all_of(s.partners, [&](const auto& partner) {
      return ranks_[partner.first].states[partner.second].started;
    });
  }

  void play() {
    std::vector<Interpreter<Player>> interpreters(ranks_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
        if (ranks_[rank].ended) continue;
        Player player{*this, rank};
        ranks_[rank].ended = interpreters[rank].run(player);
        moved = moved || player.moved;
      }
    }
  }

  void report_stuck() {
    std::string waiting;
    for (int rank = 0; rank < ranks(); ++rank)
      for (ActionId id = 0; id < count(rank); ++id)
        if (!has_ended(rank, id)) waiting += (waiting.empty() ? "" : "; ") + place(rank, id);
    if (!waiting.empty()) faults_.add("deadlock: these wait for partners that never start: {}", waiting);
  }

  const Plan& plan_;
  Diagnostics& faults_;
  std::vector<Rank> ranks_;
};

}  // namespace

void check_messages(const Plan& plan, Diagnostics& faults) { MessageCheck(plan, faults).run(); }

}  // namespace trireme
