#include "tools/training/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "datasets/images/image.h"
#include "framework/io/json.h"
#include "tools/training/cluster_file.h"
#include "tools/training/from_options.h"
#include "tools/training/resume.h"

namespace trireme {
namespace {

constexpr std::int64_t record_every = 20;  // steps

/// A sample as the model sees it, as pixels again.
Tensor pixels_of(const Tensor& sample, const PixelScale& scale) {
  const std::vector<double> x = sample.to_vector();
  std::vector<double> pixels(x.size());
  const std::size_t channels = scale.mean.size();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = 255 * (x[i] * scale.std[i % channels] + scale.mean[i % channels]);
    pixels[i] = std::clamp(std::round(value), 0.0, 255.0);
  }
  return Tensor::of(pixels, {sample.dim(1), sample.dim(2), sample.dim(3)}, DType::u8);
}

}  // namespace

RunLog::RunLog(const TrainerOptions& options, const World& world, const RunClock& clock)
    : options_(options),
      clock_(clock),
      console_(!world.main(), options.run.progress, options.run.log_seconds),
      main_(world.main()) {}

void RunLog::open_run(const std::vector<std::string>& class_names) {
  if (!main_) return;
  dir_.emplace(options_.run.dir, options_.model, kept_settings(options_), options_.run.resume == "yes",
               clock_.simulated() != nullptr);
  if (options_.run.resume == "yes") return;
  dir_->write_classes(class_names);
  keep_settings({});
}

void RunLog::open_events(std::optional<std::int64_t> resumed) {
  EventFile::Seconds simulated;
  if (clock_.simulated()) simulated = [this] { return seconds(clock_.now()); };
  dir_->open_events(resumed, std::move(simulated));
}

void RunLog::train_step(const EpochMetrics& e, const StepMetrics& s, std::int64_t epoch, Index batches) {
  console_.progress(
      fmt::format("epoch {}/{}", epoch, options_.epochs), s.batch, batches,
      clock_.simulated()
          ? fmt::format("loss {:.4f}, {:.0f} images per simulated second, {:.6f} simulated seconds", e.loss,
                        e.images_per_s, seconds(clock_.now()))
          : fmt::format("loss {:.4f}, {:.0f} images/s, data {:.1f} %", e.loss, e.images_per_s, 100 * e.wait_share));
  // Of workers that share batches not each has rows of all.
  const std::int64_t before = std::exchange(last_step_, s.step);
  if (dir_ && s.step / record_every != (before < 0 ? s.step - 1 : before) / record_every)
    record({{"kind", "train"}, {"epoch", epoch}, {"step", s.step}, {"loss", s.loss}, {"lr", s.lr}}, e);
  if (EventFile* file = events()) file->tick();
}

void RunLog::epoch_end(const EpochMetrics& e, const Evaluation& test, std::int64_t epoch, std::int64_t step,
                       const Parameters& parameters) {
  if (!dir_) return;
  console_.log(fmt::format(
      "epoch {}/{}: train loss {:.4f}, accuracy {:.2f} %, test loss {:.4f}, test accuracy {:.2f} %, {}", epoch,
      options_.epochs, e.loss, e.accuracy, test.loss, test.accuracy(),
      clock_.simulated()
          ? fmt::format("{:.0f} images per simulated second, {:.6f} simulated seconds so far", e.images_per_s,
                        seconds(clock_.now()))
          : fmt::format("{:.0f} images/s, {:.1f} % of the time waiting for data", e.images_per_s, 100 * e.wait_share)));
  Json line{{"kind", "eval"},
            {"epoch", epoch},
            {"step", step},
            {"train_loss", e.loss},
            {"train_top1", e.accuracy},
            {"test_loss", test.loss},
            {"test_top1", test.accuracy()},
            {"test_correct", test.correct},
            {"test_samples", test.samples}};
  if (test.has_top5()) line["test_top5"] = test.percent(test.in_top5);
  record(std::move(line), e);
  if (!events() || options_.run.histograms == 0 || epoch % options_.run.histograms != 0) return;
  for (const auto& entry : parameters.entries())
    events()->histogram("weights/" + entry.name, step, entry.tensor.to_vector());
}

void RunLog::show_inputs(const Batch& batch, const PixelScale& scale, std::int64_t step) {
  if (inputs_shown_ || !events()) return;
  inputs_shown_ = true;
  const Shape& s = batch.x.shape();
  if (s.rank() != 4 || (s[3] != 1 && s[3] != 3)) return;
  for (Index i = 0; i < std::min<Index>(s[0], options_.run.images); ++i)
    events()->image(fmt::format("inputs/{}", i), step, encode_png(pixels_of(batch.x.rows(i, i + 1), scale)), s[1], s[2],
                    s[3]);
}

void RunLog::record(Json line, const EpochMetrics& e) {
  restore_if_removed();
  if (clock_.simulated()) {
    line["images_per_simulated_second"] = e.images_per_s, line["simulated_seconds"] = seconds(clock_.now());
  } else {
    line["images_per_s"] = e.images_per_s, line["wait_share"] = e.wait_share;
  }
  dir_->record(line);
}

void RunLog::keep_settings(std::optional<std::int64_t> overridden) {
  restore_if_removed();
  dir_->keep_settings(kept_settings(options_), overridden);
  if (clock_.simulated()) dir_->keep_cluster(cluster_toml(clock_.simulated()->cluster()));
}

void RunLog::restore_if_removed() {
  if (dir_->restore_if_removed(kept_settings(options_)))
    console_.log(
        fmt::format("run directory: {} was removed; it is made anew, its earlier metrics are lost", dir_->metrics()));
}

}  // namespace trireme
