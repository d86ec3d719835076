// Channels of a plan: which ranks exchange messages at their own pace, over which axis (parameter servers: Li et al.,
// OSDI 2014). parallel/async/ has the messages of a rank.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// The names of all channels that the plan's programs push to, in alphabetical order: a channel's number is its index.
std::vector<std::string> channels_of(const Plan&);
/// The coordinate of who a rank at this one pushes to, or pulls from.
inline int root_of(const Peer& peer, int coordinate) {
  return peer.per_root > 0 && peer.root >= 0 ? peer.root + coordinate / peer.per_root : peer.root;
}
/// The coordinates along an axis of the ranks that push to the channel of the one at `root`, in order.
std::vector<int> senders_to(const Plan&, const std::string& channel, int root);
/// The mesh axis along which messages to the channel go; empty: nobody pushes there.
std::string axis_of(const Plan&, const std::string& channel);

/// Of the messages that `senders` ranks push to the channel of a phase in a step, one each: how many the phase takes.
int messages_in_step(const Program&, const Trigger&, int senders);
/// How often a program updates in a step of those that push to it: once, or so often as their messages start that.
int updates_in_step(const Plan&, const Program&);

/// Whether messages start what the ranks at this coordinate do: messages to them have a head (MessageHeader).
bool serves_at(const Plan&, const std::string& axis, int coordinate);

/// Whether ranks meet by messages alone, each at its own pace: servers and their workers, asynchronous gossip.
bool meets_by_messages(const Plan&);
/// Whether what ranks compute depends on the order in which messages come to them.
bool depends_on_arrivals(const Plan&);

/// Whether the program hands out tickets: pushes them in answer to messages.
bool hands_out_tickets(const Program&);

}  // namespace trireme
