#include "tools/training/train_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme {

Loss TrainMetrics::watching(const Loss& loss) {
  return Loss(
      [this, loss](const Tensor& logits, const Tensor& labels) {
        kept_.emplace_back(argmax(logits.detach()), labels.detach());
        return loss(logits, labels);
      },
      loss.ignored());
}

void TrainMetrics::open(const Step& step, Index batch, Index size) {
  open_ = at_, batch_ = batch, size_ = size;
  shares_ = step.plan().tickets.shares > 0;
  leaves_out_ = std::ranges::any_of(step.plan().programs, [](const Program& program) {
    return std::ranges::any_of(program.phases, [](const ProgramPhase& p) { return p.trigger.late; });
  });
}

/// The samples that the progress moves on by.
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
  if (rows > 0) passed_ = clock_.now() - start_;  // others have trained them, for whom this rank has waited
  at_.counted += rows, uncounted_ += rows, samples_ += rows;
}

TrainMetrics::StepReport TrainMetrics::run(Step& step, const Batch& batch) {
  StepReport report{.rows = reach(batch.index - open_.samples / batch_ + 1),
                    .own = batch.x.dim(0),
                    .apart = step.trains_apart(),
                    .metrics = {.lr = step.optimizer().rate(), .step = at_.step, .batch = at_.batch}};
  auto before = std::exchange(kept_, {});
  report.loss = HostCopy(step(batch.x, batch.y));
  if (const double norm = step.grad_norm(); !std::isnan(norm)) norm_ = norm;
  report.metrics.grad_norm = norm_;
  // A replayed step writes the predictions of the captured one anew.
  if (step.replayed() && kept_.empty()) kept_ = std::move(before);
  // The first of more than one per micro-batch is of a step that could not be captured.
  while (std::ssize(kept_) > step.plan().microbatches) kept_.erase(kept_.begin());
  for (const auto& [likeliest, labels] : kept_) report.predictions.emplace_back(HostCopy(likeliest), HostCopy(labels));
  if (!step.replayed()) kept_.clear();
  return report;
}

StepMetrics TrainMetrics::add(StepReport r) {
  r.metrics.loss = r.loss.item();
  for (auto& [predicted, labels] : r.predictions) {
    const std::vector<double> a = predicted.values(), b = labels.values();
    for (std::size_t row = 0; row < a.size(); ++row) mine_.correct += a[row] == b[row];
    mine_.samples += std::ssize(a);
  }
  const double loss = r.metrics.loss * static_cast<double>(r.rows);
  at_.loss += loss, at_.counted += r.rows;
  if (r.apart) mine_.loss += r.metrics.loss * static_cast<double>(r.own), guess_ += loss;
  uncounted_ += r.rows, samples_ += r.rows;
  passed_ = clock_.now() - start_;
  return r.metrics;
}

void TrainMetrics::sum_ranks(const RankShare& share, World& world) {
  const Counts all = sum_shares(std::exchange(mine_, {}), share.rank, world);
  check(all.samples == uncounted_ || (leaves_out_ && (all.samples > uncounted_) == shares_), "train",
        "counted the predictions of {} of {} samples", all.samples, uncounted_);
  // Where some predict nothing, their rows are taken to be as the others; where some are trained again, as the mean.
  const double repeated =
      shares_ && all.samples > 0 ? static_cast<double>(uncounted_) / static_cast<double>(all.samples) : 1;
  at_.correct += all.samples > 0 ? all.correct * uncounted_ / all.samples : 0, uncounted_ = 0;
  if (guess_ != 0 || shares_) at_.loss += all.loss * repeated - std::exchange(guess_, 0);
}

EpochMetrics TrainMetrics::epoch() const {
  const auto per = [](double sum, double count) { return count > 0 ? sum / count : 0; };
  const auto counted = static_cast<double>(at_.counted);
  std::vector<float> sorted = steps_;
  std::ranges::sort(sorted);
  const auto share = [&](std::size_t percent) {
    return sorted.empty() ? 0.0 : static_cast<double>(sorted[(sorted.size() - 1) * percent / 100]);
  };
  return {.loss = per(at_.loss, counted),
          .accuracy = 100 * per(static_cast<double>(at_.correct), counted),
          .images_per_s = per(static_cast<double>(samples_), seconds(passed_)),
          .wait_share = per(seconds(waited_), seconds(passed_)),
          .steps = std::ssize(sorted),
          .step_mean = per(std::accumulate(sorted.begin(), sorted.end(), 0.0), static_cast<double>(sorted.size())),
          .step_p50 = share(50),
          .step_p95 = share(95),
          .step_max = share(100)};
}

}  // namespace trireme
