// Identity of a worker's process, by which other workers decide whether it has ended.
#pragma once
#include <string>

namespace trireme {

/// This process: "HOST pid 123 [BOOT NAMESPACE START]". Unique, and constant during its lifetime.
std::string own_identity();
/// The readable part: "HOST pid 123".
std::string shown_identity(const std::string& identity);
/// Path of this program. If the file was replaced since the process started (rebuilt), the path of the new file,
/// because a deleted file cannot be started.
std::string own_program();
/// Whether a process has certainly ended: it is of this boot and PID namespace, and does not exist. False for processes
/// of other hosts.
bool has_ended(const std::string& identity);

}  // namespace trireme
