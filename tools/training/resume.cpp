#include "tools/training/resume.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "kernels/core/suggest.h"
#include "parallel/comm/world/compare.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/runtime/step_resume.h"
#include "tools/training/cluster_file.h"
#include "tools/training/data_record.h"
#include "tools/training/from_options.h"
#include "tools/training/run_dir.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

using Settings = std::map<std::string, std::string>;  // read_own_toml()

/// Whether a change of this setting does not affect the results: it concerns the layout of ranks, files or output.
bool may_differ(const std::string& name, const Settings& a, const Settings& b) {
  if (name == "parallel.norm_scope" || name == "parallel.norm_group") return false;
  for (const char* section : {"run.", "checkpoint.", "parallel."})
    if (name.starts_with(section)) return true;
  if (name == "epochs") {
    const auto needs_them = [](const Settings& s) {
      const std::string& schedule = s.at("optim.schedule");
      return schedule == R"("cosine")" || schedule == R"("linear")" || schedule == R"("one_cycle")";
    };
    return !needs_them(a) && !needs_them(b);
  }
  return name == "data.workers" || name == "device";
}

/// "optim.lr is 0.01, but the run has 0.002", for each changed setting that affects training.
std::vector<std::string> differences(const Settings& now, const Settings& before) {
  std::vector<std::string> all;
  for (const auto& [name, value] : now)
    if (value != before.at(name) && !may_differ(name, now, before))
      all.push_back(fmt::format("{} is {}, but the run has {}", name, shortened(value), shortened(before.at(name))));
  return all;
}

/// Whether a changed setting affects the order of samples: "seed is 2, but the run has 1".
bool changes_order(const std::string& change) {
  return change.starts_with("seed ") ||
         (change.starts_with("data.") && !change.starts_with("data.batch ") && !change.starts_with("data.eval_batch "));
}

double metric(const TrainState& s, const char* name, double otherwise) {
  const auto at = s.metrics.find(name);
  return at == s.metrics.end() ? otherwise : at->second;
}

}  // namespace

void store(const Progress& p, TrainState& s) {
  s.step = p.step;
  s.epoch = p.epoch;
  s.batch = p.batch;
  s.samples = p.samples;
  if (p.loss_scale > 0) {
    s.metrics["loss_scale"] = p.loss_scale;
    s.metrics["loss_scale_good_steps"] = static_cast<double>(p.good_steps);
  }
  if (p.ended) s.metrics["ended"] = 1;
  if (!p.in_epoch()) return;
  s.metrics["epoch_loss_sum"] = p.loss;
  s.metrics["epoch_correct"] = static_cast<double>(p.correct);
  s.metrics["epoch_labels"] = static_cast<double>(p.labels);
  s.metrics["epoch_counted"] = static_cast<double>(p.counted);
}

Progress progress_of(const TrainState& s) {
  Progress p{.step = s.step, .epoch = s.epoch, .batch = s.batch, .samples = s.samples.value_or(0)};
  p.correct = static_cast<std::int64_t>(metric(s, "epoch_correct", 0));
  p.counted = static_cast<std::int64_t>(metric(s, "epoch_counted", 0));
  p.labels = static_cast<std::int64_t>(metric(s, "epoch_labels", static_cast<double>(p.counted)));
  p.loss = metric(s, "epoch_loss_sum", 0);
  p.ended = metric(s, "ended", 0) > 0;
  p.loss_scale = metric(s, "loss_scale", 0);
  p.good_steps = static_cast<std::int64_t>(metric(s, "loss_scale_good_steps", 0));
  return p;
}

bool goes_on(const TrainerOptions& options) {
  if (options.run.resume == "no") return false;
  if (options.run.dir.empty()) throw OptionError("resume: the run to continue is missing; add --run.dir DIR");
  return options.run.resume == "yes" || has_checkpoints(options.run.dir);
}

ResumePoint find_resume_point(const TrainerOptions& options) {
  check(fs::is_directory(options.run.dir + "/checkpoints"), ErrorKind::file, "resume",
        "{} has no checkpoints; train without --resume first", options.run.dir);
  remove_unfinished(options.run.dir);
  auto found = find_latest(options.run.dir);
  check(found.has_value(), ErrorKind::data, "resume", "no usable checkpoint in {}; train without --resume",
        options.run.dir);
  const TrainState& s = found->state;
  ResumePoint point{.path = found->path,
                    .notes = {},
                    .progress = progress_of(s),
                    .partition = {},
                    .norm_rows = s.norm_rows,
                    .program = s.program,
                    .changes = {}};
  if (!found->note.empty()) point.notes.push_back(found->note);
  if (!fs::exists(options.run.dir + "/config.toml"))
    point.notes.push_back(
        fmt::format("resume: {}/config.toml is missing; the settings are from {}", options.run.dir, found->path));
  Index batch = options.data.batch;
  if (!s.config.empty()) {
    const Settings now = read_own_toml(to_toml(options)), before = read_own_toml(s.config);
    const char* ranks = "parallel.virtual";
    check(
        now.at(ranks) == before.at(ranks), "resume",
        "{} is {}, but the run has {}; a run in virtual time keeps its number of ranks, so continue with --virtual {}",
        ranks, now.at(ranks), before.at(ranks), before.at(ranks));
    point.changes = differences(now, before);
    const auto same = [&](const char* name) { return now.at(name) == before.at(name); };
    if (same("parallel.mesh") && same("parallel.strategy")) point.partition = s.partition;
    batch = std::stoll(before.at("data.batch"));
  } else if (s.seed != static_cast<std::uint64_t>(options.seed)) {
    point.changes.push_back(fmt::format("seed is {}, but the run has {}", options.seed, s.seed));
  }
  if (!s.samples) point.progress.samples = s.batch * batch;
  point.reordered = point.progress.in_epoch() && std::ranges::any_of(point.changes, changes_order);
  check(point.changes.empty() || options.run.override, "resume", "{}; add --override to change {}",
        fmt::join(point.changes, "; "), point.changes.size() == 1 ? "it" : "them");
  return point;
}

void check_replayed(const TrainerOptions& options, const TrainState& recorded) {
  if (recorded.config.empty()) return;
  const Settings now = read_own_toml(to_toml(options)), before = read_own_toml(recorded.config);
  for (const char* name : {"checkpoint.steps", "run.max_steps", "data.batch", "seed"})
    check(now.at(name) == before.at(name), "run.replay", "{} is {}, but the recorded run has {}; use that value", name,
          now.at(name), before.at(name));
}

std::string kept_cluster(const TrainerOptions& options) {
  const std::string path = options.run.dir + "/" + cluster_file;
  return goes_on(options) && fs::exists(path) ? path : "";
}

void check_cluster(ResumePoint& point, const TrainerOptions& options, const Cluster& cluster) {
  const std::string path = options.run.dir + "/" + cluster_file, now = cluster_toml(cluster);
  if (!fs::exists(path) || read_text(path, std::size_t{1} << 20) == now) return;
  check(options.run.override, "resume", "the cluster differs from {}; add --override to change it", path);
  point.changes.push_back("the cluster differs from " + path);
}

void broadcast(ResumePoint& point, World& world) {
  Progress& p = point.progress;
  const std::string mine =
      json_text({point.path, point.partition, point.norm_rows, point.program, p.step, p.epoch, p.batch, p.samples,
                 p.correct, p.labels, p.counted, p.loss, p.ended, p.loss_scale, p.good_steps});
  const auto all = parse_json(broadcast_text(world.comm(), mine, 0));
  std::size_t i = 0;
  const auto read = [&](auto&... to) { (all[i++].get_to(to), ...); };
  read(point.path, point.partition, point.norm_rows, point.program, p.step, p.epoch, p.batch, p.samples, p.correct,
       p.labels, p.counted, p.loss, p.ended, p.loss_scale, p.good_steps);
}

std::vector<std::string> changed_data(const TrainerOptions& options, const std::string& record,
                                      const DatasetSource& train, World& world) {
  std::vector<std::string> mine;
  if (world.main()) {
    mine = data_changes(options.run.dir, record);
    if (std::string change = class_change(options.run.dir, train); !change.empty())
      mine.insert(mine.begin(), std::move(change));
  }
  const Json all = parse_json(broadcast_text(world.comm(), json_text(mine, NotUtf8::replaced), 0));
  return all.get<std::vector<std::string>>();
}

std::string norm_rows(Step& step, const Strategy& strategy) {
  if (StepProbe(step).batch_norm().empty()) return "";
  const int ranks = step.shard().size, microbatches = step.shard().microbatches;
  const int together = strategy.scope() == NormScope::global  ? ranks
                       : strategy.scope() == NormScope::group ? strategy.norm_group
                                                              : 1;
  const std::string batch =
      microbatches > 1 ? fmt::format("each of {} micro-batches", microbatches) : "the global batch";
  if (together == ranks) return batch;
  return fmt::format("the rows of {} of {} ranks in {}", together == 1 ? "each" : fmt::format("every {}", together),
                     ranks, batch);
}

std::vector<std::string> resume_notes(const TrainerOptions& options, ResumePoint& point, const std::string& norm_rows,
                                      const std::string& program, const std::vector<std::string>& data) {
  const auto lines = [](std::istringstream text) {
    std::vector<std::string> all;
    for (std::string line; std::getline(text, line);)
      if (!line.starts_with("metric: ")) all.push_back(line);
    return all;
  };
  const auto now = lines(std::istringstream(program)), then = lines(std::istringstream(point.program));
  if (!then.empty() && now != then) {
    const std::string change =
        fmt::format("the program gives {}, in the run {}", fmt::join(now, "; "), fmt::join(then, "; "));
    check(options.run.override, "resume", "{}; add --override (run.override) to change it", change);
    point.changes.push_back(change);
  }
  const std::string& before = point.norm_rows;
  if (!norm_rows.empty() && !before.empty() && norm_rows != before) {
    const std::string change = fmt::format("batch norms see {}, in the run {}", norm_rows, before);
    check(options.run.override, "resume", "{}; add --override to change it", change);
    point.changes.push_back(change);
  }
  check(data.empty() || options.run.override, ErrorKind::data, "resume",
        "{}; use the data of the run, or add --override to continue with other data", fmt::join(data, "; "));
  point.changes.insert(point.changes.end(), data.begin(), data.end());
  point.reordered = point.reordered || (!data.empty() && point.progress.in_epoch());
  std::vector<std::string> notes = point.notes;
  for (const std::string& change : point.changes) notes.push_back("override  " + change);
  const Progress& at = point.progress;
  if (point.reordered)
    notes.push_back(
        fmt::format("override  epoch {} continues at sample {} of other data or in another order: some samples may "
                    "come twice or not at all",
                    at.epoch + 1, at.samples));
  if (at.counted < at.samples)
    notes.push_back(
        fmt::format("resume: {} has no sums of epoch {}, so its train loss and accuracy leave out the first {} samples",
                    point.path, at.epoch + 1, at.samples));
  return notes;
}

std::map<std::string, Tensor> restore(Step& step, const ResumePoint& point) {
  LoadedCheckpoint loaded = step.load_checkpoint(point.path);
  if (point.progress.loss_scale > 0)
    StepResume(step).set_loss_scale({.scale = point.progress.loss_scale, .good_steps = point.progress.good_steps});
  return std::move(loaded.local);
}

std::string kept_settings(TrainerOptions options) {
  options.run.resume = "no";
  options.run.override = false;
  return to_toml(options);
}

std::string replayed_checkpoint(const TrainerOptions& options) {
  const std::string& path = options.run.replay;
  const bool is_run = fs::is_directory(path + "/checkpoints");
  const auto newest = is_run ? find_latest(path) : std::nullopt;
  check(!is_run || newest, ErrorKind::data, "run.replay", "no usable checkpoint in {}; train without --resume", path);
  check(fs::is_directory(path), ErrorKind::file, "run.replay",
        "{} is neither a run directory nor a checkpoint; give one of them", path);
  check_replayed(options, is_run ? newest->state : verify_checkpoint(path));
  return is_run ? newest->path : path;
}

std::optional<ResumePoint> agree_on_resume(TrainerOptions& options, World& world, std::optional<RunLock>& lock) {
  compare_ranks(world.comm(), "settings", common_settings(options));
  check_shards(options, world.size());
  if (options.run.resume == "auto")
    options.run.resume = broadcast_text(world.comm(), world.main() && goes_on(options) ? "yes" : "no", 0);
  if (options.run.resume == "no") return {};
  if (world.main() && fs::is_directory(options.run.dir)) lock.emplace(options.run.dir);
  ResumePoint found = world.main() ? find_resume_point(options) : ResumePoint{};
  if (world.main() && world.clock()) check_cluster(found, options, world.clock()->cluster());
  broadcast(found, world);
  return found;
}

}  // namespace trireme
