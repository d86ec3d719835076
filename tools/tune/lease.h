// Who works on a trial: a process of a host, as others may judge whether it is still there.
#pragma once
#include <string>

namespace trireme {

/// This process: "HOST pid 123 [BOOT NAMESPACE START]", the same until it ends, and never of another one.
std::string own_identity();
/// The part of it that people read: "HOST pid 123".
std::string shown_identity(const std::string& identity);
/// Path of the program that runs. Where the file was replaced since this process began (a rebuilt one), that of the new
/// one: a deleted file cannot be started again.
std::string own_program();
/// Whether a process has ended for sure: one of this boot of this machine and this namespace of processes, which is not
/// there any more. Of others nobody here knows: false.
bool has_ended(const std::string& identity);

}  // namespace trireme
