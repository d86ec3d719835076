// Duration of inference: operations per second measured on a small volume, and simulated ranks that exchange halos on a
// cluster, in virtual time.
#pragma once
#include "parallel/comm/cluster.h"
#include "parallel/inference/inference_plan.h"

namespace trireme {

/// Extents of a smaller volume for measured_operations(): about a second of computation, and larger than the cache.
Shape shape_to_measure(const VolumeNet&);
/// Operations (BoxCost) per second of this thread's cores (threads()) on the net's whole volume of zeros: the best of
/// three runs.
double measured_operations(const VolumeNet&);

/// Rates of a cluster's slowest device and link among the first `ranks` ranks. Cluster::flops are the operations of a
/// device of speed 1. Throws Error if the cluster has fewer devices.
InferenceRates rates_of(const Cluster&, int ranks, const InferenceRates& others = {});

struct SimulatedInference {
  double seconds = 0;    ///< until the last rank is done, without reading and writing volumes
  double computing = 0;  ///< part in which the busiest rank computes
  double sent = 0;       ///< bytes, over all ranks
  Index messages = 0;    ///< over all ranks
};
/// Simulates ranks that divide the volume (InferenceWay::mesh) in World::virtual_time(). Each rank computes its share
/// of a layer at the cluster's flops with its jitter, sends the halos that VolumeNet::run sends, and waits for its own.
/// Messages have a length but no data. Throws Error if the cluster has fewer devices than the mesh has ranks, and as
/// VolumeNet::share().
SimulatedInference simulate_mesh(const VolumeNet&, const std::vector<Axis>& mesh, const Cluster&);

}  // namespace trireme
