// Mesh: ranks on named axes. Mesh(world, {{"pipe", 2}, {"data", 4}}); the last axis varies fastest. A strategy names an
// axis, never a rank.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/world/rank_grid.h"
#include "parallel/comm/world/traffic.h"
#include "parallel/comm/world/world.h"

namespace trireme {

/// The ranks of a world as a grid (jax.sharding.Mesh; torch DeviceMesh), with a communicator along each axis.
class Mesh {
 public:
  /// Throws Error when the sizes do not multiply to the world's (and says what would), a name repeats, or ranks have
  /// other axes. A collective call.
  Mesh(World&, std::vector<Axis>);
  /// All ranks on one axis "data".
  explicit Mesh(World&);
  /// One imagined rank of a mesh, for dry runs: world is any. Its communicators want a dry meter().
  Mesh(World& world, std::vector<Axis>, int rank);

  const std::vector<Axis>& axes() const { return grid_.axes(); }  ///< in order; the last varies fastest
  /// Ranks along an axis, or several joined by +; 1 where there is none of the name.
  int size(const std::string& axis) const { return size_along(axes(), axis); }
  int index(const std::string& axis) const { return grid_.place(rank_, axis).second; }  ///< this rank's coordinate
  /// The ranks that differ from this one along axis only. A collective call, at first, where axis is several.
  Communicator& comm(const std::string& axis);
  World& world() { return world_; }  ///< must outlive the Mesh
  /// Of all communicators that comm() gives, and those split from them.
  const TrafficMeter& meter() const { return meter_; }

 private:
  Mesh(World&, RankGrid, int rank, bool imagined);
  Communicator& make(const std::string& axis);

  World& world_;
  RankGrid grid_;
  int rank_;
  bool imagined_;
  TrafficMeter meter_;
  std::map<std::string, std::unique_ptr<Communicator>> comms_;
};

}  // namespace trireme
