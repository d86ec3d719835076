// InferencePlan: how a model is computed over a volume (whole, in tiles that overlap by its reach, in passes with
// features on disk between them, or divided over ranks with halos per layer), and what that takes, predicted.
#pragma once
#include <string>
#include <vector>

#include "parallel/inference/volume_net.h"

namespace trireme {

/// whole: one tile. tiles: shared by ranks, each computed by itself. mesh: ranks hold a box each and exchange halos.
enum class InferenceWay : std::uint8_t { whole, tiles, mesh };
std::string to_string(InferenceWay);

/// What the plan may choose.
struct InferenceLimits {
  double memory = 0;             ///< bytes of tensors per rank; 0: any number
  std::string way = "auto";      ///< or "whole", "tiles", "mesh"
  Extents tile{0, 0, 0};         ///< of the result, per spatial axis, outermost first; 0: as the plan chooses
  bool one_pass = false;         ///< features never go to disk (job arrays)
  std::vector<int> passes = {};  ///< where passes begin, and the number of layers; empty: as the plan chooses
};
/// What the predicted seconds are made of: assumed, for one rank, not measured.
struct InferenceRates {
  double operations = 8e9;  ///< per second
  double disk = 0.5e9;      ///< bytes per second, of all ranks together
  double link = 1e9;        ///< bytes per second
  double message = 30e-6;   ///< seconds of an exchange, however small
  double tile = 1e-3;       ///< seconds of a tile, however small
};

struct InferencePlan {
  InferenceWay way = InferenceWay::whole;
  Extents tile{1, 1, 1};    ///< largest extents of a tile of the result
  std::vector<int> passes;  ///< {0, ..., number of layers}
  Division division;        ///< of mesh
  // Predicted.
  double tiles = 1;              ///< of one pass
  double voxels = 0;             ///< of layers, computed by all ranks
  double least_voxels = 0;       ///< without overlap
  double operations = 0;         ///< of all ranks
  double memory = 0;             ///< bytes of tensors, of the rank with most
  double sent = 0;               ///< bytes, of all ranks
  double read = 0, written = 0;  ///< bytes of volumes and features, of all ranks
  double features = 0;           ///< bytes on disk between passes
  double seconds = 0;
};

/// The tiles of a result: boxes of up to `tile` cells, of sizes that differ by little, row-major.
class TileGrid {
 public:
  TileGrid(const Shape& output, const Extents& tile, const Extents& granularity);
  Index size() const { return counts_[0] * counts_[1] * counts_[2]; }
  const Extents& counts() const { return counts_; }  ///< tiles along each spatial axis
  const Extents& tile() const { return tile_; }      ///< the extents that came of the ones asked for
  Box box(Index tile) const;                         ///< in the result [1, spatial..., C]
  Box box(const Extents& place) const;

 private:
  Shape output_;
  Extents tile_{1, 1, 1}, counts_{1, 1, 1};
};

/// The plans that could be, the best first; each way that is allowed and fits the memory comes once. Throws Error where
/// none fits, saying what the least would take. mesh: ranks along the volume's axes; they share tiles, too.
std::vector<InferencePlan> plan_inference(const VolumeNet&, const std::vector<Axis>& mesh, const InferenceLimits&,
                                          const InferenceRates& = {});
/// The plan of a way, tile and passes that are given, whatever memory it takes.
InferencePlan predict(const VolumeNet&, InferenceWay, const Extents& tile, const std::vector<int>& passes,
                      const Division&, const InferenceRates& = {});

}  // namespace trireme
