#include "tools/training/prediction.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "framework/io/json.h"
#include "kernels/core/text.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/world/compare.h"
#include "parallel/profile/measure.h"
#include "tools/training/from_options.h"

namespace trireme {
namespace {

constexpr int unsettled = 3, runs = 5;
constexpr std::size_t most_kept = 4096;

double now() { return static_cast<double>(FlightRecorder::nanoseconds()) / 1e9; }

Index rows_of(const TrainerOptions& options, const Plan& plan) {
  return std::max<Index>(1, options.data.batch / size_along(plan.axes, "data") / plan.microbatches);
}

/// The median of a member over steps.
double median(const std::vector<StepTimes>& all, double StepTimes::*of) {
  std::vector<double> values;
  for (const StepTimes& t : all) values.push_back(t.*of);
  return measured(values).value;
}

StepTimes medians(const std::vector<StepTimes>& all) {
  StepTimes result;
  for (double StepTimes::*of : {&StepTimes::forward, &StepTimes::backward, &StepTimes::loss, &StepTimes::update,
                                &StepTimes::other, &StepTimes::host})
    result.*of = median(all, of);
  std::map<std::string, std::vector<double>> waits;
  for (const StepTimes& t : all)
    for (const auto& [axis, seconds] : t.waits) waits[axis].push_back(seconds);
  for (auto& [axis, seconds] : waits) {
    seconds.resize(all.size());  // zeros of steps without
    result.waits[axis] = measured(seconds).value;
  }
  return result;
}

struct Row {
  std::string name;
  double predicted, measured;  // seconds
};

std::vector<Row> rows_of(const StepTimes& predicted, const StepTimes& measured) {
  std::vector<Row> rows{{"forward", predicted.forward, measured.forward},
                        {"backward", predicted.backward, measured.backward},
                        {"loss", predicted.loss, measured.loss},
                        {"update", predicted.update, measured.update},
                        {"other computation", predicted.other, measured.other}};
  std::map<std::string, Row> waits;
  for (const auto& [axis, seconds] : predicted.waits) waits[axis] = {"waits along " + axis, seconds, 0};
  for (const auto& [axis, seconds] : measured.waits)
    waits.try_emplace(axis, Row{"waits along " + axis, 0, 0}).first->second.measured = seconds;
  for (const auto& [axis, row] : waits) rows.push_back(row);
  rows.push_back({"host", predicted.host, measured.host});
  std::erase_if(rows, [](const Row& r) { return r.predicted < 5e-7 && r.measured < 5e-7; });
  return rows;
}

std::string percent(double predicted, double measured) {
  return predicted > 0 ? fmt::format("{:+.1f} %", 100 * (measured / predicted - 1)) : "";
}

}  // namespace

Prediction::Prediction(const TrainerOptions& options, World& world, const Step& step, Device device, bool program)
    : options_(options), world_(world), device_(device), program_(program) {
  on_ = options.run.predict && world.size() > 1 && !world.clock() && device.kind == DeviceKind::cpu &&
        !step.trains_apart() && step.plan().tickets.shares == 0;
}

bool Prediction::is_looked_at() const {
  const std::int64_t n = steps_ - unsettled;  // each eighth, in long runs powers of two
  return on_ && n > 0 && (n <= 256 ? n % 8 == 1 : (n & (n - 1)) == 0);
}

void Prediction::before(Step& step) {
  if (!on_) return;
  ++steps_;
  if (is_looked_at()) step.record(true);
  begun_ = now();
}

void Prediction::after(Step& step) {
  if (!on_) return;
  const double took = now() - begun_;
  ran_ += took;
  if (is_looked_at()) {
    const Timeline timeline = step.timeline();
    step.record(false);
    times_.push_back(times_of(step.plan(), timeline, took));
  } else if (steps_ > unsettled) {
    if (seconds_.size() < most_kept)
      seconds_.push_back(took);
    else
      seconds_[static_cast<std::size_t>(steps_) % most_kept] = took;
  }
}

std::string Prediction::why_not_measured(Step& step, double seconds) const {
  if (program_) return "the model is the program's own";
  if (step.is_tensor_parallel()) return "layers are divided over ranks";
  const double bytes = static_cast<double>(step.parameters().count() * size_of(step.parameters().dtype())) *
                       static_cast<double>(2 + step.optimizer().state().size()) * world_.local_size();
  if (bytes > static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 4)
    return fmt::format("another copy of the model on each rank would take {:.1f} GB of this host's memory",
                       bytes / 1e9);
  const double rows = static_cast<double>(step.plan().microbatches), would = seconds / rows * (3 * runs + 3) * 2;
  if (would > std::max(2.0, ran_ / 20)) return fmt::format("it would take some {:.0f} s", would);
  return "";
}

StepTimes Prediction::measure(Mesh& mesh, Step& step, const TrainerInput& input) const {
  const Plan& plan = step.plan();
  const Index rows = rows_of(options_, plan);
  const auto batch = [&](Index n) {
    LoaderOptions from = loader_options(options_, input, {}, device_);
    from.batch = n, from.workers = 0;
    const auto first = Loader(input.train, from).begin();
    return std::pair(first->x, first->y);
  };
  const ModelProfile profile =
      measure_parts_of(mesh, plan,
                       {.model = [&] { return make_model(options_, options_for(*input.train), device_); },
                        .loss = input.loss ? input.loss : make_loss(options_),
                        .optimizer = input.optimizer ? *input.optimizer : make_optimizer(options_, 1000),
                        .updates = {.clip_norm = options_.optim.clip_norm},
                        .batch = batch,

                        .runs = runs},
                       rows);
  PredictStepOptions how = measure_calls_of(mesh, plan, step.optimizer().steps() | 1, runs);
  how.jitter = jitter_of(profile), how.steps = 16;
  how.rows = rows, how.element = size_of(step.parameters().dtype());
  return predict_step(plan, profile, how);
}

void Prediction::finish(Mesh& mesh, Step& step, const TrainerInput& input, RunLog& log) {
  if (!on_ || seconds_.empty() || times_.empty()) return;
  const double whole = measured(seconds_).value;
  StepTimes was = medians(times_);
  was.step = whole;
  double told = was.forward + was.backward + was.loss + was.update + was.other;
  for (const auto& [axis, seconds] : was.waits) told += seconds;
  was.host = std::max(0.0, whole - told);
  std::string why = broadcast_text(world_.comm(), why_not_measured(step, whole), 0);
  StepTimes predicted;
  if (why.empty()) {
    try {
      predicted = measure(mesh, step, input);
    } catch (const Error& e) { why = e.what(); }
  }
  std::string text = fmt::format("predicted beside measured: milliseconds of a step, mean of {} ranks, of {} steps\n",
                                 world_.size(), times_.size());
  Json kept = {{"ranks", world_.size()}, {"steps", times_.size()}, {"why_not", why}};
  std::vector<Row> rows = rows_of(predicted, was);
  const auto apart =
      std::ranges::max_element(rows, {}, [](const Row& r) { return std::abs(r.measured - r.predicted); });
  const std::string most = apart == rows.end() ? "" : apart->name;
  rows.push_back({"step", predicted.step, was.step});
  for (const Row& r : rows) {
    text += why.empty() ? fmt::format("  {:<24} {:>10.3f} {:>10.3f} {:>9}\n", r.name, 1e3 * r.predicted,
                                      1e3 * r.measured, percent(r.predicted, r.measured))
                        : fmt::format("  {:<24} {:>10} {:>10.3f}\n", r.name, "–", 1e3 * r.measured);
    kept["rows"].push_back({{"name", r.name}, {"predicted_s", r.predicted}, {"measured_s", r.measured}});
  }
  text += why.empty() ? fmt::format("  they part most in: {}", most) : fmt::format("  not predicted: {}", why);
  for (const std::string& line : split_text(text, '\n')) log.console().log(line);
  if (log.writes()) log.dir().write_prediction(kept);
}

}  // namespace trireme
