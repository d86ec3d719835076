#include "tools/cli/simulate_scaling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "framework/io/file.h"
#include "kernels/core/suggest.h"
#include "kernels/core/text.h"
#include "parallel/analysis/draw.h"
#include "parallel/comm/world/rank_grid.h"
#include "tools/study/study_result.h"

namespace trireme {

double efficiency_of(const DescribedPlan& d, const Cluster& cluster, const std::vector<Axis>& mesh, Index samples,
                     double step) {
  double speeds = 0;
  for (int rank = 0; rank < ranks_of(mesh); ++rank) speeds += cluster.speed_of(rank);
  return d.alone(samples) / speeds / step;
}

std::pair<double, std::string> most_exposed(const Plan& plan, const Simulation& s) {
  std::pair<double, std::string> most;
  for (std::size_t r = 0; r < s.exposed.size(); ++r) {
    double all = 0;
    for (const AxisTraffic& t : s.exposed[r]) all += t.seconds;
    if (all > most.first) most = {all, s.exposed.size() > 1 ? plan.programs[r].name : ""};
  }
  return most;
}

AmdahlLaw amdahl_of(const std::vector<std::pair<double, double>>& times) {
  const auto [first_ranks, first] = times.front();
  double serial = first;
  for (const auto& [ranks, t] : times)
    if (ranks > first_ranks) serial = std::min(serial, (t * ranks - first * first_ranks) / (ranks - first_ranks));
  // A serial part below the rounding to nanoseconds is 0. A single time shows no serial part.
  if (times.size() < 2 || serial < 1e-6 * first) serial = 0;
  return {serial, (first - serial) * first_ranks};
}

double gustafson(double ranks, double share) { return ranks + (1 - ranks) * share; }

namespace {

struct ScalingPoint {
  int ranks = 1;
  Index batch = 0;
  double step = 0,  // seconds
      free = 0,     // seconds if links take no time
      exposed = 0;  // seconds of exposed communication
  PredictionBasis basis = {};
  std::vector<std::string> notes = {};           // lines about memory and jitter
  std::optional<StepMeasurement> measured = {};  // the same step
  double per_second() const { return static_cast<double>(batch) / step; }
};

/// Points of one kind of scaling, ascending by ranks.
struct Scaling {
  bool strong = false;
  std::vector<ScalingPoint> points = {};
  AmdahlLaw amdahl = {};   // strong scaling only
  double fixed_share = 0;  // weak scaling: share of the first point's step that does not grow with a rank's rows
  double speedup(const ScalingPoint& p) const { return p.per_second() / points.front().per_second(); }
  double per_rank(const ScalingPoint& p) const { return speedup(p) * points.front().ranks / p.ranks; }
};

/// The numbers of "ranks=1,2,4", ascending, without duplicates.
std::vector<int> sweep_of(const std::string& text) {
  std::vector<int> all;
  for (const std::string& piece : split_text(text.starts_with("ranks=") ? text.substr(6) : "", ',')) {
    int& ranks = all.emplace_back();
    if (!parse_number(piece, ranks) || ranks < 1 || ranks > 1 << 24)
      throw OptionError(fmt::format("--sweep is '{}', expected for example ranks=1,2,4,8, with 1 to {} ranks",
                                    shortened(text), 1 << 24));
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

/// The mesh with axis data resized so that there are `ranks` ranks in all.
std::vector<Axis> with_ranks(std::vector<Axis> mesh, int ranks) {
  const auto data = std::ranges::find(mesh, "data", &Axis::name);
  if (data == mesh.end())
    throw OptionError("--sweep varies axis data, which --mesh does not have; add data=1 to --mesh");
  data->size = 1;
  const int others = ranks_of(mesh);
  if (ranks % others != 0)
    throw OptionError(
        fmt::format("--sweep: {} ranks are no multiple of the {} on the other axes; use multiples", ranks, others));
  data->size = ranks / others;
  return mesh;
}

class Sweep {
 public:
  Sweep(const TrainerOptions& config, const PlanOptions& options, const std::vector<int>& counts,
        const DeviceRates& rates)
      : config_(config),
        options_(options),
        counts_(counts),
        described_(config, mesh_axes(config), options.cost, rates),
        rows_(described_.rows),
        cluster_(cluster_of(config, described_, counts.back())) {
    described_.collectives = collectives_of(config, options);
  }

  Scaling scale(bool strong) {
    Scaling all{.strong = strong};
    std::vector<std::pair<double, double>> free;
    for (const int ranks : counts_) {
      all.points.push_back(at(ranks, strong ? rows_of_share(ranks) : rows_));
      free.emplace_back(ranks, all.points.back().free);
    }
    if (strong) {
      all.amdahl = amdahl_of(free);
    } else {  // serial + rows, and serial + 2 rows
      const double once = all.points.front().free, twice = at(counts_.front(), 2 * rows_).free;
      const double share = (2 * once - twice) / once;
      all.fixed_share = share < 1e-6 ? 0 : std::min(share, 1.0);
    }
    return all;
  }
  const DescribedPlan& described() const { return described_; }
  const Cluster& cluster() const { return cluster_; }
  Index rows() const { return rows_; }

 private:
  /// Rows of a micro-batch if the ranks share data.batch.
  Index rows_of_share(int ranks) {
    const std::vector<Axis> mesh = with_ranks(described_.mesh, ranks);
    const Strategy strategy = make_strategy(config_, ranks);
    const Plan plan = described_.model.plan(strategy, described_.parts, mesh);
    const Index sharers = batch_ranks(plan, strategy.split), shares = sharers * plan.microbatches,
                batch = config_.data.batch;
    const std::string what =
        fmt::format("--scaling strong: a batch of {} among {} ranks (mesh {}) in {} micro-batch{}", batch, sharers,
                    to_string(mesh), plan.microbatches, plan.microbatches == 1 ? "" : "es");
    if (batch < shares) throw OptionError(what + " leaves ranks without a row; use fewer ranks, or a larger --batch");
    if (batch % shares != 0)
      throw OptionError(what + fmt::format(" cannot be divided; use a multiple of {} as --batch", shares));
    return batch / shares;
  }

  ScalingPoint at(int ranks, Index rows) {
    described_.set_rows(rows);
    const std::vector<Axis> mesh = with_ranks(described_.mesh, ranks);
    const Plan plan = described_.rank_plan(config_, mesh);
    const auto simulate_on = [&](const Cluster& c) {
      return described_.simulate_on(c, plan, described_.traffic.step, options_.steps);
    };
    const Simulation s = simulate_on(cluster_);
    Cluster free = cluster_;
    free.inside = free.between = {};
    free.overlaps = true;
    free.jitter = 0;
    const std::string by_messages = std::exchange(described_.collectives, "");
    ScalingPoint p{.ranks = ranks,
                   .batch = rows * plan.microbatches * batch_ranks(plan, described_.strategy.split),
                   .step = s.makespan / options_.steps,
                   .free = (free == cluster_ ? s : simulate_on(free)).makespan / options_.steps,
                   .exposed = most_exposed(plan, s).first / options_.steps,
                   .basis = basis_of(described_, cluster_, ranks)};
    described_.collectives = by_messages;
    const auto memory = predict_memory(plan, memory_options(config_, described_.model.parameters));
    if (s.expected)
      p.notes.push_back(fmt::format(
          "{} ranks: jitter is not sampled; ranks that wait for each other take the expected maximum", ranks));
    for (const std::string& line : split_text(memory_verdict(cluster_, plan, memory), '\n'))
      if (line.ends_with("NOT FIT")) p.notes.push_back(fmt::format("{} ranks: {}", ranks, line));
    return p;
  }

  const TrainerOptions& config_;
  const PlanOptions& options_;
  const std::vector<int>& counts_;
  DescribedPlan described_;
  Index rows_;  // of a micro-batch and rank on the settings' mesh
  Cluster cluster_;
};

/// Adds measurements to the points. Returns lines that explain which measurements were left out.
std::string compare(Scaling& scaling, const std::vector<StepMeasurement>& measured, bool both) {
  std::string text;
  const char* kind = scaling.strong ? "strong" : "weak";
  for (const StepMeasurement& m : measured) {
    if (!m.scaling.empty() && m.scaling != kind) continue;
    if (m.scaling.empty() && both)
      throw OptionError("--measured with --scaling both needs a column scaling with weak or strong; add it");
    const auto p = std::ranges::find(scaling.points, m.ranks, &ScalingPoint::ranks);
    if (p == scaling.points.end())
      text += fmt::format("measured on {} ranks, which --sweep does not have: left out\n", m.ranks);
    else if (m.batch > 0 && m.batch != p->batch)
      text += fmt::format("measured on {} ranks with a batch of {}, not {}: left out\n", m.ranks, m.batch, p->batch);
    else if (p->measured)
      throw OptionError(
          fmt::format("--measured: steps on {} rank{} are there twice ({} and {}); give one row with their median",
                      m.ranks, m.ranks == 1 ? "" : "s", time_text(p->measured->seconds), time_text(m.seconds)));
    else
      p->measured = m;
  }
  return text;
}

const char* name_of(Evidence e) { return evidence_names.at(static_cast<std::size_t>(e)); }

std::string times_as_fast(double v) { return v < 100 ? fmt::format("{:.2f}", v) : fmt::format("{:.0f}", v); }

std::string table_of(const Scaling& scaling) {
  const bool strong = scaling.strong;
  const bool measured =
      std::ranges::any_of(scaling.points, [](const ScalingPoint& p) { return p.measured.has_value(); });
  std::string text = fmt::format("{:>8} {:>10} {:>12} {:>6} {:>16} {:>9} {:>10}", "ranks", "batch", "step", "+- %",
                                 "samples/s", "speed-up", "per rank");
  text += strong ? fmt::format(" {:>9}", "Amdahl") : "";
  text += fmt::format(" {:>12} {:>7}", "exposed", "of step");
  text += (measured ? fmt::format(" {:>12} {:>9} {:>9}", "measured", "", "error") : "") + "  evidence\n";
  const double first = scaling.amdahl.seconds(scaling.points.front().ranks);
  for (const ScalingPoint& p : scaling.points) {
    text +=
        fmt::format("{:>8} {:>10} {:>12} {:>6.0f} {:>16.1f} {:>9} {:>8.1f} %", p.ranks, p.batch, time_text(p.step),
                    100 * p.basis.band, p.per_second(), times_as_fast(scaling.speedup(p)), 100 * scaling.per_rank(p));
    if (strong) text += fmt::format(" {:>9}", times_as_fast(first / scaling.amdahl.seconds(p.ranks)));
    text += fmt::format(" {:>12} {:>5.1f} %", time_text(p.exposed), 100 * p.exposed / p.step);
    if (p.measured)
      text += fmt::format(" {:>12} {:>9} {:>+7.1f} %", time_text(p.measured->seconds), name_of(p.measured->evidence),
                          100 * (p.step / p.measured->seconds - 1));
    else if (measured)
      text += fmt::format(" {:>12} {:>9} {:>9}", "-", "", "-");
    text += fmt::format("  {}\n", name_of(p.basis.evidence()));
  }
  return text;
}

/// Explains the columns and the laws' results.
std::string words_of(const Scaling& scaling) {
  const ScalingPoint &first = scaling.points.front(), &last = scaling.points.back();
  std::string text;
  std::vector<std::string> told;
  for (const ScalingPoint& p : scaling.points) {
    const std::string why = fmt::format("{}", fmt::join(p.basis.beyond, "; "));
    if (why.empty() || (!told.empty() && told.back() == why)) continue;
    told.push_back(why);
    text += fmt::format("extrapolated from {} rank{}: {}\n", p.ranks, p.ranks == 1 ? "" : "s", why);
  }
  for (const ScalingPoint& p : scaling.points)
    for (const std::string& note : p.notes) text += note + "\n";
  text += fmt::format("speed-up: samples per second over those of {} rank{}; per rank: over its share of the ranks\n",
                      first.ranks, first.ranks == 1 ? "" : "s");
  if (scaling.strong) {
    const double share = scaling.amdahl.serial_share();
    text += fmt::format(
        "Amdahl's limit (AFIPS 1967): serial + divided / ranks through the first step, with the least serial part that "
        "a step of more ranks shows if links take no time: {} of a step are not divided, {:.2f} % of one "
        "rank's{}\n",
        time_text(scaling.amdahl.serial), 100 * share,
        share > 0 ? fmt::format("; it is at most {} times as fast, however many ranks", times_as_fast(1 / share)) : "");
  } else {
    const double ranks = static_cast<double>(last.ranks) / first.ranks;
    const double limit = gustafson(ranks, scaling.fixed_share);
    text += fmt::format(
        "Gustafson's scaled speed-up (CACM 31, 1988): {:.2f} % of a rank's step do not grow with its rows, so that {} "
        "ranks are at most {} times as fast as {} with all of their rows; with communication {} times\n",
        100 * scaling.fixed_share, last.ranks, times_as_fast(limit), first.ranks,
        times_as_fast(limit * first.free / last.step));
  }
  return text;
}

Chart chart_of(const Scaling& scaling, const std::string& title) {
  ChartSeries predicted{.name = "predicted, with its error band", .points = {}}, ideal{"in proportion", {}, true},
      limit{"Amdahl's limit", {}, true}, real{.name = "measured", .points = {}, .colour = palette(3)};
  const ScalingPoint& first = scaling.points.front();
  for (const ScalingPoint& p : scaling.points) {
    const double rate = p.per_second();
    predicted.points.emplace_back(p.ranks, rate);
    predicted.band.emplace_back(rate / (1 + p.basis.band), rate / (1 - p.basis.below));
    predicted.evidence.push_back(p.basis.evidence());
    ideal.points.emplace_back(p.ranks, first.per_second() * p.ranks / first.ranks);
    if (!p.measured) continue;
    real.points.emplace_back(p.ranks, static_cast<double>(p.batch) / p.measured->seconds);
    real.evidence.push_back(p.measured->evidence);
  }
  if (scaling.strong) {
    constexpr int steps = 48;
    const double most = static_cast<double>(scaling.points.back().ranks) / first.ranks;
    for (int i = 0; i <= steps && most > 1; ++i) {
      const double ranks = first.ranks * std::pow(most, static_cast<double>(i) / steps);
      limit.points.emplace_back(ranks, static_cast<double>(first.batch) / scaling.amdahl.seconds(ranks));
    }
  }
  Chart chart{.title = title + (scaling.strong ? ", strong scaling" : ", weak scaling"),
              .x = "ranks",
              .y = "samples per second",
              .series = {predicted, ideal}};
  if (scaling.points.size() <= 12)
    for (const ScalingPoint& p : scaling.points) chart.x_ticks.push_back(p.ranks);
  if (!limit.points.empty()) chart.series.push_back(limit);
  if (!real.points.empty()) chart.series.push_back(real);
  return chart;
}

std::vector<StepMeasurement> of_study(const std::string& directory, const TrainerOptions& config) {
  const StudyResult study = study_result(directory);
  const auto model = study.question.settings.find("model");
  const std::string of = model == study.question.settings.end() ? "" : std::string(trimmed(model->second, "\""));
  if (of != config.model)
    throw OptionError(fmt::format("--measured: {} is a study of {}, not of {}; give a study of this model", directory,
                                  of, config.model));
  std::vector<StepMeasurement> all;
  std::set<std::string> others;
  for (const CellResult& c : study.cells) {
    const bool same = c.cell.is_serial() || c.cell.strategy == config.parallel.strategy;
    if (!same) others.insert(c.cell.strategy.empty() ? "data_parallel" : c.cell.strategy);
    if (!same || std::isnan(c.step_seconds)) continue;
    const StepMeasurement m{.ranks = c.cell.ranks,
                            .seconds = c.step_seconds,
                            .scaling = c.weak ? "weak" : "strong",
                            .batch = static_cast<Index>(std::llround(c.samples_per_s * c.step_seconds))};
    const auto known = std::ranges::find_if(all, [&](const StepMeasurement& other) {
      return c.cell.is_serial() && other.ranks == 1 && other.scaling == m.scaling;
    });
    if (known == all.end())
      all.push_back(m);
    else if (m.seconds < known->seconds)
      *known = m;  // several serial runs with different numbers of threads: the fastest
  }
  if (all.empty())
    throw OptionError(fmt::format("--measured: {} has no finished run of strategy '{}'{}", directory,
                                  config.parallel.strategy,
                                  others.empty() ? "" : fmt::format("; it has {}", fmt::join(others, "; "))));
  return all;
}

}  // namespace

std::vector<StepMeasurement> read_measurements(const std::string& path, const TrainerOptions& config) {
  if (std::filesystem::is_directory(path)) return of_study(path, config);
  check(std::filesystem::is_regular_file(path), ErrorKind::file, "--measured",
        "{} cannot be read; give a file, or the directory of a study", path);
  return parse_measurements(read_text(path, std::size_t{1} << 24), path);
}

int sweep_ranks(const TrainerOptions& config, const PlanOptions& options) {
  const std::vector<int> counts = sweep_of(options.sweep);
  const std::vector<StepMeasurement> measured =
      options.measured.empty() ? std::vector<StepMeasurement>() : read_measurements(options.measured, config);
  const Cluster given = cluster_of(config, counts.back());
  for (const int ranks : counts) check_room(given, with_ranks(mesh_axes(config), ranks));
  Sweep sweep(config, options, counts, given.rates());
  std::string text;
  const std::string title = config.model + (config.parallel.strategy.empty() ? "" : ", " + config.parallel.strategy);
  std::vector<std::string> pictures;
  for (const bool strong : {false, true}) {
    if (options.scaling != "both" && options.scaling != (strong ? "strong" : "weak")) continue;
    Scaling scaling = sweep.scale(strong);
    const std::string left_out = compare(scaling, measured, options.scaling == "both");
    text += strong ? fmt::format("\nstrong scaling: a batch of {} shared by all ranks\n", config.data.batch)
                   : fmt::format("\nweak scaling: {} rows per micro-batch and rank\n", sweep.rows());
    text += table_of(scaling) + left_out + words_of(scaling);
    text += scaling.points.back().basis.table();
    pictures.push_back(chart_svg(chart_of(scaling, title)));
  }
  const DescribedPlan& described = sweep.described();  // includes what ranks hold of split layers
  const std::string messages =
      described.collectives.empty()
          ? ""
          : "collectives simulated message by message, all-reduces by " + described.collectives + "\n";
  text = fmt::format("{}\n{}{}{}", in_words(sweep.cluster()), messages, described.caveat(options.steps), text);
  fmt::print("{}", text);
  const std::string picture = pictures.size() == 1 ? pictures.front() : stacked_svg(pictures);
  if (!options.svg.empty()) write_file(options.svg, picture);
  if (!options.html.empty()) write_file(options.html, svg_page(title, picture, text));
  return 0;
}

}  // namespace trireme
