// trireme: train, launch, study, doctor, report, eval, predict, generate, pack, import, export, bench, plan,
// simulate, verify, info.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "kernels/core/error.h"
#include "parallel/comm/crash_report.h"
#include "tools/cli/run.h"

namespace {

/// Returns `status`, or the status of a file error if stdout could not be written.
int after_output(int status) {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return status;
  if (status == 0)
    std::fprintf(stderr, "trireme: standard output: the results could not be written: %s\n",
                 std::strerror(errno != 0 ? errno : EIO));
  return status == 0 ? trireme::exit_status(trireme::ErrorKind::file) : status;
}

}  // namespace

int main(int argc, char** argv) {
  trireme::report_crashes();
  std::signal(SIGXFSZ, SIG_IGN);  // writing beyond the file-size limit then throws an error with the path instead of
                                  // killing the process
  try {
    return after_output(trireme::run_command_line(argc, argv));
  } catch (const std::exception&) {
    std::fprintf(stderr, "trireme: %s\n", trireme::current_message().c_str());
    return trireme::exit_status(trireme::current_kind());
  }
}
