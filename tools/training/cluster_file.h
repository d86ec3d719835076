// Cluster files: a described set of machines (parallel/comm/cluster.h) in TOML, for `trireme simulate` and virtual
// time:
//
//   name = "two kinds of nodes"                  # for reports; "" unless given
//   [[nodes]]                                    # nodes that are alike; ranks lie on their devices in this order
//   count = 4                                    # of them; 1 unless given
//   devices = 8                                  # of each
//   speed = 1.0                                  # of a device: costs of computation are divided by it; 1 unless given
//   memory = 80e9                                # bytes of a device; 0, which says nothing, unless given
//   source = "data sheet"                        # of these numbers: measured, data sheet or assumed
//   [[nodes]]
//   devices = 8
//   speed = 0.5
//   [links.inside]                               # between two devices of a node
//   latency = 2e-6                               # seconds
//   bandwidth = 300e9                            # bytes per second; 0: any number
//   efficiency = 0.8                             # share of the bandwidth that transfers reach; 1 unless given
//   oversubscription = 1.0                       # when all send at once each gets 1 / this; 1 unless given
//   source = "assumed"                           # as that of nodes
//   [links.between]                              # between two nodes
//   latency = 8e-6
//   bandwidth = 25e9
//
// and before the first table, where they are wanted: placement ("block": ranks fill one node after the other, the
// default; "cyclic": they are dealt to the nodes in turn), jitter (standard deviation of the logarithm of the factor by
// which each computation takes longer, 0), seed (of jitter, 0), flops (per second, of a device of speed 1, 1e11),
// overlaps (communication goes on beside computation, true; false: ranks carry it out while they wait), source (of
// numbers that name none, assumed). A link that no two devices have may be left out.
#pragma once
#include <string>
#include <vector>

#include "parallel/comm/cluster.h"

namespace trireme {

/// The clusters that ship (tools/clusters/), by their bare names, in order.
std::vector<std::string> cluster_names();
/// The path of a cluster file: as it is, or of one that ships, by its bare name: "dgx_a100". Throws OptionError with
/// the names for a bare one that is none of them and no file.
std::string find_cluster(const std::string& name);
/// path: as find_cluster() takes it. Throws OptionError, one line naming file, line and key, for what cannot be read,
/// keys that are unknown or missing, values of another type and numbers that cannot be.
Cluster read_cluster(const std::string& path);
/// text: of such a file. source: what errors name.
Cluster parse_cluster(const std::string& text, const std::string& source);
/// What parse_cluster() reads as this cluster. Throws Error for links with measured calls, which machine files have.
std::string cluster_toml(const Cluster&);

}  // namespace trireme
