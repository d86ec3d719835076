#include "tools/training/rollbacks.h"

#include <fmt/format.h>

#include <utility>

namespace trireme {

bool Rollbacks::tries_again(const Progress& here) {
  const std::optional<Progress> before = std::exchange(tried_, std::nullopt);
  if (before && before->step == here.step && before->epoch == here.epoch && before->batch == here.batch) {
    ++count_;
    return false;
  }
  tried_ = here;
  return true;
}

Progress Rollbacks::go_back(bool again, const std::string& path, const Progress& saved, const Progress& here) {
  if (again) {
    spikes_ = spikes_at_start_;
    return path_.empty() ? saved : start_;
  }
  Progress at = saved;
  if (at.epoch != here.epoch) at = {.step = at.step, .loss_scale = at.loss_scale, .good_steps = at.good_steps};
  at.epoch = here.epoch;
  at.batch = here.batch;
  at.samples = here.samples;
  path_ = path;
  start_ = at;
  spikes_.forget();
  spikes_at_start_ = spikes_;
  return at;
}

std::string Rollbacks::passed(const Progress& here) {
  if (!tried_ || here.step < tried_->step) return "";
  const std::int64_t step = std::exchange(tried_, std::nullopt)->step;
  ++count_;
  return fmt::format(
      "step {}: the same samples are finite this time, so the processor or memory had a transient fault; data and "
      "settings "
      "are fine ({} of {})",
      step, count_, most);
}

}  // namespace trireme
