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
  /// The last axis varies fastest. Throws Error if the product of the sizes is not the world's size (and suggests
  /// sizes), a name repeats, or axes differ between ranks. A collective call.
  Mesh(World&, std::vector<Axis>);
  /// All ranks on one axis "data".
  explicit Mesh(World&);
  /// One imagined rank of a mesh of any size, for dry runs on any world. Its communicators need a dry meter().
  Mesh(World& world, std::vector<Axis>, int rank);

  const std::vector<Axis>& axes() const { return grid_.axes(); }  ///< in order; the last varies fastest
  /// Ranks along an axis, or along several joined by +; 1 for an axis that does not exist.
  int size(const std::string& axis) const { return size_along(axes(), axis); }
  int index(const std::string& axis) const { return grid_.place(rank_, axis).second; }  ///< this rank's coordinate
  /// The communicator of the ranks that differ from this one only along axis. For joined axes the first call is
  /// collective.
  Communicator& comm(const std::string& axis);
  World& world() { return world_; }  ///< must outlive the Mesh
  /// Counts the calls of all communicators of comm(), and of communicators split from them.
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
