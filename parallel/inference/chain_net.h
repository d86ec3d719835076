// ChainNet: a model of convolutions, poolings and elementwise ops over a volume, run part by part
// (parallel/model/chain.h).
#pragma once
#include <string>
#include <vector>

#include "parallel/inference/reach.h"
#include "parallel/inference/volume_net.h"
#include "parallel/model/chain.h"

namespace trireme {

class ChainNet final : public VolumeNet {
 public:
  /// model: in evaluation maps [1, spatial..., C] to [1, spatial'..., C']; its weights are not changed. Throws Error
  /// for a model whose result at one position depends on the whole volume, and for unsupported extents.
  ChainNet(Module model, const Shape& volume, DType);

  Box reads(int first, int last, const Box& out) const override;
  BoxCost cost(int first, int last, const Box& out) const override;
  Tensor run(int first, int last, const ReadBox& read, const Box& out) const override;
  Box share(const Division&, const Extents& at) const override;
  ShareCost cost(const Division&) const override;
  std::vector<ShareStep> steps(const Division&, const std::vector<Extents>& places) const override;
  Tensor run(const Division&, const Grid&, const ReadBox& read) const override;

 private:
  struct Part {
    int index;  // in the chain
    Reach reach;
    std::vector<int> reads;  // input tensors: the part's input, then stashed tensors
    std::vector<std::string> stashed;
    int output;
    Shape probe;                // output size for which operations and memory are given
    double operations, memory;  // memory: bytes besides inputs and output
  };
  void trace(const Shape& probe);
  std::vector<Shape> shapes_of(const std::vector<int>& tensors) const;
  std::vector<Box> patches(const Part&, const Box& out) const;
  std::vector<Box> needs(const Box& out) const;  // by tensor
  /// Computes the part's output in box `out`, from inputs whose patches are at `at`.
  Tensor run(const Part&, const Box& out, const std::vector<Tensor>& held, const std::vector<Box>& at) const;
  void add_cost(const Part&, const Box& out, const std::vector<double>& held, BoxCost&) const;
  Box own(int tensor, const Division&, const Extents& at) const;
  Box wanted(int tensor, const Division&, const Extents& at) const;
  double bytes(const Box&) const;
  void release(std::size_t part, std::vector<Tensor>& held) const;

  Chain chain_;
  double kept_ = 0;  // bytes of folded and packed filters that an Inference keeps
  std::vector<Part> parts_;
  std::vector<Shape> shapes_;                                   // shapes of tensors for the whole volume; index 0: the
                                                                // volume
  std::vector<std::array<std::pair<Index, Index>, 3>> scales_;  // cells per cell of the volume: up, down
  std::vector<std::size_t> last_use_;                           // by tensor: the last part that reads it
  Extents alignment_{1, 1, 1};                                  // cells of the volume at which all strides begin
};

}  // namespace trireme
