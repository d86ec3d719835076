// Channels of a plan: which ranks exchange messages at their own pace, over which axis (parameter servers: Li et al.,
// OSDI 2014). parallel/async/ has the messages of a rank.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// The names of all channels that the plan's programs push to, in alphabetical order: a channel's number is its index.
std::vector<std::string> channels_of(const Plan&);
/// The coordinate that the rank at `coordinate` pushes to, or pulls from.
inline int root_of(const Peer& peer, int coordinate) {
  return peer.per_root > 0 && peer.root >= 0 ? peer.root + coordinate / peer.per_root : peer.root;
}
/// The coordinates of the ranks that push to the channel of the rank at `root`, ascending.
std::vector<int> senders_to(const Plan&, const std::string& channel, int root);
/// The mesh axis of messages to the channel; empty: no rank pushes to it.
std::string axis_of(const Plan&, const std::string& channel);

/// Number of messages that a phase takes in a step in which `senders` ranks push one message each to its channel.
int messages_in_step(const Program&, const Trigger&, int senders);
/// Number of updates of a program in one step of the ranks that push to it; 1 unless messages start updates.
int updates_in_step(const Plan&, const Program&);

/// Whether messages start the phases of the ranks at this coordinate. Messages to such ranks have a MessageHeader.
bool serves_at(const Plan&, const std::string& axis, int coordinate);

/// Whether ranks at their own pace meet only by messages: servers and their workers, asynchronous gossip.
bool meets_by_messages(const Plan&);
/// Whether the results of ranks depend on the order in which messages arrive.
bool depends_on_arrivals(const Plan&);

/// Whether the program hands out tickets, that is, pushes them in answer to messages.
bool hands_out_tickets(const Program&);

}  // namespace trireme
