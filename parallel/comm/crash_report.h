// Crash reports: a file for each rank that fails, by a signal or an exception: what it did last, and where it was.
#pragma once
#include <pthread.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// Resident memory of this process; 0 where the system does not tell.
std::int64_t resident_bytes();
/// Where reports go: DIRECTORY/rank_N.json, made when the first is written; before this call none is. The last call
/// counts, of any thread. At most 4000 bytes.
void set_crash_directory(const std::string& directory);
/// From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT (of std::terminate too) write a report for each rank of this
/// process, and then do what they would have done. SIGSEGV and SIGBUS of a process that gets no more memory end it with
/// the exit status of the kind out_of_memory instead, as does a std::bad_alloc that nothing catches.
void report_crashes();
/// Ends the process with the exit status of the kind communicator, by SIGABRT in that thread, whose stack the reports
/// then have. tell: the reason is printed to stderr before. and_process: a process of this host, which is killed when
/// the reports are written; 0: none. Without report_crashes() the process ends by SIGABRT. Does not return.
[[noreturn]] void crash(pthread_t thread, const std::string& reason, bool tell = true, int and_process = 0);
/// Writes the report of this thread's rank, without a stack: {"rank", "ranks", "host", "process", "reason", "kind",
/// "phase", "step", "resident_bytes", "stack": ["library+0x12 (function)", ...], "now", "waits_since", "entries":
/// [{"number", "what", "begun", "ended"}, ...]}; times in microseconds, "ended" and "waits_since" are missing where an
/// entry is under way and where the rank does not wait; the oldest entry first. What cannot be written is not. Safe in
/// a signal handler, but for the names of functions. kind: name_of() the error's kind; "kind" is missing where it is
/// empty, and after a signal that crash() did not send.
void write_crash_report(const char* reason, std::string_view kind = "");

}  // namespace trireme
