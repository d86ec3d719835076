// The state of virtual time between two operations: saved and restored.
#include <fmt/format.h>

#include "parallel/comm/transport/virtual_time.h"

namespace trireme {
namespace {
constexpr std::uint64_t all_ranks = ~std::uint64_t{0};  // the communicator of save and restore
}

VirtualTime::Op VirtualTime::meeting(int rank, const std::function<void(VirtualOp&)>& then, const VirtualState& state) {
  {
    const Lock lock = enter();
    for (const auto& [key, box] : mailboxes_)
      for (const auto& [from, queue] : box.from)
        check(box.owner != rank || queue.receives.empty(), "virtual time",
              "rank {} has receives under way (from rank {}) while states are saved or restored", rank, from);
    at(rank).given = state;
  }
  auto op = std::make_shared<VirtualOp>();
  op->ranks = all_, op->then = then, op->states.resize(ranks_.size());
  op = collective(rank, all_ranks, at(rank).meetings++, op, {0, 0, rank});
  if (const double most = collective_timeout().count(); !wait(rank, op, most))
    throw Error(late_text(fmt::format("save or restore: rank {} has", rank), most), std::source_location::current());
  return op;
}

VirtualState VirtualTime::save(int rank) {
  const auto take = [this](VirtualOp& op) {
    for (int r = 0; r < std::ssize(ranks_); ++r) {
      VirtualState& state = op.states[static_cast<std::size_t>(r)];
      state.clock = at(r).clock, state.link = at(r).link;
    }
    for (const auto& [key, box] : mailboxes_) {
      const auto [communicator, own, tag] = key;
      VirtualState& state = op.states[static_cast<std::size_t>(box.owner)];
      if (box.next) state.turns.push_back({communicator, own, tag, box.next});
      for (const auto& [from, queue] : box.from)
        for (const Op& m : queue.messages) state.messages.push_back({communicator, own, from, tag, m->end, m->payload});
    }
    op.end = 0;  // no clock goes on
  };
  return meeting(rank, take, {})->states[static_cast<std::size_t>(rank)];
}

void VirtualTime::restore(int rank, const VirtualState& state) {
  const auto put = [this](VirtualOp& op) {
    mailboxes_.clear();
    for (int r = 0; r < std::ssize(ranks_); ++r) {
      const VirtualState s = std::move(at(r).given);
      at(r).clock = s.clock, at(r).link = s.link;
      for (const auto& t : s.turns) mailbox(t.communicator, t.receiver, t.tag, r).next = t.sender;
      for (const auto& m : s.messages) {
        const Op message = std::make_shared<VirtualOp>();
        message->resolved = true, message->end = m.arrival, message->payload = m.payload;
        mailbox(m.communicator, m.receiver, m.tag, r).from[m.sender].messages.push_back(message);
      }
    }
    op.end = 0;  // the clocks stay what they have become
  };
  meeting(rank, put, state);
}

}  // namespace trireme
