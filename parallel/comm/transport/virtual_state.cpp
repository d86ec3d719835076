// The state of virtual time between two operations. Each rank saves or restores its part while all ranks are here.
#include <fmt/format.h>

#include "parallel/comm/transport/virtual_time.h"

namespace trireme {

/// Returns when all ranks have arrived. All operations that they had started are then resolved.
void VirtualTime::meet(Rank& r) {
  constexpr std::uint64_t communicator = ~std::uint64_t{0};  // a reserved number
  for (const Lock lock = enter(); const auto& [key, box] : mailboxes_)
    for (const auto& [from, queue] : box.from)
      check(box.owner != r.number || queue.receives.empty(), "virtual time",
            "rank {} has receives under way (from rank {}) while states are saved or restored", r.number, from);
  const Op op = collective(r, communicator, 0, std::make_shared<Operation>(Operation{.ranks = all_, .timeless = true}));
  if (const double most = collective_timeout().count(); !wait(r, op, most))
    throw Error(late_text(fmt::format("save or restore: rank {} has", r.number), most), std::source_location::current(),
                ErrorKind::communicator);
}

VirtualState VirtualTime::save(Rank& r) {
  meet(r);
  VirtualState state{r.clock, r.link, {}, {}};
  for (const auto& [key, box] : mailboxes_) {  // no rank sends meanwhile
    if (box.owner != r.number) continue;
    const auto [communicator, own, tag] = key;
    if (box.next) state.turns.push_back({communicator, own, tag, box.next});
    for (const auto& [from, queue] : box.from)
      for (const Op& m : queue.messages) state.messages.push_back({communicator, own, from, tag, m->end, m->payload});
  }
  meet(r);
  return state;
}

void VirtualTime::restore(Rank& r, const VirtualState& state) {
  meet(r);
  {
    const Lock lock = enter();
    std::erase_if(mailboxes_, [&](const auto& box) { return box.second.owner == r.number; });
    r.clock = state.clock;
    r.link = state.link;
    for (const auto& t : state.turns) mailbox(t.communicator, t.receiver, t.tag, r.number).next = t.sender;
    for (const auto& m : state.messages)
      mailbox(m.communicator, m.receiver, m.tag, r.number)
          .from[m.sender]
          .messages.push_back(
              std::make_shared<Operation>(Operation{.resolved = true, .end = m.arrival, .payload = m.payload}));
  }
  meet(r);
}

}  // namespace trireme
