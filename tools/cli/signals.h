// Signals: SIGTERM, SIGINT and SIGUSR1 ask a training to save and stop; SIGUSR2 asks it to save and continue.
#pragma once
#include <atomic>
#include <string>
#include <thread>

namespace trireme {

class Signals {
 public:
  /// Blocks these signals in this thread and in threads that it starts later; a separate thread receives them. A second
  /// SIGINT ends the process at once.
  Signals();
  /// Value of TrainerInput::request: "stop" after the first signal that asks to stop; "save" once per SIGUSR2; else "".
  /// Any rank's thread may call it.
  std::string take();

 private:
  void note(int signal);
  std::atomic<bool> stop_ = false, interrupted_ = false;
  std::atomic<int> saves_ = 0;
  std::jthread thread_;  // last: its thread uses the other members
};

}  // namespace trireme
