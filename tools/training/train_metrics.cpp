#include "tools/training/train_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/ops/ops.h"
#include "framework/tensor/batch.h"
#include "parallel/comm/world/metric_sums.h"
#include "parallel/runtime/step_probe.h"
#include "tools/training/evaluate.h"

namespace trireme {

StepOptions::KeepOutputs TrainMetrics::keep(Index classes) {
  classes_ = classes;
  return [classes](const Tensor& prediction, const Tensor& target) {
    if (scores_classes(prediction, target, classes)) return argmax(prediction);
    const BatchContext* batch = prediction.batch();
    const Index rows = batch && batch->samples ? batch->samples.numel() : prediction.rank() > 0 ? prediction.dim(0) : 1;
    return Tensor::zeros({rows}, DType::u8);
  };
}

void TrainMetrics::open(Step& step, Index batch, Index size) {
  open_ = at_;
  batch_ = batch;
  size_ = size;
  shares_ = step.plan().tickets > 0;
  leaves_out_ = std::ranges::any_of(step.plan().programs, [](const Program& program) {
    return std::ranges::any_of(program.phases, [](const ProgramPhase& p) { return p.trigger.late; });
  });
}

/// Moves the progress by that many batches, and returns its samples.
Index TrainMetrics::reach(Index batches) {
  if (batches <= at_.step - open_.step) return 0;
  const Index before = at_.samples;
  at_.step = open_.step + batches;
  at_.batch = open_.samples / batch_ + batches;
  at_.samples = std::min(open_.samples + batches * batch_, size_);
  return at_.samples - before;
}

void TrainMetrics::close(Index batches) {
  const Index rows = reach(batches);
  if (rows > 0) passed_ = clock_.now() - start_;  // other ranks trained these rows while this rank waited
  at_.counted += rows;
  uncounted_ += rows;
  samples_ += rows;
}

TrainMetrics::StepReport TrainMetrics::run(Step& step, const Batch& batch) {
  StepReport report{
      .rows = reach(batch.index - open_.samples / batch_ + 1),
      .own = batch.x.dim(0),
      .apart = StepProbe(step).trains_apart(),
      .metrics = {.lr = step.optimizer().rate(), .step = at_.step, .batch = at_.batch, .epoch = at_.epoch + 1}};
  report.loss = HostCopy(step(batch.x, batch.y));
  report.metrics.grad_norm = StepProbe(step).grad_norm();
  const Tensor kept = StepProbe(step).outputs();
  if (!kept) return report;
  report.predicted_rows = kept.dim(0);
  if (kept.dtype() != DType::u8) {
    report.predicted = HostCopy(kept);
    report.labels = HostCopy(StepProbe(step).targets());
  }
  return report;
}

StepMetrics TrainMetrics::add(StepReport r) {
  r.metrics.loss = r.loss.item();
  mine_.counts.resize(2);
  mine_.sums.resize(1);
  mine_.samples += r.predicted_rows;
  if (r.predicted) {
    const std::vector<double> a = r.predicted.values(), b = r.labels.values();
    for (std::size_t i = 0; i < a.size(); ++i) {
      mine_.counts[0] += a[i] == b[i];
      mine_.counts[1] += b[i] >= 0 && b[i] < static_cast<double>(classes_);
    }
  }
  const double loss = r.metrics.loss * static_cast<double>(r.rows);
  at_.loss += loss;
  at_.counted += r.rows;
  if (r.apart) {
    mine_.sums[0].add(r.metrics.loss * static_cast<double>(r.own));
    guess_ += loss;
  }
  uncounted_ += r.rows;
  samples_ += r.rows;
  passed_ = clock_.now() - start_;
  return r.metrics;
}

void TrainMetrics::sum_ranks(const RankShare& share, World& world) {
  const MetricState all = sum_over_ranks(std::exchange(mine_, {}), share.rank, world);
  check(!keeps_ || all.samples == uncounted_ || (leaves_out_ && (all.samples > uncounted_) == shares_),
        ErrorKind::internal, "train", "counted the predictions of {} of {} samples", all.samples, uncounted_);
  // Rows without predictions are assumed to be as the others. Rows that are trained again count with the mean.
  const double repeated =
      shares_ && all.samples > 0 ? static_cast<double>(uncounted_) / static_cast<double>(all.samples) : 1;
  const auto of_all = [&](std::size_t i) { return all.samples > 0 ? all.count(i) * uncounted_ / all.samples : 0; };
  at_.correct += of_all(0);
  at_.labels += of_all(1);
  uncounted_ = 0;
  if (guess_ != 0 || shares_) at_.loss += all.sum(0) * repeated - std::exchange(guess_, 0);
}

void TrainMetrics::take_latest(World& world) {
  if (!clock_.simulated()) return;
  const ClockPause pause(clock_);
  const Tensor latest = Tensor::full({1}, static_cast<double>(passed_), DType::f64);
  world.comm().all_reduce(latest, ReduceOp::max).wait();
  passed_ = static_cast<Nanoseconds>(latest.item());
}

EpochMetrics TrainMetrics::epoch() const {
  const auto per = [](double sum, double count) { return count > 0 ? sum / count : 0; };
  const auto counted = static_cast<double>(at_.counted);
  std::vector<float> sorted = steps_;
  std::ranges::sort(sorted);
  const auto share = [&](std::size_t percent) {
    return sorted.empty() ? 0.0 : static_cast<double>(sorted[(sorted.size() - 1) * percent / 100]);
  };
  return {.epoch = at_.epoch + 1,
          .step = at_.step,
          .loss = per(at_.loss, counted),
          .accuracy = 100 * per(static_cast<double>(at_.correct), static_cast<double>(at_.labels)),
          .samples_per_s = per(static_cast<double>(samples_), seconds(passed_)),
          .wait_share = per(seconds(waited_), seconds(passed_)),
          .steps = std::ssize(sorted),
          .step_mean = per(std::accumulate(sorted.begin(), sorted.end(), 0.0), static_cast<double>(sorted.size())),
          .step_p50 = share(50),
          .step_p95 = share(95),
          .step_max = share(100)};
}

}  // namespace trireme
