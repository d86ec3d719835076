#include "framework/io/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "framework/io/file.h"
#include "framework/io/json.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr char op[] = "checkpoint";
constexpr std::size_t most_manifest_bytes = std::size_t{16} << 20;
constexpr char model_file[] = "model.safetensors", optimizer_file[] = "optimizer.safetensors",
               manifest_file[] = "manifest.json";

std::string directory_name(std::int64_t step) { return fmt::format("step_{:08}", step); }

/// Finished checkpoints by step, newest first.
std::vector<std::pair<std::int64_t, std::string>> list(const std::string& root) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code none;
  for (fs::directory_iterator it(root, none), end; !none && it != end; it.increment(none)) {
    std::string name = it->path().filename().string();
    bool digits = name.size() >= 13 && name.size() <= 23 && name.starts_with("step_") &&
                  std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits) found.emplace_back(std::stoll(name.substr(5)), it->path().string());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

void remove_tree(const std::string& path) {
  std::error_code ignored;  // what cannot be removed now is tried again by the next save
  fs::remove_all(path, ignored);
}

void check_finite(const std::vector<NamedTensor>& tensors) {
  for (auto& t : tensors)
    if (is_float(t.tensor.dtype()))
      dispatch_float(t.tensor.dtype(), op, [&]<class T>(T) {
        bool finite = true;
        for (T v : t.tensor.view().span<T>()) finite &= std::isfinite(static_cast<double>(v));
        check(finite, op, "\"{}\" holds values that are not finite: not saved", t.name);
      });
}

/// Writes one file of a checkpoint and returns its line of the manifest.
Json store(const std::string& path, const std::vector<NamedTensor>& tensors) {
  SafetensorsWriter writer(tensors, {{"format", "pt"}});  // as PyTorch's loaders expect
  FileWriter file(path, writer.size());
  writer.write([&](auto bytes) { file.write(bytes); });
  file.finish();
  return {{"bytes", file.size()}, {"crc32", file.crc()}};
}

/// The manifest's text: its own CRC covers all its other members.
std::string render(Json manifest) {
  manifest.erase("crc32");
  std::string text = json_text(manifest);
  manifest["crc32"] = crc32(std::as_bytes(std::span(text)));
  return json_text(manifest, NotUtf8::fails, 2) + "\n";
}

Json describe(const Parameters& p, const Optimizer& o, const TrainState& s) {
  Json manifest{{"format", "trireme checkpoint"},
                {"version", 1},
                {"step", s.step},
                {"epoch", s.epoch},
                {"batch", s.batch},
                {"seed", s.seed},
                {"config", s.config},
                {"config_crc32", crc32(std::as_bytes(std::span(s.config)))},
                {"metrics", s.metrics},
                {"parameters", p.count()},
                {"dtype", name_of(p.dtype())},
                {"optimizer", o.name()},
                {"optimizer_steps", o.steps()}};
  if (s.samples) manifest["samples"] = *s.samples;
  if (!s.partition.empty()) manifest["partition"] = s.partition;
  if (!s.norm_rows.empty()) manifest["norm_rows"] = s.norm_rows;
  return manifest;
}

/// What a manifest says, once it and the files it names are verified.
struct Verified {
  TrainState state;
  std::string optimizer;
  std::int64_t optimizer_steps = 0;
};

TrainState state_of(const Json& manifest) {
  TrainState s;
  s.step = manifest.at("step"), s.epoch = manifest.at("epoch"), s.batch = manifest.at("batch"),
  s.seed = manifest.at("seed");
  if (manifest.contains("samples")) s.samples = manifest.at("samples").get<std::int64_t>();
  s.partition = manifest.value("partition", "");
  s.norm_rows = manifest.value("norm_rows", "");
  s.config = manifest.at("config");
  for (auto& [name, value] : manifest.at("metrics").items())  // JSON has no NaN: it was written as null
    s.metrics[name] = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  return s;
}

/// Reads the manifest; any change of its text is found.
Json read_manifest(const std::string& path) {
  std::string text = read_text(path, most_manifest_bytes);
  Json manifest = parse_json(text, 8);
  check(manifest.is_object() && render(manifest) == text, op, "{} is damaged", path);
  check(manifest.at("format") == "trireme checkpoint" && manifest.at("version") == 1, op,
        "{} is of version {}, this program reads version 1", path, [&] { return json_text(manifest.at("version")); });
  return manifest;
}

Verified verify(const std::string& directory) {
  std::string path = directory + "/" + manifest_file;
  try {
    Json manifest = read_manifest(path);
    for (auto name : {model_file, optimizer_file}) {
      std::string file = directory + "/" + name;
      auto& about = manifest.at("files").at(name);
      std::size_t expected = about.at("bytes"), bytes = FileReader(file).size();
      check(bytes == expected, op, "{} has {} bytes, the manifest says {}", file, bytes, expected);
      check(crc32_of_file(file) == about.at("crc32").get<std::uint32_t>(), op, "{} is damaged: its CRC differs", file);
    }
    return {state_of(manifest), manifest.at("optimizer"), manifest.at("optimizer_steps")};
  } catch (const Json::exception& e) { fail(op, "{} is not a manifest: {}", path, e.what()); }
}

void check_whole(const Parameters& p, const Optimizer& o) {
  check(o.kept() == std::vector<Slice>{{0, p.size()}}, op,
        "the optimizer holds the state of a shard only: call consolidate() of its Step first, on every rank");
}

/// Checks everything against the model and the optimizer, then overwrites both.
void restore(const std::string& directory, const Verified& about, Parameters& p, Optimizer* o) {
  std::string model_path = directory + "/" + model_file, optimizer_path = directory + "/" + optimizer_file;
  SafetensorsFile model = read_safetensors(model_path), states;
  Import weights(stored_weights(p), model, model_path);
  if (o) {
    check_whole(p, *o);
    check(about.optimizer == o->name(), op, "{} was saved with optimizer {}, this run uses {}", directory,
          about.optimizer, [&] { return o->name(); });
    states = read_safetensors(optimizer_path);
    std::vector<StoredTensor> targets;
    for (auto& [kind, flat] : o->state())
      for (auto& t : stored_state(p, kind, flat)) targets.push_back(std::move(t));
    Import(std::move(targets), states, optimizer_path).apply();
    o->set_steps(about.optimizer_steps);
  }
  weights.apply();
}

/// The newest checkpoint that verifies.
std::optional<std::pair<LoadedCheckpoint, Verified>> newest(const std::string& run) {
  std::string damage;
  for (auto& [step, path] : list(run + "/checkpoints")) {
    Verified about;
    try {
      about = verify(path);
    } catch (const Error& e) {
      damage += (damage.empty() ? "" : "; ") + std::string(e.what());
      continue;
    }
    std::string note = damage.empty() ? "" : fmt::format("{}; resumed from {}", damage, path);
    return std::pair{LoadedCheckpoint{about.state, path, note}, about};
  }
  check(damage.empty(), op, "no checkpoint of {} can be read: {}", run, damage);
  return std::nullopt;
}

/// Puts a finished directory in place; one of the same step (training went on from an older one) is exchanged in one
/// step.
void publish(const std::string& temporary, const std::string& path) {
  bool exchanged = ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0;
  if (exchanged) {
    sync_directory(fs::path(path).parent_path().string());
    return remove_tree(temporary);
  }
  remove_tree(path);  // nothing there, or a file system without exchange: then the older checkpoints remain
  rename_durably(temporary, path);
}

/// Renames before removing, so that what is half removed is never taken for a checkpoint.
void prune(const std::string& root, const std::string& current, int keep_last) {
  std::error_code none;
  std::string best = fs::exists(root + "/best", none) ? read_text(root + "/best", 256) : "";
  int kept = 1;
  for (auto& [step, path] : list(root)) {
    std::string name = fs::path(path).filename().string();
    if (name == current || name + "\n" == best || ++kept <= keep_last) continue;
    if (::rename(path.c_str(), (path + ".tmp").c_str()) == 0) remove_tree(path + ".tmp");
  }
}

void remove_leftovers(const std::string& root) {
  std::error_code none;
  std::vector<std::string> found;
  for (fs::directory_iterator it(root, none), end; !none && it != end; it.increment(none))
    if (it->path().extension() == ".tmp") found.push_back(it->path().string());
  for (auto& path : found) remove_tree(path);
}

/// Everything up to the durable directory.
void store_all(const std::string& directory, const std::vector<NamedTensor>& weights,
               const std::vector<NamedTensor>& states, Json manifest) {
  make_directories(directory);
  manifest["files"][model_file] = store(directory + "/" + model_file, weights);
  manifest["files"][optimizer_file] = store(directory + "/" + optimizer_file, states);
  std::string text = render(std::move(manifest));
  check(text.size() <= most_manifest_bytes, op,
        "the configuration makes a manifest of {} bytes, at most {} are allowed", text.size(),
        std::size_t{most_manifest_bytes});
  FileWriter file(directory + "/" + manifest_file, text.size());
  file.write(std::as_bytes(std::span(text)));
  file.finish();
  sync_directory(directory);
}

}  // namespace

std::string save_checkpoint(const std::string& run, const Parameters& p, const Optimizer& o, const TrainState& state,
                            const SaveOptions& options) {
  check_whole(p, o);
  auto weights = export_weights(p, state.step);
  std::vector<NamedTensor> states;
  for (auto& [kind, flat] : o.state())
    for (auto& t : export_tensors(stored_state(p, kind, flat))) states.push_back(std::move(t));
  if (!options.write) return "";
  check_finite(weights), check_finite(states);
  check(state.step >= 0, op, "step {} is negative", state.step);

  std::string root = run + "/checkpoints", name = directory_name(state.step), path = root + "/" + name;
  std::string temporary = path + ".tmp";
  make_directories(root);
  remove_leftovers(root);
  try {
    store_all(temporary, weights, states, describe(p, o, state));
    publish(temporary, path);
  } catch (const Json::exception&) {
    remove_tree(temporary);
    fail(op, "the configuration or a metric's name is not UTF-8");
  } catch (...) {
    remove_tree(temporary);
    throw;
  }
  replace_file(root + "/latest", name + "\n");
  if (options.best) replace_file(root + "/best", name + "\n");
  if (options.keep_last > 0) prune(root, name, options.keep_last);
  return path;
}

TrainState verify_checkpoint(const std::string& directory) { return verify(directory).state; }

LoadedCheckpoint load_checkpoint(const std::string& directory, Parameters& p, Optimizer* o) {
  Verified about = verify(directory);
  restore(directory, about, p, o);
  return {std::move(about.state), directory, ""};
}

std::optional<LoadedCheckpoint> find_latest(const std::string& run) {
  auto found = newest(run);
  return found ? std::optional(found->first) : std::nullopt;
}

std::optional<LoadedCheckpoint> load_latest(const std::string& run, Parameters& p, Optimizer* o) {
  auto found = newest(run);
  if (!found) return std::nullopt;
  restore(found->first.path, found->second, p, o);
  return found->first;
}

}  // namespace trireme
