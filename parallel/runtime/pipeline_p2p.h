// PipelineP2P: point-to-point messages of activations and gradients between pipeline stages. The shapes of gradients
// are known to their receiver, since it sent the activations; the shapes of activations are sent ahead of the first
// ones of each input shape.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "parallel/comm/world/traffic.h"
#include "parallel/plan/plan.h"

namespace trireme {

class Grid;  // parallel/split/grid.h

class PipelineP2P {
 public:
  /// Of one cut and micro-batch, with one partner. input: the micro-batch's input, whose shape both ends know.
  struct Route {
    Communicator* comm = nullptr;
    int peer = 0, part = 0;
    int tag = 0;         ///< of this cut and micro-batch alone: a later micro-batch may be received first
    Device device = {};  ///< where activations are to lie here
  };
  /// What a receiver must know of a tensor.
  struct TensorMeta {
    DType dtype;
    Shape shape;
    std::shared_ptr<const ShardSpec> shard_spec = {};  ///< where layers are split, too: the partner has the same part
    Device device = {};                                ///< where it is to lie here
  };

  /// grid: of the layers that are split, or null. meter: of the mesh; types and shapes are set-up, which no step
  /// counts.
  PipelineP2P(std::shared_ptr<const Grid> grid, TrafficMeter meter)
      : grid_(std::move(grid)), meter_(std::move(meter)) {}

  // Works of what is started are added to the last argument.
  static void send(const Route&, const std::vector<Tensor>&, std::vector<Work>&);
  /// Starts to receive tensors of these types and shapes.
  static void receive(const Route&, const std::vector<TensorMeta>&, std::vector<Tensor>& arriving, std::vector<Work>&);

  /// Sends types and shapes of the tensors ahead, unless it did for this cut and input.
  void send_meta(const Route&, const Shape& input, const std::vector<Tensor>&, std::vector<Work>&);
  /// The types and shapes received for this cut and input; null: none yet.
  const std::vector<TensorMeta>* find_meta(const Route&, const Shape& input) const;
  /// Waits for the types and shapes of so many tensors.
  void recv_meta(const Route&, const Shape& input, std::size_t tensors);

 private:
  using Key = std::vector<Index>;
  static Key key(const Route&, const Shape& input);
  std::shared_ptr<const Grid> grid_;
  TrafficMeter meter_;
  std::map<Key, std::vector<TensorMeta>> metas_;
};

}  // namespace trireme
