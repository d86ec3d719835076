// PipelineP2P: point-to-point messages of activations and gradients between pipeline stages. The receiver of gradients
// knows their shapes, since it sent the activations. The shapes of activations are sent once for each input shape,
// before the first activations.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "parallel/comm/world/traffic.h"
#include "parallel/plan/plan.h"

namespace trireme {

class Grid;  // parallel/split/grid.h

/// The messages of one rank's stage.
class PipelineP2P {
 public:
  /// The path of the tensors of one cut and micro-batch to one partner.
  struct Route {
    Communicator* comm = nullptr;  ///< of the stages
    int peer = 0, part = 0;        ///< rank of the partner; part before the cut
    int tag = 0;                   ///< unique to this cut and micro-batch: a later micro-batch may be received first
    Device device = {};            ///< device of the activations on this rank
  };
  /// The description of a tensor that its receiver needs.
  struct TensorMeta {
    DType dtype;
    Shape shape;
    std::shared_ptr<const ShardSpec> shard_spec = {};  ///< set if layers are split; the partner has the same part
    Device device = {};                                ///< device of the tensor on this rank
  };

  /// grid: of split layers, or null. meter: of the mesh; messages with types and shapes are set-up, which no step
  /// counts.
  PipelineP2P(std::shared_ptr<const Grid> grid, TrafficMeter meter)
      : grid_(std::move(grid)), meter_(std::move(meter)) {}

  // The functions append the Works of the started messages to their last argument. input: shape of the micro-batch's
  // input, which both ends know.
  /// Starts to send tensors.
  static void send(const Route&, const std::vector<Tensor>&, std::vector<Work>&);
  /// Starts to receive tensors of these types and shapes.
  static void receive(const Route&, const std::vector<TensorMeta>&, std::vector<Tensor>& arriving, std::vector<Work>&);

  /// Sends the types and shapes of the tensors, unless it did so before for this cut and input.
  void send_meta(const Route&, const Shape& input, const std::vector<Tensor>&, std::vector<Work>&);
  /// The types and shapes received for this cut and input; null: none yet.
  const std::vector<TensorMeta>* find_meta(const Route&, const Shape& input) const;
  /// Waits for the types and shapes of that many tensors.
  void recv_meta(const Route&, const Shape& input, std::size_t tensors);

 private:
  using Key = std::vector<Index>;
  static Key key(const Route&, const Shape& input);
  std::shared_ptr<const Grid> grid_;
  TrafficMeter meter_;
  std::map<Key, std::vector<TensorMeta>> metas_;
};

}  // namespace trireme
