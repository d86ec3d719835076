// InferencePlan: how a model is computed over a volume, and the predicted cost. The volume is computed whole, in
// overlapping tiles, in passes with features on disk, or divided over ranks with halo exchanges per layer.
#pragma once
#include <string>
#include <vector>

#include "parallel/inference/volume_net.h"

namespace trireme {

/// whole: one tile. tiles: ranks share independent tiles. mesh: each rank has a box, and ranks exchange halos.
enum class InferenceWay : std::uint8_t { whole, tiles, mesh };
std::string to_string(InferenceWay);

/// Constraints of the plan.
struct InferenceLimits {
  double memory = 0;             ///< bytes of tensors per rank; 0: unlimited
  std::string way = "auto";      ///< or "whole", "tiles", "mesh"
  Extents tile{0, 0, 0};         ///< of the result, per spatial axis, outermost first; 0: chosen by the plan
  bool one_pass = false;         ///< no features on disk (job arrays)
  std::vector<int> passes = {};  ///< first layer of each pass, then the number of layers; empty: chosen by the plan
};
/// Assumed rates of one rank for predicted seconds.
struct InferenceRates {
  double operations = 8e9;  ///< per second
  double disk = 0.5e9;      ///< bytes per second, all ranks together
  double link = 1e9;        ///< bytes per second
  double message = 30e-6;   ///< seconds per message, in addition to its bytes
  double tile = 1e-3;       ///< seconds per tile, in addition to its operations
};

struct InferencePlan {
  InferenceWay way = InferenceWay::whole;
  Extents tile{1, 1, 1};    ///< largest extents of a tile of the result
  std::vector<int> passes;  ///< {0, ..., number of layers}
  Division division;        ///< for way mesh
  // Predictions.
  double tiles = 1;              ///< per pass
  double voxels = 0;             ///< computed by all ranks, summed over layers
  double least_voxels = 0;       ///< the same without overlap
  double operations = 0;         ///< over all ranks
  double memory = 0;             ///< most bytes of tensors on a rank
  double sent = 0;               ///< bytes, over all ranks
  double read = 0, written = 0;  ///< bytes of volumes and features, over all ranks
  double features = 0;           ///< bytes on disk between passes
  double seconds = 0;
};

/// The tiles of a result: boxes of at most `tile` cells with nearly equal sizes, row-major.
class TileGrid {
 public:
  TileGrid(const Shape& output, const Extents& tile, const Extents& granularity);
  Index size() const { return counts_[0] * counts_[1] * counts_[2]; }
  const Extents& counts() const { return counts_; }  ///< tiles along each spatial axis
  const Extents& tile() const { return tile_; }      ///< actual extents, at most those requested
  Box box(Index tile) const;                         ///< box of the result [1, spatial..., C]
  Box box(const Extents& place) const;

 private:
  Shape output_;
  Extents tile_{1, 1, 1}, counts_{1, 1, 1};
};

/// All possible plans, fastest first: one for each allowed way that fits the memory. mesh: ranks along the volume's
/// axes; ranks also share tiles. Throws Error with the least memory needed if no plan fits.
std::vector<InferencePlan> plan_inference(const VolumeNet&, const std::vector<Axis>& mesh, const InferenceLimits&,
                                          const InferenceRates& = {});
/// The plan of a given way, tile and passes, without a memory limit.
InferencePlan predict(const VolumeNet&, InferenceWay, const Extents& tile, const std::vector<int>& passes,
                      const Division&, const InferenceRates& = {});

}  // namespace trireme
