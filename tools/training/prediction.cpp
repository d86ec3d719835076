#include "tools/training/prediction.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "framework/io/json.h"
#include "kernels/core/text.h"
#include "parallel/async/channel_plan.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/world/compare.h"
#include "parallel/profile/measure.h"
#include "parallel/runtime/step_probe.h"
#include "tools/training/from_options.h"
#include "tools/training/machine_file.h"

namespace trireme {
namespace {

constexpr int unsettled = 3, most_runs = 5;
constexpr std::size_t most_kept = 4096;

double now() { return static_cast<double>(FlightRecorder::nanoseconds()) / 1e9; }

/// Rows of a micro-batch on a rank.
Index rows_of(const TrainerOptions& options, const Plan& plan) {
  const auto trains = std::ranges::find(plan.programs, false, &Program::serves);
  const int ranks = trains == plan.programs.end() ? 1 : plan.size(*trains, "data");
  return std::max<Index>(1, options.data.batch / ranks / plan.microbatches);
}

/// Median if all steps are alike, else the mean, because rare steps count, too.
double typical(const std::vector<double>& seconds, bool alike) {
  if (alike) return measured(seconds).value;
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

/// Scales the members so that they sum to `step`. The rest is StepTimes::host.
StepTimes typical(const std::vector<StepTimes>& all, double step, bool alike) {
  StepTimes result{.step = step};
  std::vector<double*> members;
  double told = 0;
  const auto add = [&](double& to, const auto& of) {
    std::vector<double> values;
    for (const StepTimes& t : all) values.push_back(of(t));
    told += to = typical(values, alike);
    members.push_back(&to);
  };
  for (double StepTimes::*of :
       {&StepTimes::forward, &StepTimes::backward, &StepTimes::loss, &StepTimes::update, &StepTimes::other})
    add(result.*of, [&](const StepTimes& t) { return t.*of; });
  for (const StepTimes& t : all)
    for (const auto& wait : t.waits) result.waits.insert(wait);
  for (auto& [axis, seconds] : result.waits)
    add(seconds, [&, name = axis](const StepTimes& t) { return t.waits.contains(name) ? t.waits.at(name) : 0; });
  for (double* m : members) *m *= std::min(1.0, step / told);  // a recorded step may take longer
  result.host = std::max(0.0, step - told);
  return result;
}

struct Row {
  std::string name;
  double predicted, measured;  // seconds
};

std::vector<Row> rows_of(const StepTimes& predicted, const StepTimes& measured) {
  std::vector<Row> rows;
  for (const auto& [name, seconds] : components_of(predicted)) rows.push_back({name, seconds, 0});
  for (const auto& [name, seconds] : components_of(measured)) {
    const auto at = std::ranges::find(rows, name, &Row::name);
    if (at != rows.end())
      at->measured = seconds;
    else  // an axis; the last member is the time between actions
      rows.insert(rows.end() - 1, {name, 0, seconds});
  }
  std::erase_if(rows, [](const Row& r) { return r.predicted < 5e-7 && r.measured < 5e-7; });
  return rows;
}

std::string percent(double predicted, double measured) {
  return measured > 0 ? fmt::format("{:+.1f} %", 100 * (predicted / measured - 1)) : "";
}

}  // namespace

Prediction::Prediction(const TrainerOptions& options, World& world, const Step& step, Device device, bool program)
    : options_(options), world_(world), device_(device), program_(program), load_(load_per_core()) {
  on_ = options.run.predict && world.size() > 1 && !world.clock() && device.kind == DeviceKind::cpu;
  if (on_ && (depends_on_arrivals(step.plan()) || step.plan().tickets > 0))
    why_never_ = "what a step is made of depends on the order in which messages come";
}

bool Prediction::is_looked_at() const {
  // Every seventh step: with every second or fourth, all recorded steps could be of one kind. In long runs powers of
  // two.
  const std::int64_t n = steps_ - unsettled;
  return n > 0 && (n <= 256 ? n % 7 == 1 : (n & (n - 1)) == 0);
}

void Prediction::before(Step& step) {
  if (!looks()) return;
  ++steps_;
  if (is_looked_at()) StepProbe(step).record(true);
  begun_ = now();
}

void Prediction::after(Step& step) {
  if (!looks()) return;
  const double took = now() - begun_;
  ran_ += took;
  if (is_looked_at()) {
    const Timeline timeline = StepProbe(step).timeline();
    StepProbe(step).record(false);
    times_.push_back(times_of(step.plan(), timeline, took));
  } else if (steps_ > unsettled) {
    if (seconds_.size() < most_kept)
      seconds_.push_back(took);
    else
      seconds_[static_cast<std::size_t>(steps_) % most_kept] = took;
  }
}

int Prediction::runs_within_bounds(const Step& step, double seconds) const {
  const double micro = seconds / step.plan().microbatches, most = std::max(4.0, ran_ / 20);
  int runs = most_runs;
  while (runs > 1 && micro * (3 * runs + 3) * 2 > most) --runs;
  return runs;
}

std::string Prediction::why_not_measured(Step& step, int runs) const {
  if (program_) return "the model is the program's own, so no copy of it can be measured";
  if (!can_measure_share(StepProbe(step).split()))
    return "the work of a rank's layers depends on messages, so no copy of them can be measured alone";
  const double bytes = static_cast<double>(step.parameters().count() * size_of(step.parameters().dtype())) *
                       static_cast<double>(2 + step.optimizer().state().size()) * world_.local_size();
  if (bytes > static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 4)
    return fmt::format("another copy of the model on each rank would take {:.1f} GB of this host's memory",
                       bytes / 1e9);
  return runs > 1 ? "" : "the measurement would take more than 4 s and more than 5 % of the run";
}

StepTimes Prediction::measure(Mesh& mesh, Step& step, const TrainerInput& input, int runs) const {
  const Plan& plan = step.plan();
  const Index rows = rows_of(options_, plan);
  const auto batch = [&](Index n) {
    LoaderOptions from = loader_options(options_, input, {}, device_);
    from.batch = n;
    from.workers = 0;
    const auto first = Loader(input.train, from).begin();
    return std::pair(first->x, first->y);
  };
  ModelProfile profile =
      measure_parts_of(mesh, plan,
                       {.model = [&] { return make_model(options_, options_for(*input.train), device_); },
                        .loss = input.loss ? input.loss : make_loss(options_),
                        .optimizer = input.optimizer ? *input.optimizer : make_optimizer(options_, 1000),
                        .step = step_options(options_),
                        .batch = batch,
                        .runs = runs,
                        .split = StepProbe(step).split()},
                       rows);
  profile.model = options_.model;
  PredictStepOptions how = measure_calls_of(mesh, plan, step.optimizer().steps() | 1, runs);
  how.jitter = jitter_of(profile);
  const std::int64_t period = period_of(plan);
  how.steps = static_cast<int>(std::min<std::int64_t>(512, (15 + period) / period * period));  // whole periods
  how.rows = rows;
  how.element = size_of(step.parameters().dtype());
  return predict_step(plan, profile, how);
}

void Prediction::finish(Mesh& mesh, Step& step, const TrainerInput& input, RunLog& log) {
  if (on_ && !why_never_.empty()) log.console().log("no prediction of steps: " + why_never_);
  if (!looks() || seconds_.empty() || times_.empty()) return;
  const bool alike = period_of(step.plan()) == 1;
  const StepTimes was = typical(times_, typical(seconds_, alike), alike);
  const int own = runs_within_bounds(step, was.step);
  const std::string agreed = broadcast_text(world_.comm(), fmt::format("{} {}", own, why_not_measured(step, own)), 0);
  std::string why = agreed.substr(agreed.find(' ') + 1);
  StepTimes predicted;
  if (why.empty()) {
    try {
      predicted = measure(mesh, step, input, std::stoi(agreed));
    } catch (const Error& e) { why = e.what(); }
  }
  const bool known = why.empty();
  std::string text = fmt::format("predicted and measured: ms of a step, mean of {} ranks, {} of {} steps\n",
                                 world_.size(), alike ? "median" : "mean", seconds_.size());
  text += fmt::format("  {:<24} {:>10} {:>10} {:>9}\n", "", "predicted", "measured", known ? "error" : "");
  Json kept = {{"ranks", world_.size()}, {"steps", seconds_.size()}, {"recorded", times_.size()}, {"why_not", why}};
  std::vector<Row> rows = rows_of(predicted, was);
  const auto apart =
      std::ranges::max_element(rows, {}, [](const Row& r) { return std::abs(r.measured - r.predicted); });
  const Row most = apart == rows.end() ? Row{"the step", predicted.step, was.step} : *apart;
  rows.push_back({"step", predicted.step, was.step});
  for (const Row& r : rows) {
    text +=
        fmt::format("  {:<24} {:>10} {:>10.3f} {:>9}\n", r.name, known ? fmt::format("{:.3f}", 1e3 * r.predicted) : "-",
                    1e3 * r.measured, known ? percent(r.predicted, r.measured) : "");
    const Json prediction = known ? Json(r.predicted) : Json();
    kept["rows"].push_back({{"name", r.name}, {"predicted_s", prediction}, {"measured_s", r.measured}});
  }
  text += known ? fmt::format("  largest difference: {}, {:.3f} ms predicted, {:.3f} ms measured", most.name,
                              1e3 * most.predicted, 1e3 * most.measured)
                : fmt::format("  not predicted: {}", why);
  if (const std::string busy = busy_in_words(load_, measured(seconds_).spread); known && alike && !busy.empty())
    text += fmt::format("\n  the machine is busy: {}; predictions are as uncertain", busy);
  for (const std::string& line : split_text(text, '\n'))
    log.console().log(line.substr(0, line.find_last_not_of(' ') + 1));
  if (log.writes()) log.dir().write_prediction(kept);
}

}  // namespace trireme
