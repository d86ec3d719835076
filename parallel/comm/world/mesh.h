// Mesh: ranks on named axes. Mesh(world, {{"pipe", 2}, {"data", 4}}); the last axis varies fastest. A strategy names an
// axis, never a rank. AxisMask joined by + are one: "data+h" has the ranks of both, the last named fastest; those that
// are not there are left out.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/world/axis.h"
#include "parallel/comm/world/traffic.h"
#include "parallel/comm/world/world.h"

namespace trireme {

/// "pipe=2,data=4". Throws Error naming the piece that is not of that form.
std::vector<Axis> parse_mesh(const std::string& text);
std::string to_string(const std::vector<Axis>&);  ///< as parse_mesh() reads it
/// The product of the sizes; 1 for no axes.
int ranks_of(const std::vector<Axis>&);

/// Ranks as a grid with named axes (jax.sharding.Mesh; torch DeviceMesh): row-major, the last axis varies fastest.
class Mesh {
 public:
  /// Throws Error when the sizes do not multiply to the world's (and says what would), a name repeats, or ranks have
  /// other axes. A collective call.
  Mesh(World&, std::vector<Axis>);
  /// All ranks on one axis "data".
  explicit Mesh(World&);
  /// One imagined rank of a mesh, for dry runs: world is any. Its communicators want a dry meter().
  Mesh(World& world, std::vector<Axis>, int rank);

  const std::vector<Axis>& axes() const { return axes_; }  ///< in order; the last varies fastest
  /// Ranks along an axis, or several joined by +; 1 where there is none of the name.
  int size(const std::string& axis) const { return size_along(axes_, axis); }
  int index(const std::string& axis) const;  ///< this rank's coordinate
  /// The ranks that differ from this one along axis only. A collective call, at first, where axis is several.
  Communicator& comm(const std::string& axis);
  World& world() { return world_; }  ///< must outlive the Mesh
  /// Of all communicators that comm() gives, and those split from them.
  const TrafficMeter& meter() const { return meter_; }

 private:
  void place(int rank);
  std::unique_ptr<Communicator> make(const std::string& axis, int line);

  World& world_;
  std::vector<Axis> axes_;
  std::vector<int> at_;
  bool imagined_ = false;
  TrafficMeter meter_;
  std::map<std::string, std::unique_ptr<Communicator>> comms_;
};

}  // namespace trireme
