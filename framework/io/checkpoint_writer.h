// CheckpointWriter: checkpoints that are written while training goes on (CheckFreq, Mohan et al., FAST 2021: snapshot,
// then persist). What a save says of crashes holds for these, too.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/io/checkpoint.h"

namespace trireme {

class CheckpointWriter {
 public:
  /// all_gather: every rank's text, by rank, of a communicator that nobody else uses: it is called on a thread of this
  /// object's. Null: there is one rank.
  explicit CheckpointWriter(std::function<std::vector<std::string>(const std::string&)> all_gather);
  /// Waits for the save under way, whose error nobody is left to be told.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// save_checkpoint(), whose writing goes on behind this call: it waits for the save before and copies what this rank
  /// writes, to memory of the host that is kept for the next time. Throws what the save before has failed with. A
  /// collective call with a shard, which it must have.
  void save(const std::string& run, const Parameters&, const Optimizer&, const TrainState&, SaveOptions);
  /// Waits until the last save is durable. Returns its path (empty: there was none), or throws what it has failed with;
  /// that once, and on all ranks.
  std::string wait();
  /// Whether a save is under way, for which save() and wait() would wait.
  bool busy() const {
    return thread_.joinable() && under_way_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }
  /// Whether the save under way has failed: wait() would throw. Ranks learn it at different moments.
  bool failed() const { return failed_; }
  double waited() const { return waited_; }  ///< seconds that the last save() waited for the one before
  double copied() const { return copied_; }  ///< and copied
  /// When the last write whose end wait() has seen began and ended, in seconds of the steady clock; 0: none has.
  std::pair<double, double> written() const { return written_; }

 private:
  std::function<std::vector<std::string>(const std::string&)> all_gather_;
  std::vector<Tensor> space_;
  std::string path_;
  std::future<std::string> under_way_;
  std::atomic<bool> failed_ = false;
  double waited_ = 0, copied_ = 0;
  std::pair<double, double> writing_, written_;  // writing_: of the thread, while it runs
  std::thread thread_;
};

}  // namespace trireme
