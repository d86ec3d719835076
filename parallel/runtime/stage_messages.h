// StageMessages: a rank's messages to and from other pipeline stages: activations over a cut, and their gradients.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "parallel/runtime/pipeline_p2p.h"
#include "parallel/runtime/tapes.h"

namespace trireme {

/// Carries out the send and recv actions of one rank.
class StageMessages {
 public:
  /// One message, from the start of its action to the end.
  struct Message {
    std::vector<Tensor> arriving;  // of recv
    bool posted = false;           // recv has started, since types and shapes are known
  };

  /// grid: of split layers, or null. All references must outlive it. Throws Error for too many cuts.
  StageMessages(const Plan&, Tapes&, std::shared_ptr<const Grid> grid, TrafficMeter meter);

  // The functions append the Works of the started messages to their last argument.
  /// Sends the action's operand. keep: hold gradients until the next send, so that measured memory does not depend on the receiver's speed.
  void send(ActionId, const Action&, Communicator&, bool keep, std::vector<Work>&);
  /// Starts to receive, if types and shapes are known; else finish_receive() does.
  void receive(const Action&, Communicator&, Message&, std::vector<Work>&);
  /// Waits for the message and gives it to the tapes.
  void finish_receive(const Action&, Communicator&, Message&, std::vector<Work>&);

  /// Calls finished(id) for each send that has not ended, until it returns true.
  template <class Finished>
  void end_sends(Finished&& finished) {
    std::erase_if(sending_, finished);
  }
  /// Starts a step: all sends have ended.
  void begin_step() { sending_.clear(); }
  /// Drops the gradients that send() kept.
  void drop_kept() { sent_.clear(); }

 private:
  PipelineP2P::Route route(const Action&, Communicator&) const;
  void try_to_receive(const Action&, Communicator&, Message&, std::vector<Work>&);

  const Plan& plan_;
  Tapes& tapes_;
  PipelineP2P p2p_;
  std::map<int, int> cut_of_;  // by the part before the cut
  std::vector<ActionId> sending_;
  std::vector<Tensor> sent_;  // by the last message, if kept
};

}  // namespace trireme
