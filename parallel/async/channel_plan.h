// Channels of a plan: asynchronous messages between ranks, as of parameter servers (Li et al., OSDI 2014). Declares the
// kinds of actions that send and receive them, and functions for the senders and receivers. channels.h sends and
// receives a rank's messages.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// The kinds of actions for asynchronous messages; their rows are in channel_actions.cpp.
struct ChannelKind {
  /// Sends the payload (weights, gradients, loss, a state) to peer.channel of rank peer.root. In a phase that messages
  /// start, sends to the senders of these messages, or of messages on channel peer.senders_of. The message's clock is
  /// the sender's step.
  static const ActionKind push;
  static const ActionKind pull;  ///< waits for such a message from peer.root and stores its payload
  /// In a phase that messages start: sets the payload to the sum of theirs in sender order, times the argument `scale`
  /// if there is one (loss: the mean). If workers train separately, each gradient is a mean over the worker's rows; a
  /// scale of 1 / workers then gives the mean over all workers.
  static const ActionKind take;
};
/// Whether the action sends to or receives from a channel.
inline bool is_channel(const Action& a) {
  return a.kind == ChannelKind::push || a.kind == ChannelKind::pull || a.kind == ChannelKind::take;
}
/// Whether the payload of a push, pull or take is one number.
inline bool is_number(const Action& a) {
  return a.payload == OperandKind::loss || a.payload == OperandKind::clock || a.payload == OperandKind::ticket;
}
/// Whether the action pushes the loss. A rank does so also in steps that end without its update.
inline bool reports_loss(const Action& a) { return a.kind == ChannelKind::push && a.payload == OperandKind::loss; }
/// For a worker in a plan with tickets: whether the action runs in a step with a ticket, or, if closing, in the final
/// step without one. In that step the worker reports its loss and gets the weights after the last update.
inline bool runs_with_ticket(const Action& a, bool closing) {
  const bool pulls_weights = a.kind == ChannelKind::pull && a.payload == OperandKind::weights;
  return closing ? reports_loss(a) || pulls_weights : !reports_loss(a);
}

/// The names of all channels that the plan's programs push to, in alphabetical order: a channel's number is its index.
std::vector<std::string> channels_of(const Plan&);
/// The coordinate that the rank at `coordinate` pushes to, or pulls from.
inline int root_of(const Peer& peer, int coordinate) {
  return peer.per_root > 0 && peer.root >= 0 ? peer.root + coordinate / peer.per_root : peer.root;
}
/// The coordinates of the ranks that push to the channel of the rank at `root`, ascending.
std::vector<int> senders_to(const Plan&, const std::string& channel, int root);
/// The coordinates of the ranks to which the rank at `coordinate` pushes. started: the coordinates of the ranks whose
/// messages have started the phase.
std::vector<int> receivers_of(const Plan&, const Peer&, int coordinate, const std::vector<int>& started);
/// The mesh axis of messages to the channel; empty: no rank pushes to it.
std::string axis_of(const Plan&, const std::string& channel);

/// Number of messages that a phase takes in a step in which `senders` ranks push one message each to its channel.
int messages_in_step(const Program&, const Trigger&, int senders);
/// Number of updates of a program in one step of the ranks that push to it; 1 unless messages start updates.
int updates_in_step(const Plan&, const Program&);

/// Whether messages start the phases of the ranks at this coordinate. Messages to such ranks have a MessageHeader.
bool serves_at(const Plan&, const std::string& axis, int coordinate);

/// Whether some ranks of the plan exchange asynchronous messages only: servers and their workers, asynchronous gossip.
bool meets_by_messages(const Plan&);
/// Whether the results of ranks depend on the order in which messages arrive.
bool depends_on_arrivals(const Plan&);

/// Whether the program hands out tickets, that is, pushes them in answer to messages.
bool hands_out_tickets(const Program&);

}  // namespace trireme
