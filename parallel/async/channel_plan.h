// Channels of a plan: asynchronous messages between ranks, as of parameter servers (Li et al., OSDI 2014). They are
// send and recv actions with Peer::channel:
// - send: to peer.channel of rank peer.root. Without a root, in a phase that messages start: to the senders of these
//   messages, or of messages on channel peer.senders_of. The message's clock is the sender's step.
// - recv with peer.root: waits for a message of this rank on the channel, and stores its payload.
// - recv without a root, in a phase that messages on the channel start: sets the payload to the sum of theirs in sender
//   order, times the argument `scale` if there is one (loss: the mean). If workers train separately, each gradient is a
//   mean over the worker's rows; a scale of 1 / workers then gives the mean over all workers.
// The payload is weights, gradients, a number, or a state. channels.h sends and receives a rank's messages.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/action_kind.h"

namespace trireme {

/// Whether the action sends a message to a channel.
inline bool sends_to_channel(const Action& a) { return is_channel(a) && a.kind == ActionKind::send; }
/// Whether the action waits for a message on a channel from the rank peer.root.
inline bool waits_on_channel(const Action& a) {
  return is_channel(a) && a.kind == ActionKind::recv && a.peer.root >= 0;
}
/// Whether the action receives the sum of the messages that have started its phase.
inline bool sums_messages(const Action& a) { return is_channel(a) && a.kind == ActionKind::recv && a.peer.root < 0; }
/// Whether the action waits for weights on a channel.
inline bool receives_weights(const Action& a) { return waits_on_channel(a) && a.payload == OperandKind::weights; }
/// Whether the payload of a message is one number.
inline bool is_number(const Action& a) {
  return a.payload == OperandKind::loss || a.payload == OperandKind::clock || a.payload == OperandKind::ticket;
}
/// Whether the action sends the loss. A rank does so also in steps that end without its update.
inline bool reports_loss(const Action& a) { return sends_to_channel(a) && a.payload == OperandKind::loss; }
/// For a worker in a plan with tickets: whether the action runs in a step with a ticket, or, if closing, in the final
/// step without one. In that step the worker reports its loss and gets the weights after the last update.
inline bool runs_with_ticket(const Action& a, bool closing) {
  return closing ? reports_loss(a) || receives_weights(a) : !reports_loss(a);
}

/// The names of all channels that the plan's programs send to, in alphabetical order: a channel's number is its index.
std::vector<std::string> channels_of(const Plan&);
/// The coordinate that the rank at `coordinate` sends to, or receives from.
inline int root_of(const Peer& peer, int coordinate) {
  return peer.per_root > 0 && peer.root >= 0 ? peer.root + coordinate / peer.per_root : peer.root;
}
/// The coordinates of the ranks that send to the channel of the rank at `root`, ascending.
std::vector<int> senders_to(const Plan&, const std::string& channel, int root);
/// The coordinates of the ranks to which the rank at `coordinate` sends. started: the coordinates of the ranks whose
/// messages have started the phase.
std::vector<int> receivers_of(const Plan&, const Peer&, int coordinate, const std::vector<int>& started);
/// The mesh axis of messages to the channel; empty: no rank sends to it.
std::string axis_of(const Plan&, const std::string& channel);

/// Number of messages that a phase takes in a step in which `senders` ranks send one message each to its channel.
int messages_in_step(const Program&, const Trigger&, int senders);
/// Number of updates of a program in one step of the ranks that send to it; 1 unless messages start updates.
int updates_in_step(const Plan&, const Program&);

/// Whether messages start the phases of the ranks at this coordinate. Messages to such ranks have a MessageHeader.
bool serves_at(const Plan&, const std::string& axis, int coordinate);

/// Whether some ranks of the plan exchange asynchronous messages only: servers and their workers, asynchronous gossip.
bool meets_by_messages(const Plan&);
/// Whether the results of ranks depend on the order in which messages arrive.
bool depends_on_arrivals(const Plan&);

/// Whether the program hands out tickets, that is, sends them in answer to messages.
bool hands_out_tickets(const Program&);

}  // namespace trireme
