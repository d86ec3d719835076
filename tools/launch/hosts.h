// Hosts: machines and how many ranks each may have, as horovodrun, torchrun and MPICH's mpiexec write them.
#pragma once
#include <string>
#include <vector>

namespace trireme {

struct Host {
  std::string name;
  int slots = 1;  ///< ranks that it may have, at least 1
  bool operator==(const Host&) const = default;
};

/// "a:4,b:4"; without a number one slot. Throws OptionError for what is no such list, and for a host that stands twice.
std::vector<Host> parse_hosts(const std::string& list);
/// A line per host: "a slots=4" (horovodrun, Open MPI), "a:4" (MPICH) or "a"; behind # a comment. Throws OptionError
/// with the line's number, and Error as read_text() of at most 1 MiB (framework/io/file.h). path may be a pipe, as in
/// --hostfile <(scontrol show hostnames), whose writer must close it within 60 s.
std::vector<Host> read_host_file(const std::string& path);
/// The number of all slots.
int slots_of(const std::vector<Host>&);
/// The first hosts that have so many slots together, the last of them with as many as are still missing.
std::vector<Host> first_slots(std::vector<Host>, int ranks);
/// "a:4,b:4"
std::string to_string(const std::vector<Host>&);

}  // namespace trireme
