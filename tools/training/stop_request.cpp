#include "tools/training/stop_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/core/environment.h"
#include "parallel/runtime/step_flags.h"

namespace trireme {

namespace {

/// Seconds until the end of the Slurm job (SLURM_JOB_END_TIME, Unix time); none: no job, or no end.
std::optional<double> slurm_seconds() {
  const double end = environment_number("SLURM_JOB_END_TIME").value_or(0);
  if (end <= 0) return {};
  return end - std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

StopRequest::StopRequest(std::function<std::string()> request, const TrainerOptions& options, const World& world)
    : request_(std::move(request)), minutes_(options.checkpoint.minutes > 0), main_(world.main()), last_(Clock::now()) {
  if (options.parallel.virtual_ranks > 0) return;
  std::optional<double> limit = slurm_seconds();
  const double own = options.run.time_limit;
  if (own > 0) limit = limit ? std::min(*limit, own) : own;
  if (limit) end_ = last_ + std::chrono::duration_cast<Clock::duration>(Seconds(*limit));
}

std::vector<std::string> StopRequest::flags() const {
  return may_ask() || minutes_ ? std::vector<std::string>{"stop", "save"} : std::vector<std::string>{};
}

/// Whether the time up to the next check, plus a save, may exceed the limit. Both are estimated by the longest time
/// between two checks so far, with saves and evaluations; so twice that time is reserved.
bool StopRequest::is_late() {
  const auto now = Clock::now();
  longest_ = std::max<Seconds>(longest_, now - last_);
  last_ = now;
  constexpr Seconds least(1);
  return main_ && end_ && now + 2 * longest_ + least >= *end_;
}

void StopRequest::take(Step& step, Console& console) {
  std::string flag = request_ ? request_() : "";
  const bool late = is_late();
  if (flag.empty() && late) flag = "stop";
  if (std::exchange(save_, false) && flag.empty() && !step.plan().flags.empty()) return StepFlags(step).raise("save");
  if (flag.empty()) return;
  if (late && !std::exchange(asked_, true)) console.log("the time limit is near; all ranks stop after a step and save");
  if (!step.plan().flags.empty()) return StepFlags(step).raise(flag);
  if (!wanted_) console.log(fmt::format("asked to {}: after all ranks have finished these batches", flag));
  wanted_ = wanted_ || flag == "stop";
}

void StopRequest::meet(Step& step, World& world, Console& console) {
  if (!may_ask() || !step.plan().flags.empty()) return;
  take(step, console);
  step.flush();
  const Tensor wanted = Tensor::full({1}, wanted_ ? 1 : 0, DType::f64);
  world.comm().all_reduce(wanted, ReduceOp::max).wait();
  agreed_ = wanted.item() > 0;
}

}  // namespace trireme
