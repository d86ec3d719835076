#include "tools/training/run_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "framework/io/checkpoint.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/lines.h"
#include "kernels/core/error.h"
#include "tools/training/data_record.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

/// Known keys of metrics.jsonl. A key is a column of metrics.csv and, with a tag, a curve in TensorBoard.
struct Known {
  const char *key, *tag;
  enum { any, real, simulated } time = any;  // runs in real or simulated time
};
constexpr Known known_columns[] = {
    {"kind", nullptr},                                                  // train: one step; eval: the end of an epoch
    {"epoch", nullptr},                                                 // from 1
    {"step", nullptr},                                                  // optimizer steps done
    {"simulated_seconds", "time/simulated_seconds", Known::simulated},  // rank 0's clock
    {"lr", "lr"},
    {"loss", "train/loss"},              // of the step's global batch
    {"train_loss", "train/epoch_loss"},  // mean over the epoch, with the weights of each step
    {"train_top1", "train/top1"},        // %, likewise
    {"test_loss", "test/loss"},
    {"test_top1", "test/top1"},  // %
    {"test_top5", "test/top5"},  // %, for more than five classes
    {"test_correct", nullptr},
    {"test_samples", nullptr},
    {"images_per_s", "throughput/images_per_s", Known::real},  // of all ranks, since the epoch began
    {"wait_share", "data/wait_share", Known::real},            // share of the epoch's time in which rank 0 waited for a
                                                               // batch
    {"step_ms_p50", "time/step_ms_p50", Known::real},          // of rank 0's steps of the epoch so far
    {"step_ms_p95", "time/step_ms_p95", Known::real},
    {"grad_norm", "train/grad_norm"},                // of the step's gradient before clipping, if known
    {"memory_mb", "memory/rank_0_mb", Known::real},  // resident memory of rank 0's process in 10^6 bytes
    {"images_per_simulated_second", "throughput/images_per_simulated_second", Known::simulated},
};

/// Whether a line of metrics.jsonl, which may be damaged, has a step and an epoch.
bool has_place(const Json& line) {
  return value_or<std::int64_t>(line, "step", -1) >= 0 && value_or<std::int64_t>(line, "epoch", -1) >= 0;
}

}  // namespace

std::string RunDir::csv_head() const {
  std::string row;
  for (const Column& c : columns_) row += (row.empty() ? "" : ",") + c.key;
  return row + "\n";
}
std::string RunDir::csv_row(const Json& line) const {
  std::string row;
  for (const Column& c : columns_) {
    const auto at = line.find(c.key);
    if (&c != columns_.data()) row += ',';
    if (at != line.end()) row += at->is_string() ? at->get<std::string>() : json_text(*at);
  }
  return row + "\n";
}

RunDir::RunDir(const std::string& path, const std::string& name, const std::string& config, bool resume, bool simulated,
               std::vector<std::string> keys, std::string best)
    : path_(path), best_(std::move(best)), simulated_(simulated) {
  for (const Known& c : known_columns)
    if (c.time != (simulated ? Known::real : Known::simulated)) columns_.push_back({c.key, c.tag ? c.tag : ""});
  for (const std::string& key : keys) {
    check(std::ranges::find(columns_, key, &Column::key) == columns_.end(), "trainer",
          "two metrics are called {}; give one a prefix with Metric(...).with_prefix(\"...\")", key);
    columns_.push_back({key, key.starts_with("test_")  ? "test/" + key.substr(5)
                             : key.starts_with("val_") ? "val/" + key.substr(4)
                                                       : "throughput/" + key});
  }
  if (path_.empty()) {
    path_ = "runs/" + name;
    make_directories("runs");
    for (int i = 2; ::mkdir(path_.c_str(), 0777) != 0 && errno == EEXIST; ++i)
      path_ = fmt::format("runs/{}-{}", name, i);
  }
  if (resume) {
    check(fs::is_directory(path_ + "/checkpoints"), ErrorKind::file, "resume",
          "{} has no checkpoints; train without --resume first", path_);
  } else {
    std::error_code error;
    fs::create_directories(path_, error);
    check(!error, ErrorKind::file, "run directory", "cannot create {}: {}", path_, [&] { return error.message(); });
    lock_.emplace(path_);
    check(!has_checkpoints(path_), "run directory",
          "{} holds another run; add --resume to continue it, or give a new --run.dir", path_);
    remove_unfinished(path_);
    was_used_ = fs::exists(metrics()) && !fs::is_symlink(metrics());
    replace_file(path_ + "/config.toml", config);
    if (was_used_) replace_file(metrics(), "");
    replace_file(table(), csv_head());
  }
  open();
}

/// Device and inode number of a directory; zeros if it is missing.
static std::pair<std::uint64_t, std::uint64_t> identity_of(const std::string& directory) {
  struct stat about {};
  if (::stat(directory.c_str(), &about) != 0) return {};
  return {about.st_dev, about.st_ino};
}

void RunDir::open() {
  identity_ = identity_of(path_);
  for (auto& [file, path] : {std::pair<File&, std::string>(lines_, metrics()), {rows_, table()}}) {
    // O_NONBLOCK: do not wait for the reader of a pipe.
    const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    check(fd >= 0, ErrorKind::file, "run directory", "cannot write {}: {}", path,
          [&] { return errno == ELOOP ? "it is a symbolic link" : std::strerror(errno); });
    file.reset(::fdopen(fd, "a"));
  }
}

bool RunDir::restore_if_removed(const std::string& config) {
  check(identity_of(path_) == identity_, ErrorKind::file, "run directory",
        "{} was removed or renamed during the run, with its checkpoints; leave it in place, and start again", path_);
  struct stat open {
  }, named{};
  if (::fstat(::fileno(lines_.get()), &open) == 0 && ::stat(metrics().c_str(), &named) == 0 &&
      open.st_ino == named.st_ino && open.st_dev == named.st_dev)
    return false;
  make_directories(path_);
  replace_file(path_ + "/config.toml", config);
  if (!fs::exists(table())) replace_file(table(), csv_head());
  this->open();
  return true;
}

void RunDir::record(const Json& line) {
  const auto write = [](std::FILE* file, const std::string& text, const std::string& path) {
    const bool ok = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
    check(ok, ErrorKind::file, "run directory", "cannot write {}: {}", path, [&] { return std::strerror(errno); });
  };
  write(lines_.get(), json_text(line) + "\n", metrics());
  write(rows_.get(), csv_row(line), table());
  std::size_t known = 0;
  const std::int64_t step = line.at("step");
  for (const Column& c : columns_) {
    const auto at = line.find(c.key);
    if (at == line.end()) continue;
    ++known;
    if (!events_ || c.tag.empty()) continue;
    const auto [shown, first] = shown_.try_emplace(c.tag, step);
    if (!first && shown->second == step) continue;  // a step that ends an epoch is recorded twice
    shown->second = step;
    events_->scalar(c.tag, step, *at);
  }
  check(known == line.size(), ErrorKind::internal, "run directory", "{} has a key without a column in run_dir.cpp",
        [&] { return json_text(line); });
}

void RunDir::keep_settings(const std::string& config, std::optional<std::int64_t> overridden) {
  const std::string path = path_ + "/config.toml";
  const std::string before = fs::exists(path) ? read_text(path, std::size_t{1} << 20) : "";
  if (before == config) return;
  if (overridden && !before.empty()) {
    const std::string old = fmt::format("{}/config.until_{:08}.toml", path_, *overridden);
    if (!fs::exists(old)) replace_file(old, before);
  }
  replace_file(path, config);
}

void RunDir::write_environment(const Json& environment) {
  replace_file(path_ + "/environment.json", json_text(environment, NotUtf8::replaced, 1) + "\n");
}

void RunDir::write_prediction(const Json& prediction) {
  replace_file(path_ + "/prediction.json", json_text(prediction, NotUtf8::replaced, 1) + "\n");
}

void RunDir::keep_cluster(const std::string& toml) {
  const std::string path = path_ + "/" + cluster_file;
  if (!fs::exists(path) || read_text(path, std::size_t{1} << 20) != toml) replace_file(path, toml);
}

void RunDir::write_classes(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  if (!text.empty()) replace_file(path_ + "/" + class_file, text);
}

static void keep(const std::string& path, const std::string& text) {
  if (!text.empty() && (!fs::exists(path) || read_text(path, std::size_t{1} << 20) != text)) replace_file(path, text);
}
void RunDir::keep_algorithms(const std::string& table) { keep(path_ + "/" + algorithms_file, table); }
void RunDir::keep_data(const std::string& record) { keep(path_ + "/" + data_file, record); }

void RunDir::remove_result() { fs::remove(path_ + "/" + result_file); }

std::pair<std::string, bool> RunDir::compared_by(const Json& evaluation) const {
  if (best_.empty()) {
    const std::string split = evaluation.contains("val_samples") ? "val_" : "test_";
    return evaluation.contains(split + "top1") ? std::pair(split + "top1", false) : std::pair(split + "loss", true);
  }
  const bool lower = best_.starts_with('-');
  return {best_.substr(lower), lower};
}

Json RunDir::best() const {
  Json found;
  each_line(metrics(), [&](std::string_view line) {
    const auto eval = parse_json(line);
    if (value_or<std::string>(eval, "kind", "") != "eval" || !has_place(eval)) return;
    const auto [key, lower] = compared_by(eval);
    if (!eval.contains(key) || !eval[key].is_number()) return;
    if (found.is_null() || !found.contains(key) || (lower ? eval[key] < found[key] : eval[key] > found[key]))
      found = {{"epoch", eval["epoch"]}, {"step", eval["step"]}, {key, eval[key]}};
  });
  return found;
}

std::string RunDir::checkpoint_before(const std::string& other) const {
  const auto newest = find_latest(path_, other);
  return newest ? newest->path : "";
}

std::int64_t RunDir::best_step() const {
  const Json found = best();
  return found.is_null() ? -1 : found["step"].get<std::int64_t>();
}

void RunDir::write_result(const std::string& status, std::int64_t step, std::int64_t epoch) {
  Json result{{"status", status}, {"step", step}, {"epoch", epoch}};
  if (Json found = best(); !found.is_null()) result["best"] = std::move(found);
  replace_file(path_ + "/" + result_file, json_text(result) + "\n");
}

void RunDir::rewind(std::int64_t step) {
  lines_.reset();
  rows_.reset();
  std::string kept, rows = csv_head();
  each_line(metrics(), [&](std::string_view line) {
    auto json = parse_json(line);
    if (!json.is_object() || !has_place(json) || json["step"] > step ||
        value_or<std::string>(json, "kind", "") == "test")
      return;
    kept.append(line) += '\n';
    rows += csv_row(json);
  });
  replace_file(metrics(), kept);
  replace_file(table(), rows);
  open();
}

}  // namespace trireme
