#include "tools/training/saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "framework/io/file.h"
#include "parallel/comm/call.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/world/compare.h"

namespace trireme {

Saver::Saver(const TrainerOptions& options, World& world)
    : options_(options),
      kept_(std::max<std::int64_t>(options.checkpoint.keep, options.run.on_nan == "rollback" ? 2 : 1)),
      main_(world.main()) {
  if (!options.checkpoint.async || world.clock()) return;
  if (world.size() > 1) comm_ = world.comm().split(0, world.rank());
  const auto gather = [this](const std::string& mine) {
    scale_timeouts(slow_phase);  // for the writer's thread
    meets_ = true;
    auto texts = gather_texts(*comm_, mine);
    meets_ = false;
    return texts;
  };
  writer_ = comm_ ? std::make_unique<CheckpointWriter>(gather) : std::make_unique<CheckpointWriter>(nullptr);
}

void Saver::check_room(RunLog& log, Step& step) {
  if (!log.writes()) return;
  const Parameters& parameters = step.parameters();
  double bytes = static_cast<double>(parameters.count() * size_of(parameters.dtype()));
  bytes *= static_cast<double>(1 + step.optimizer().state().size());
  for (const auto& buffer : parameters.buffers())  // of all stages: their values may be on other ranks
    bytes += static_cast<double>(buffer.tensor.numel() * size_of(buffer.tensor.dtype()));
  check_writable(log.dir().checkpoints(), static_cast<std::size_t>(2 * bytes));
  const auto free = static_cast<double>(std::filesystem::space(log.dir().checkpoints()).available);
  const auto kept = static_cast<double>(kept_ + 2);  // the best, and the one being written
  if (free < kept * bytes)
    log.console().log(fmt::format("warning   {} has {:.1f} GB free, but may have to hold {} checkpoints of {:.1f} GB",
                                  log.dir().path(), free / 1e9, kept, bytes / 1e9));
}

void Saver::save(RunLog& log, Step& step, const TrainState& state, std::map<std::string, Tensor> own) {
  SaveOptions how{.keep_last = static_cast<int>(kept_),
                  .keep_every = options_.checkpoint.keep_every,
                  .best = log.writes() && log.dir().best_step() == state.step,
                  .shard = step.checkpoint_shard(),
                  .local = std::move(own)};
  const std::string run = log.writes() ? log.dir().path() : "";
  finish();
  if (writer_)
    writer_->save(run, step.parameters(), step.optimizer(), state, std::move(how));
  else
    path_ = save_checkpoint(run, step.parameters(), step.optimizer(), state, how);
  last_ = Clock::now();
}

std::string Saver::wait() {
  finish();
  return writer_ ? writer_->wait() : path_;
}

void Saver::finish() const {
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  while (writer_ && writer_->busy()) {
    if (!meets_) pause();
    std::optional<FlightRecorder::Wait> waits;
    if (meets_) waits.emplace();
    while (meets_ && writer_->busy()) pause();
  }
}

bool Saver::is_due() const {
  if (writer_ && writer_->failed()) return true;
  const double minutes = options_.checkpoint.minutes;
  return main_ && minutes > 0 && Clock::now() - last_ >= std::chrono::duration<double, std::ratio<60>>(minutes);
}

}  // namespace trireme
