// What inference takes: operations per second measured on a small volume, and ranks that exchange halos layer by layer
// on a cluster, in virtual time.
#pragma once
#include "parallel/comm/cluster.h"
#include "parallel/inference/inference_plan.h"

namespace trireme {

/// The extents of a smaller volume that the same model takes about a second for, and whose cells do not all lie in a
/// cache: what measured_operations() should see.
Shape shape_to_measure(const VolumeNet&);
/// Operations (BoxCost) per second of this thread's cores (threads()) on the net's whole volume: the best of three runs
/// over zeros.
double measured_operations(const VolumeNet&);

/// The rates of a cluster's slowest device and its slowest link among the first `ranks` ranks; its flops are the
/// operations of a device of speed 1. Throws Error where it has fewer devices.
InferenceRates rates_of(const Cluster&, int ranks, const InferenceRates& others = {});

struct SimulatedInference {
  double seconds = 0;    ///< until the last rank is done; of volumes nothing is read or written
  double computing = 0;  ///< of these the rank that computes most does that
  double sent = 0;       ///< bytes, of all ranks
  Index messages = 0;    ///< of all ranks
};
/// Ranks that have the volume together (InferenceWay::mesh), as World::virtual_time() has them: each computes a layer's
/// share at the cluster's flops, with its jitter, sends the halos that VolumeNet::run sends, and waits for those that
/// it wants. Messages have their length alone, no numbers. Throws Error where the cluster has fewer devices than the
/// mesh has ranks, and as VolumeNet::share().
SimulatedInference simulate_mesh(const VolumeNet&, const std::vector<Axis>& mesh, const Cluster&);

}  // namespace trireme
