// Signals: SIGTERM, SIGINT and SIGUSR1 ask a training to stop where it can go on later, SIGUSR2 to save.
#pragma once
#include <atomic>
#include <string>
#include <thread>

namespace trireme {

class Signals {
 public:
  /// From now on they wait to be taken, in this thread and those that it starts; a thread takes them. Of SIGINT a
  /// second one ends the process at once.
  Signals();
  /// TrainerInput::request: "stop" from the first signal on that asks for it, "save" once per signal, "" for neither.
  /// Any rank's thread may ask.
  std::string take();

 private:
  void note(int signal);
  std::atomic<bool> stop_ = false, interrupted_ = false;
  std::atomic<int> saves_ = 0;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace trireme
