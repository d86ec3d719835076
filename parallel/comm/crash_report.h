// Crash reports: a file for each rank that fails by a signal or an exception. It holds the rank's last actions and its
// stack.
#pragma once
#include <pthread.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace trireme {

/// Resident memory of this process in bytes; 0 if the system does not report it.
std::int64_t resident_bytes();
/// Sets the folder of the reports: DIRECTORY/rank_N.json. The first report creates the folder; without this call none
/// is written. The last call of any thread counts. directory: at most 4000 bytes.
void set_crash_directory(const std::string& directory);
/// From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT (of std::terminate too) write a report for each rank of this
/// process, and then take their usual action. If the process cannot allocate memory, SIGSEGV and SIGBUS stop it with
/// the exit status of the kind out_of_memory instead. An uncaught std::bad_alloc does the same.
void report_crashes();
/// Stops the process with the exit status of the kind communicator, by SIGABRT in `thread`, whose stack the reports
/// then contain. tell: first print the reason to stderr. and_process: a process of this host to kill after the reports
/// are written; 0: none. Without report_crashes() SIGABRT kills the process. Does not return.
[[noreturn]] void crash(pthread_t thread, const std::string& reason, bool tell = true, int and_process = 0);
/// Sets what crash() calls after the reports are written, with its reason, in its own thread; empty: nothing. crash()
/// must not run meanwhile. It does not make the call if it kills another process.
void leave_at_crash(std::function<void(const std::string& reason)> call);
/// Writes the report of this thread's rank, without a stack: {"rank", "ranks", "host", "process", "reason", "kind",
/// "phase", "step", "resident_bytes", "stack": ["library+0x12 (function)", ...], "now", "waits_since", "entries":
/// [{"number", "what", "begun", "ended"}, ...]}; times are in microseconds, the oldest entry comes first. "ended" is
/// missing for an entry in progress, "waits_since" if the rank does not wait. Write errors are ignored. Safe in a
/// signal handler, except for the names of functions. kind: name_of() of the error's kind; "kind" is missing if it is
/// empty, and after a signal that crash() did not send.
void write_crash_report(const char* reason, std::string_view kind = "");

}  // namespace trireme
