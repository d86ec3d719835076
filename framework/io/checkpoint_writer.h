// CheckpointWriter: writes checkpoints on another thread while training continues (snapshot, then persist: CheckFreq,
// Mohan et al., FAST 2021). The checkpoints are as safe against crashes as those of save_checkpoint().
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
  /// all_gather: gathers a text of every rank, in the order of ranks, on a communicator for this object only, since a
  /// background thread calls it. Null: there is one rank.
  explicit CheckpointWriter(std::function<std::vector<std::string>(const std::string&)> all_gather);
  /// Waits for the current save and ignores its error.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// save_checkpoint() in the background. It waits for the previous save and throws its error if that failed. Then it
  /// copies what this rank writes to host memory, which the next save uses again, and returns. Collective with a shard,
  /// which SaveOptions must have if there are several ranks.
  void save(const std::string& run, const Parameters&, const Optimizer&, const TrainState&, SaveOptions);
  /// Waits until the last save is durable and returns its path (empty: there was none). Throws its error if it failed,
  /// once, and on all ranks.
  std::string wait();
  /// Whether a save is in progress, for which save() and wait() would wait.
  bool busy() const {
    return thread_.joinable() && under_way_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }
  /// Whether the save in progress has failed: wait() would throw. Ranks may return different answers at the same time.
  bool failed() const { return failed_; }
  double waited() const { return waited_; }  ///< seconds that the last save() waited for the previous save
  double copied() const { return copied_; }  ///< seconds that the last save() copied
  /// Begin and end of the last write that wait() has seen finish, in seconds of the steady clock; 0: none.
  std::pair<double, double> written() const { return written_; }

 private:
  std::function<std::vector<std::string>(const std::string&)> all_gather_;
  std::vector<Tensor> space_;
  std::string path_;
  std::future<std::string> under_way_;
  std::atomic<bool> failed_ = false;
  double waited_ = 0, copied_ = 0;
  std::pair<double, double> writing_, written_;  // writing_: set by the thread while it runs
  std::thread thread_;
};

}  // namespace trireme
