#include "framework/io/checkpoint_writer.h"

#include <chrono>

#include "framework/io/checkpoint_save.h"
#include "kernels/core/thread.h"

namespace trireme {

using Clock = std::chrono::steady_clock;
static double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

CheckpointWriter::CheckpointWriter(std::function<std::vector<std::string>(const std::string&)> all_gather)
    : all_gather_(std::move(all_gather)) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::save(const std::string& run, const Parameters& p, const Optimizer& o, const TrainState& state,
                            SaveOptions options) {
  check(options.shard.has_value(), "checkpoint",
        "the options have no shard, which saving in the background needs: set SaveOptions::shard");
  const auto start = Clock::now();
  wait();
  waited_ = since(start);
  const auto copy = Clock::now();
  auto input = std::make_shared<detail::CheckpointInput>(p, o, state, options);
  input->copy(space_);
  copied_ = since(copy);
  options.shard.reset();
  options.local.clear();  // they share memory with the run
  std::packaged_task<std::string()> task([this, run, input = std::move(input), options = std::move(options)] {
    const auto now = [] { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); };
    writing_ = {now(), 0};
    try {
      const std::string path = detail::write_checkpoint(
          run, *input, [&] { return input->shards(); }, options, all_gather_);
      writing_.second = now();
      return path;
    } catch (...) {
      failed_ = true;
      throw;
    }
  });
  under_way_ = task.get_future();
  thread_ = start_thread("checkpoint", std::move(task));
}

std::string CheckpointWriter::wait() {
  if (!thread_.joinable()) return path_;
  thread_.join();
  failed_ = false;
  written_ = writing_;
  return path_ = under_way_.get();
}

}  // namespace trireme
