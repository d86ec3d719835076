// Host: a machine and its number of slots (ranks), in the notations of horovodrun, torchrun and MPICH's mpiexec.
#pragma once
#include <string>
#include <vector>

namespace trireme {

struct Host {
  std::string name;
  int slots = 1;  ///< most ranks on this host, at least 1
  bool operator==(const Host&) const = default;
};

/// Parses "a:4,b:4"; a host without a number has one slot. Throws OptionError for invalid text and repeated hosts.
std::vector<Host> parse_hosts(const std::string& list);
/// A line per host: "a slots=4" (horovodrun, Open MPI), "a:4" (MPICH) or "a"; behind # a comment. Throws OptionError
/// with the line's number, and Error as read_text() of at most 1 MiB (framework/io/file.h). path may be a pipe, as in
/// --hostfile <(scontrol show hostnames), whose writer must close it within 60 s.
std::vector<Host> read_host_file(const std::string& path);
/// Total number of slots.
int slots_of(const std::vector<Host>&);
/// The first hosts that provide `ranks` slots. The last host gives only the slots still needed.
std::vector<Host> first_slots(std::vector<Host>, int ranks);
/// "a:4,b:4"
std::string to_string(const std::vector<Host>&);

}  // namespace trireme
