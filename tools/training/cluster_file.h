// Cluster files: a description of machines (parallel/comm/cluster.h) in TOML, for `trireme plan simulate` and virtual
// time:
//
//   name = "two kinds of nodes"                  # for reports; default ""
//   [[nodes]]                                    # identical nodes; ranks are placed on them in this order
//   count = 4                                    # number of nodes; default 1
//   devices = 8                                  # devices per node
//   speed = 1.0                                  # of a device: divides computation times; default 1
//   memory = 80e9                                # bytes per device; default 0: unknown
//   source = "data sheet"                        # of these numbers: measured, data sheet or assumed
//   [[nodes]]
//   devices = 8
//   speed = 0.5
//   [links.inside]                               # between two devices of a node
//   latency = 2e-6                               # seconds
//   bandwidth = 300e9                            # bytes per second and device; inf: transfers are free
//   efficiency = 0.8                             # share of the bandwidth that transfers reach; default 1
//   oversubscription = 1.0                       # if all send at once, each gets 1 / this; default 1
//   source = "assumed"                           # as for nodes
//   [links.between]                              # between two nodes
//   latency = 8e-6
//   bandwidth = 25e9
//   [collectives]                                # bytes of a vector; optional
//   doubling = 2048                              # up to this, rounds of the whole vector; default 2048
//   halving = 524288                             # up to this, rounds of halves; beyond, rings; default 524288
//
// The defaults of [collectives] are MPICH's (mpich_sizes); 0 and 0: rings for all.
// Optional keys before the first table:
//   placement  "block" (default): ranks fill one node after the other; "cyclic": ranks are dealt to the nodes in turn
//   jitter     standard deviation of the logarithm of each computation's slowdown factor; default 0
//   seed       random seed of jitter; default 0
//   flops      floating-point operations per second of a device of speed 1; default 1e11
//   memory_bandwidth  bytes per second between a device of speed 1 and its memory; default flops / 8
//   overlaps   true (default): communication overlaps with computation; false: ranks communicate while they wait
//   source     default source of numbers; default "assumed"
// A link that no two devices use may be omitted.
#pragma once
#include <string>
#include <vector>

#include "parallel/comm/cluster.h"

namespace trireme {

/// The names of the included clusters (tools/clusters/), sorted.
std::vector<std::string> cluster_names();
/// The path of a cluster file: name if it is a path, or an included cluster such as "dgx_a100". Throws OptionError with
/// the list of names for a bare name that is neither.
std::string find_cluster(const std::string& name);
/// Reads a cluster file. path: as for find_cluster(). Throws a one-line OptionError with file, line and key for an
/// unreadable file, unknown or missing keys, values of another type, and invalid numbers.
Cluster read_cluster(const std::string& path);
/// As read_cluster(), from a file's text. source: name in errors.
Cluster parse_cluster(const std::string& text, const std::string& source);
/// The text that parse_cluster() reads as this cluster. Throws Error for links with measured calls, which only machine
/// files support.
std::string cluster_toml(const Cluster&);

}  // namespace trireme
