// Faults in the system calls of a save: they pass through the shim of save_faults.cpp, which can end the process, fail,
// be interrupted or write short at any of them.
#pragma once
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "tests/support/catch.h"

namespace trireme::test {

enum class Fault { none, die, error, interrupt, short_write };
struct Shim {
  std::atomic<Fault> fault = Fault::none;
  std::atomic<int> at = 0, calls = 0, code = 0;  ///< the at-th call (from 1); 0: every call
  void arm(Fault what, int at_call = 0, int error = 0) {
    at = at_call;
    calls = 0;
    code = error;
    fault = what;
  }
};
inline Shim shim;

/// Runs body with the shim armed.
template <class F>
void with_fault(Fault fault, int at, int code, F body) {
  shim.arm(fault, at, code);
  try {
    body();
  } catch (...) {
    shim.fault = Fault::none;
    throw;
  }
  shim.fault = Fault::none;
}

/// Runs save in a process of its own that ends at the at-th call. False: there were fewer.
template <class F>
bool dies_at(int at, F save) {
  const pid_t child = fork();
  if (child == 0) {
    shim.arm(Fault::die, at);
    save();
    ::syscall(SYS_exit_group, 0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE((WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 9));
  return WEXITSTATUS(status) == 9;
}

}  // namespace trireme::test
