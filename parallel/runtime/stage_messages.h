// StageMessages: a rank's messages to and from other pipeline stages. Activations go over a cut of the model to the
// next stage; their gradients return. Before the first activations of each input shape, the sender sends their types
// and shapes. Gradients need no such message: their receiver sent the activations.
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
    std::vector<Tensor> arriving;  // of recv: the tensors that the message fills
    bool posted = false;           // whether recv has started; it starts once types and shapes are known
  };
  /// The description of a tensor that its receiver needs.
  struct TensorMeta {
    DType dtype;
    Shape shape;
    std::shared_ptr<const ShardSpec> shard_spec = {};  ///< of a tensor that ranks divide: both ranks have the same part
    Device device = {};                                ///< device of the tensor on this rank
  };

  /// grid: the ranks that split layers; null: no layers are split. meter: counts the mesh's traffic, without messages
  /// of types and shapes. All references must outlive it. Throws Error if cuts times micro-batches exceed the number of
  /// message tags.
  StageMessages(const Plan&, Tapes&, std::shared_ptr<const Grid> grid, TrafficMeter meter);

  // These functions append the Works of the messages that they start to their last argument.
  /// Sends the tensors of the action's cut and micro-batch. keep: holds sent gradients until the next send, so that the
  /// measured memory does not depend on the receiver's speed.
  void send(ActionId, const Action&, Communicator&, bool keep, std::vector<Work>&);
  /// Starts to receive if types and shapes are known; else finish_receive() starts.
  void receive(const Action&, Communicator&, Message&, std::vector<Work>&);
  /// Waits for the message and gives it to the tapes.
  void finish_receive(const Action&, Communicator&, Message&, std::vector<Work>&);

  /// Calls finished(id) for each send that has not ended. True: the send has ended and is removed from the list.
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

/// The types, shapes and placements of tensors, as numbers for a message.
Tensor packed_metas(const std::vector<Tensor>&);
/// A message that receives packed_metas() of so many tensors.
Tensor unfilled_metas(std::size_t tensors);
/// The reverse of packed_metas(). grid: the ranks that split layers. device: of the tensors on this rank.
std::vector<StageMessages::TensorMeta> unpacked_metas(const Tensor& message, const std::shared_ptr<const Grid>& grid,
                                                      Device device);

}  // namespace trireme
