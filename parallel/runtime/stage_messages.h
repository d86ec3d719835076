// StageMessages: a rank's messages to and from other pipeline stages: activations over a cut, and their gradients. The
// receiver of gradients knows their shapes, since it sent the activations. Types and shapes of activations are sent
// once for each input shape, before the first activations.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "parallel/comm/world/traffic.h"
#include "parallel/runtime/tapes.h"

namespace trireme {

class Grid;  // parallel/split/grid.h

/// Carries out the send and recv actions of one rank.
class StageMessages {
 public:
  /// One message, from the start of its action to the end.
  struct Message {
    std::vector<Tensor> arriving;  // of recv
    bool posted = false;           // recv has started, since types and shapes are known
  };
  /// The description of a tensor that its receiver needs.
  struct TensorMeta {
    DType dtype;
    Shape shape;
    std::shared_ptr<const ShardSpec> shard_spec = {};  ///< set if layers are split; the partner has the same part
    Device device = {};                                ///< device of the tensor on this rank
  };

  /// grid: of split layers, or null. meter: of the mesh; messages with types and shapes are set-up, which no step
  /// counts. All references must outlive it. Throws Error for too many cuts.
  StageMessages(const Plan&, Tapes&, std::shared_ptr<const Grid> grid, TrafficMeter meter);

  // The functions append the Works of the started messages to their last argument.
  /// Sends the action's operand. keep: hold gradients until the next send, so that measured memory does not depend on
  /// the receiver's speed.
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
  using Key = std::vector<Index>;  // part before the cut, and shape of the micro-batch's input, which both ends know
  Key key(const Action&) const;
  int tag(const Action&) const;
  void send_metas(const Action&, Communicator&, const std::vector<Tensor>&, std::vector<Work>&);
  void receive_metas(const Action&, Communicator&);
  void try_to_receive(const Action&, Communicator&, Message&, std::vector<Work>&);

  const Plan& plan_;
  Tapes& tapes_;
  std::shared_ptr<const Grid> grid_;
  TrafficMeter meter_;
  std::map<int, int> cut_of_;  // by the part before the cut
  /// Of activations that were sent (empty) or received.
  std::map<Key, std::vector<TensorMeta>> metas_;
  std::vector<ActionId> sending_;
  std::vector<Tensor> sent_;  // by the last message, if kept
};

}  // namespace trireme
