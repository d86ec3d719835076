#include "tools/training/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "datasets/images/image.h"
#include "datasets/text/tokens.h"
#include "framework/io/json.h"
#include "kernels/core/suggest.h"
#include "parallel/comm/crash_report.h"
#include "parallel/comm/world/compare.h"
#include "tools/training/cluster_file.h"
#include "tools/training/from_options.h"
#include "tools/training/resume.h"

namespace trireme {
namespace {

constexpr const char* ml_file = "mllog.txt";

/// Converts a sample of the model's input back to pixels.
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
      console_(!world.main(), options.run.progress, options.run.log_seconds, options.run.log_format == "json"),
      main_(world.main()) {}

void RunLog::open_run(const Dataset& train, const std::vector<Metric>& metrics, bool validates) {
  validates_ = validates;
  const TextSource* text = text_of(train);
  if (train->tensors()) unit_ = text ? "tokens" : "samples";
  if (text) units_ = static_cast<double>(train->shape()[0]);
  if (!main_) return;
  const std::string split = validates ? "val_" : "test_";
  std::vector<std::string> columns, compared{split + "loss", "train_loss"};
  for (const Metric& metric : metrics)
    for (const MetricResult& result : metric.results()) columns.push_back(split + result.name);
  if (text) columns.insert(columns.end(), {split + "perplexity", split + "bits_per_byte"});
  compared.insert(compared.end(), columns.begin(), columns.end());
  if (validates) {
    for (const std::string& name : std::vector(columns)) columns.push_back("test_" + name.substr(split.size()));
    columns.insert(columns.end(), {"val_loss", "val_top1", "val_top5", "val_correct", "val_samples"});
  }
  if (text) columns.emplace_back(clock_.simulated() ? "tokens_per_simulated_second" : "tokens_per_s");
  if (train->classes() > 0 && !text) compared.insert(compared.end(), {split + "top1", "train_top1"});
  if (train->classes() > 5 && !text) compared.push_back(split + "top5");
  const std::string& best = options_.checkpoint.best;
  const bool known = best.empty() || std::ranges::find(compared, best.substr(best.starts_with('-'))) != compared.end();
  check(known, "checkpoint.best", "{}", [&] { return unknown_name(best.substr(best.starts_with('-')), compared); });
  check(best.empty() || !smaller_is_better(best) || best.starts_with('-'), "checkpoint.best",
        "'{}' keeps the checkpoint with the largest value, but smaller values are better; use '-{}'", best, best);
  dir_.emplace(options_.run.dir, options_.model, kept_settings(options_), options_.run.resume == "yes",
               clock_.simulated() != nullptr, std::move(columns), options_.checkpoint.best);
  if (options_.run.resume == "yes") return;
  write_labels(train);
  keep_settings({});
}

void RunLog::write_labels(const Dataset& train) {
  dir_->write_classes(train->class_names());
  const TextSource* text = text_of(train);
  if (text && text->tokenizer()) save_tokenizer(text->tokenizer(), dir_->path() + "/" + tokenizer_file);
}

void RunLog::keep_data(const Dataset& train, const std::string& record, bool overridden) {
  if (overridden) write_labels(train);
  dir_->keep_data(record);
}

std::string RunLog::agreed_directory(World& world) const {
  const std::string run = dir_ ? dir_->path() : options_.run.dir;
  const bool named = options_.run.dir.empty() && !clock_.simulated();  // rank 0 chooses the name
  return named ? broadcast_text(world.comm(), run, 0) : run;
}

void RunLog::open_events(std::optional<std::int64_t> resumed) {
  EventFile::Seconds simulated;
  if (clock_.simulated()) simulated = [this] { return seconds(clock_.now()); };
  dir_->open_events(resumed, std::move(simulated));
  events()->hyper_parameters(read_own_toml(to_toml(options_)), dir_->path());
}

void RunLog::ml(std::string_view kind, std::string_view key, const Json& value, std::int64_t epoch) {
  if (ml_) ml_->write(kind, key, value, epoch > 0 ? Json{{"epoch_num", epoch}} : Json::object());
}

void RunLog::begin(Step& step, NormScope scope, int replicas, const DatasetSource& train, const DatasetSource& test,
                   Index batches) {
  begun_ = true;
  if (!dir_ || !options_.run.mllog) return;
  ml_.emplace(dir_->path() + "/" + ml_file);
  if (!ml_->is_new()) return;
  const std::int64_t span = options_.data.batch / (scope == NormScope::global ? 1 : std::max(1, replicas));
  write_begin(*ml_, options_,
              {.train_samples = train.size(),
               .test_samples = test.size(),
               .steps_per_epoch = batches,
               .parameters = step.parameters().count(),
               .microbatches = step.plan().microbatches,
               .span = span},
              opened_);
}

void RunLog::rewind(const Progress& at) {
  if (!dir_) return;
  dir_->rewind(at.step);
  const std::string path = dir_->path() + "/" + ml_file;
  ml_.reset();
  MlLog::rewind(path, at.epoch);
  if (begun_ && options_.run.mllog) ml_.emplace(path);
}

void RunLog::end(bool preempted, bool whole) {
  if (!dir_) return;
  // MLPerf requires a run_stop. A resumed run removes it.
  if (ml_ && !preempted) ml_->write("INTERVAL_END", "run_stop", nullptr, {{"status", whole ? "success" : "aborted"}});
  if (events() && !preempted) events()->end_session(true);
  if (events()) events()->flush();
}

std::string RunLog::time_left(const EpochMetrics& e, const StepMetrics& s, Index batches) const {
  Index left = (options_.epochs - s.epoch) * batches + batches - s.batch;
  if (options_.run.max_steps > 0) left = std::min<Index>(left, options_.run.max_steps - s.step);
  const double rate = e.samples_per_s / static_cast<double>(options_.data.batch);
  const auto t = rate > 0 ? static_cast<std::int64_t>(static_cast<double>(left) / rate) : 0;
  return t < 86400 ? fmt::format("{}:{:02}:{:02}", t / 3600, t / 60 % 60, t % 60)
                   : fmt::format("{} d {} h", t / 86400, t / 3600 % 24);
}

void RunLog::train_step(const EpochMetrics& e, const StepMetrics& s, Index batches) {
  console_.progress(
      fmt::format("epoch {}/{}", s.epoch, options_.epochs), s.batch, batches,
      clock_.simulated()
          ? fmt::format("loss {:.4f}, {:.0f} {} per simulated second, {:.6f} simulated seconds", e.loss,
                        units_ * e.samples_per_s, unit_, seconds(clock_.now()))
          : fmt::format("loss {:.4f}, {:.0f} {}/s{}, ends in {}", e.loss, units_ * e.samples_per_s, unit_,
                        console_.draws_bar() ? "" : fmt::format(", data {:.1f} %, lr {:.4g}", 100 * e.wait_share, s.lr),
                        time_left(e, s, batches)));
  // If workers share batches, a worker does not have rows of every batch.
  const std::int64_t before = std::exchange(last_step_, s.step);
  if (dir_ && s.step / record_every != (before < 0 ? s.step - 1 : before) / record_every) {
    Json line{{"kind", "train"}, {"epoch", s.epoch}, {"step", s.step}, {"loss", s.loss}, {"lr", s.lr}};
    if (std::isfinite(s.grad_norm)) line["grad_norm"] = s.grad_norm;
    record(std::move(line), e);
  }
  if (EventFile* file = events()) file->tick();
}

bool RunLog::wants_weights(std::int64_t epoch) const {
  return options_.run.tensorboard && options_.run.histograms > 0 && epoch % options_.run.histograms == 0;
}

void RunLog::add(nlohmann::json& line, const Evaluation& found, const std::string& split) {
  if (found.is_classified()) {
    line[split + "top1"] = found.accuracy();
    line[split + "correct"] = found.correct;
    if (found.has_top5()) line[split + "top5"] = found.percent(found.in_top5);
  }
  line[split + "samples"] = found.samples;
  if (std::isfinite(found.loss)) line[split + "loss"] = found.loss;
  for (const MetricResult& m : found.metrics)
    if (std::isfinite(m.value)) line[split + m.name] = m.value;
}

void RunLog::test_end(const Progress& at, const Evaluation& test) {
  if (!dir_) return;
  restore_if_removed();
  Json line{{"kind", "test"}, {"epoch", at.epoch}, {"step", at.step}};
  add(line, test, "test_");
  dir_->record(line);
}

void RunLog::epoch_end(const EpochMetrics& e, const Evaluation& test, const Parameters& parameters) {
  if (!dir_) return;
  std::string told = fmt::format("train loss {:.4f}", e.loss);
  if (test.is_classified()) told += fmt::format(", accuracy {:.2f} %", e.accuracy);
  const char* split = validates_ ? "validation" : "test";
  told += fmt::format(", {} loss {:.4f}", split, test.loss);
  if (test.is_classified()) told += fmt::format(", {} accuracy {:.2f} %", split, test.accuracy());
  for (const MetricResult& m : test.metrics) told += fmt::format(", {} {:.4g}", m.name, m.value);
  console_.log(fmt::format(
      "epoch {}/{}: {}, {}", e.epoch, options_.epochs, told,
      clock_.simulated()
          ? fmt::format("{:.0f} {} per simulated second, {:.6f} simulated seconds so far", units_ * e.samples_per_s,
                        unit_, seconds(clock_.now()))
          : fmt::format("{:.0f} {}/s, {:.1f} % of the time waiting for data, steps of {:.3g} ms (95 %: {:.3g}, longest "
                        "{:.3g}), {:.0f} MB",
                        units_ * e.samples_per_s, unit_, 100 * e.wait_share, e.step_p50, e.step_p95, e.step_max,
                        static_cast<double>(resident_bytes()) / 1e6)));
  Json line{{"kind", "eval"}, {"epoch", e.epoch}, {"step", e.step}, {"train_loss", e.loss}};
  if (test.is_classified()) line["train_top1"] = e.accuracy;
  add(line, test, validates_ ? "val_" : "test_");
  record(std::move(line), e);
  ml("INTERVAL_END", "epoch_stop", nullptr, e.epoch);
  if (test.is_classified()) ml("POINT_IN_TIME", "eval_accuracy", test.accuracy() / 100, e.epoch);
  ml("INTERVAL_END", "eval_stop", nullptr, e.epoch);
  if (!events() || !wants_weights(e.epoch)) return;
  for (const auto& entry : parameters.entries())
    events()->histogram("weights/" + entry.name, e.step, entry.tensor.to_vector());
}

void RunLog::show_inputs(const Batch& batch, const DatasetSource& train, std::int64_t step) {
  if (inputs_shown_ || !events() || train.tensors()) return;
  inputs_shown_ = true;
  const Shape& s = batch.x.shape();
  if (s.rank() != 4 || (s[3] != 1 && s[3] != 3)) return;
  for (Index i = 0; i < std::min<Index>(s[0], options_.run.images); ++i)
    events()->image(fmt::format("inputs/{}", i), step, encode_png(pixels_of(batch.x.rows(i, i + 1), train.scale())),
                    s[1], s[2], s[3]);
}

void RunLog::record(Json line, const EpochMetrics& e) {
  restore_if_removed();
  if (unit_ == std::string_view("tokens"))
    line[clock_.simulated() ? "tokens_per_simulated_second" : "tokens_per_s"] = units_ * e.samples_per_s;
  if (clock_.simulated()) {
    line["images_per_simulated_second"] = e.samples_per_s;
    line["simulated_seconds"] = seconds(clock_.now());
  } else {
    line["images_per_s"] = e.samples_per_s;
    line["wait_share"] = e.wait_share;
    line["step_ms_p50"] = e.step_p50;
    line["step_ms_p95"] = e.step_p95;
    line["memory_mb"] = static_cast<double>(resident_bytes()) / 1e6;
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
    console_.log(fmt::format("run directory: {} was removed; it is created again, without the earlier metrics",
                             dir_->metrics()));
}

}  // namespace trireme
