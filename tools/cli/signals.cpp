#include "tools/cli/signals.h"

#include <csignal>
#include <cstdio>
#include <ctime>

#include "kernels/core/thread.h"

namespace trireme {

namespace {

sigset_t held() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaddset(&set, number);
  return set;
}

}  // namespace

Signals::Signals() {
  const sigset_t set = held();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = start_thread<std::jthread>("signals", [this](const std::stop_token& end) {
    const sigset_t wanted = held();
    constexpr timespec most{.tv_sec = 0, .tv_nsec = 100'000'000};
    while (!end.stop_requested())
      if (const int got = sigtimedwait(&wanted, nullptr, &most); got > 0) note(got);
  });
}

std::string Signals::take() {
  const sigset_t set = held();
  constexpr timespec now{};
  if (const int got = sigtimedwait(&set, nullptr, &now); got > 0) note(got);  // a signal sent to this thread alone
  if (stop_) return "stop";
  int left = saves_;
  while (left > 0 && !saves_.compare_exchange_weak(left, left - 1)) {}
  return left > 0 ? "save" : "";
}

void Signals::note(int signal) {
  if (signal == SIGUSR2) return void(++saves_);
  if (signal == SIGINT && interrupted_.exchange(true)) {
    std::signal(SIGINT, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    std::raise(SIGINT);
  }
  if (!stop_.exchange(true))
    std::fprintf(stderr, "trireme: SIG%s: all ranks stop after a step and save%s\n", sigabbrev_np(signal),
                 signal == SIGINT ? "; send it again to stop at once" : "");
}

}  // namespace trireme
