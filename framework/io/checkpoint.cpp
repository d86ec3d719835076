#include "framework/io/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>

#include "framework/io/checkpoint_manifest.h"
#include "framework/io/json.h"

namespace trireme {
namespace {

using namespace detail;
namespace fs = std::filesystem;

constexpr char op[] = "checkpoint";
/// What a rank writes, a file of each kind.
using Shards = std::array<SafetensorsShard, file_kinds>;

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

/// Runs body on every rank; returns the texts of all, by rank, or throws on all what it threw on one.
template <class F>
std::vector<std::string> together(const std::optional<CheckpointShard>& shard, F body) {
  if (!shard || shard->ranks == 1) return {body()};
  std::string mine;
  std::exception_ptr mistake;
  try {
    mine = "." + body();
  } catch (const std::exception& e) { mine = std::string("!") + e.what(), mistake = std::current_exception(); }
  auto all = shard->all_gather(mine);
  if (mistake) std::rethrow_exception(mistake);
  for (std::size_t r = 0; r < all.size(); ++r) {
    check(all[r].starts_with('.'), op, "rank {}: {}", r, [&] { return all[r].substr(1); });
    all[r].erase(0, 1);
  }
  return all;
}

void check_whole(const Parameters& p, const Optimizer& o) {
  check(o.kept() == std::vector<Slice>{{0, p.size()}}, op,
        "the optimizer holds the state of a shard only: call consolidate() of its Step first, on every rank");
}

/// One file's path, or the folder of several.
std::string name_of(const std::vector<std::string>& files, const std::string& directory) {
  return files.size() == 1 ? files[0] : directory;
}

std::string layout_of(const std::optional<CheckpointShard>& shard) { return shard ? shard->layout : "one rank alone"; }

constexpr std::string_view of_store = "state.";  // what the names of CheckpointShard::states begin with in files

/// States of the store, of what lies in these slices.
void add_states(std::vector<StoredTensor>& to, const Parameters& p, const std::optional<CheckpointShard>& shard,
                const std::vector<Slice>& within) {
  if (!shard) return;
  for (const std::string& name : shard->states)
    for (auto& t : stored_state(p, std::string(of_store) + name, p.state(name), {{0, p.size()}}, within))
      to.push_back(std::move(t));
}

/// Leaves out the states that only the file has, or only the run.
void match_states(std::vector<StoredTensor>& targets, std::vector<SafetensorsPiece>& pieces) {
  const auto lacks = [](const auto& list) {
    std::set<std::string> names;
    for (const auto& t : list) names.insert(t.name);
    return [names](const auto& t) { return t.name.starts_with(of_store) && !names.contains(t.name); };
  };
  const auto not_in_file = lacks(pieces);
  const auto not_in_run = lacks(targets);
  std::erase_if(targets, not_in_file), std::erase_if(pieces, not_in_run);
}

/// This rank's state, which ranks of the same layout have saved.
std::map<std::string, Tensor> read_local(const std::string& directory, const Manifest& about,
                                         const std::optional<CheckpointShard>& shard) {
  std::map<std::string, Tensor> found;
  if (about.layout.empty()) return found;
  check(about.layout == layout_of(shard), op,
        "{} holds state of single ranks under {}, which only the same layout can go on with; this one is {}", directory,
        about.layout, [&] { return layout_of(shard); });
  const auto number = static_cast<std::size_t>(shard ? shard->rank : 0) + 1;
  const std::string name = file_name(local_file, number, static_cast<std::size_t>(shard ? shard->ranks : 1));
  for (const std::string& path : about.files[local_file])
    if (fs::path(path).filename() == name)
      for (auto& [key, tensor] : read_safetensors(path).tensors) found[key] = tensor;
  return found;
}

/// Checks everything against the model and the optimizer, then overwrites both. Returns the rank-local state.
std::map<std::string, Tensor> restore(const std::string& directory, const Manifest& about, Parameters& p, Optimizer* o,
                                      const std::optional<CheckpointShard>& shard = {}) {
  std::vector<Import> imports;
  std::map<std::string, Tensor> of_rank;
  together(shard, [&] {
    const auto& [weights, states, of_ranks] = about.files;
    imports.emplace_back(shard ? stored_weights(p, shard->holds, shard->holds_buffers) : stored_weights(p),
                         open_shards(weights), name_of(weights, directory));
    if (!o) return std::string();
    if (!shard) check_whole(p, *o);
    check(about.optimizer == o->name(), op, "{} was saved with optimizer {}, this run uses {}", directory,
          about.optimizer, [&] { return o->name(); });
    std::vector<StoredTensor> targets;
    for (auto& [kind, flat] : o->state())
      for (auto& t : shard ? stored_state(p, kind, flat, o->kept(), o->kept()) : stored_state(p, kind, flat))
        targets.push_back(std::move(t));
    if (shard) add_states(targets, p, shard, shard->holds);
    auto pieces = open_shards(states);
    match_states(targets, pieces);
    imports.emplace_back(std::move(targets), pieces, name_of(states, directory));
    of_rank = read_local(directory, about, shard);
    return std::string();
  });
  if (o) o->set_steps(about.optimizer_steps);
  for (const Import& i : imports) i.apply();
  return of_rank;
}

/// The newest checkpoint that verifies.
std::optional<std::pair<LoadedCheckpoint, Manifest>> newest(const std::string& run) {
  std::string damage;
  for (auto& [step, path] : list(run + "/checkpoints")) {
    Manifest about;
    try {
      about = read_manifest(path, 0, 1);
    } catch (const Error& e) {
      damage += (damage.empty() ? "" : "; ") + std::string(e.what());
      continue;
    }
    std::string note = damage.empty() ? "" : fmt::format("{}; resumed from {}", damage, path);
    return std::pair{LoadedCheckpoint{about.state, path, note, {}}, about};
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

/// What this rank is to write.
Shards shards_of(const Parameters& p, const Optimizer& o, const TrainState& state, const SaveOptions& options) {
  const auto& shard = options.shard;
  Shards all;
  const auto add = [&](CheckpointFile kind, const std::vector<StoredTensor>& stored) {
    for (const StoredTensor& t : stored) {
      if (shard && t.tensor.numel() == 0 && (t.whole.numel() > 0 || shard->rank > 0)) continue;
      const Shape whole = in_file(t.whole, t.layout);
      const Tensor values = std::move(export_tensors({t}).front().tensor);
      all[kind].add(t.name, values, whole, shard ? in_file(t.at, t.layout) : whole);
    }
  };
  const auto weights = shard ? stored_weights(p, shard->writes, shard->writes_buffers) : stored_weights(p);
  add(model_file, weights);
  for (auto& count : batch_counters(weights, state.step)) all[model_file].tensors.push_back(count);
  for (auto& [kind, flat] : o.state())
    add(optimizer_file,
        shard ? stored_state(p, kind, flat, o.kept(), shard->writes_state) : stored_state(p, kind, flat));
  std::vector<StoredTensor> states;
  if (shard) add_states(states, p, shard, shard->writes);
  add(optimizer_file, states);
  for (auto& [name, tensor] : options.local) all[local_file].tensors.push_back({name, tensor});
  if (shard)
    for (auto& [name, tensor] : shard->local) all[local_file].tensors.push_back({name, tensor.to(cpu())});
  return all;
}

/// Adds an index where the files of a kind are several, after a look at whether they hold all of the model.
void index_shards(const std::string& directory, CheckpointFile kind, const std::vector<ShardFile>& files,
                  std::vector<StoredTensor> expected, std::vector<ShardFile>& all) {
  if (files.size() < 2) return;
  std::vector<std::string> paths;
  for (const ShardFile& f : files) paths.push_back(directory + "/" + f.name);
  const auto pieces = open_shards(paths);
  const Import complete(std::move(expected), pieces, directory);
  const std::string text = shard_index(pieces, files), name = index_name(kind);
  write_new_file(directory + "/" + name, text);
  all.push_back({name, text.size(), crc32(std::as_bytes(std::span(text)))});
}

/// Writes this rank's files, and returns them as JSON. wanted: by rank, a mark per kind: whether it has something.
std::string store_shards(const std::string& directory, const Shards& mine, std::vector<std::string> wanted,
                         std::size_t rank) {
  Json written = Json::array();
  for (std::size_t kind = 0; kind < file_kinds; ++kind) {
    const auto has = [kind](const std::string& w) { return w[kind] == '1'; };
    if (kind != local_file && std::ranges::none_of(wanted, has)) wanted[0][kind] = '1';  // a file of nothing
    if (!has(wanted[rank])) continue;
    const auto before = wanted.begin() + static_cast<std::ptrdiff_t>(rank);
    const auto number =
        kind == local_file ? rank : static_cast<std::size_t>(std::count_if(wanted.begin(), before, has));
    const auto files =
        kind == local_file ? wanted.size() : static_cast<std::size_t>(std::ranges::count_if(wanted, has));
    const ShardFile f =
        write_shard(directory, file_name(static_cast<CheckpointFile>(kind), number + 1, files), mine[kind]);
    written.push_back({kind, f.name, f.bytes, f.crc});
  }
  return json_text(written);
}

/// What rank 0 does once all files are there: the indices, the manifest, the names.
void complete(const std::string& path, const Parameters& p, const Optimizer& o, const TrainState& state,
              const SaveOptions& options, const std::vector<std::string>& written) {
  std::array<std::vector<ShardFile>, file_kinds> files;
  std::vector<ShardFile> all;
  for (const std::string& text : written)
    for (const Json& f : parse_json(text))
      all.push_back({f[1], f[2], f[3]}), files[f[0].get<std::size_t>()].push_back(all.back());
  const std::string temporary = path + ".tmp", root = fs::path(path).parent_path().string(),
                    name = fs::path(path).filename().string();
  std::vector<StoredTensor> states;
  for (auto& [kind, flat] : o.state())
    for (auto& t : stored_state(p, kind, flat, o.kept(), {})) states.push_back(std::move(t));
  add_states(states, p, options.shard, {});
  const std::vector<bool> none(p.buffers().size());
  index_shards(temporary, model_file, files[model_file], stored_weights(p, {}, none), all);
  index_shards(temporary, optimizer_file, files[optimizer_file], std::move(states), all);
  write_manifest(temporary, all, p, o, state, files[local_file].empty() ? "" : layout_of(options.shard));
  publish(temporary, path);
  replace_file(root + "/latest", name + "\n");
  if (options.best) replace_file(root + "/best", name + "\n");
  if (options.keep_last > 0) prune(root, name, options.keep_last);
}

}  // namespace

std::string save_checkpoint(const std::string& run, const Parameters& p, const Optimizer& o, const TrainState& state,
                            const SaveOptions& options) {
  const auto& shard = options.shard;
  const bool main = !shard || shard->rank == 0;
  Shards mine;
  if (!shard) check_whole(p, o), mine = shards_of(p, o, state, options);  // collective, where weights are divided
  if (!options.write) return "";
  const std::string root = run + "/checkpoints", path = root + "/" + directory_name(state.step);
  try {
    // From each rank a mark per kind of file that it has something for; from rank 0 where, too.
    auto starts = together(shard, [&] {
      if (shard) mine = shards_of(p, o, state, options);
      std::string text;
      for (const SafetensorsShard& s : mine) check_finite(s.tensors), text += s.tensors.empty() ? '0' : '1';
      check(state.step >= 0, op, "step {} is negative", state.step);
      if (!main) return text;
      make_directories(root), remove_unfinished(run), make_directories(path + ".tmp");
      return text + path;
    });
    const std::string place = starts[0].substr(file_kinds);
    const auto rank = static_cast<std::size_t>(shard ? shard->rank : 0);
    const auto written = together(shard, [&] { return store_shards(place + ".tmp", mine, starts, rank); });
    together(shard, [&] {
      if (main) complete(path, p, o, state, options, written);
      return std::string();
    });
    return place;
  } catch (...) {
    if (main) remove_tree(path + ".tmp");
    throw;
  }
}

std::map<std::string, Tensor> read_local_state(const std::string& directory, const CheckpointShard& shard) {
  return read_local(directory, read_manifest(directory, shard.rank, shard.ranks), shard);
}

TrainState verify_checkpoint(const std::string& directory) { return read_manifest(directory, 0, 1).state; }

LoadedCheckpoint load_checkpoint(const std::string& directory, Parameters& p, Optimizer* o,
                                 const std::optional<CheckpointShard>& shard) {
  Manifest about;
  together(shard, [&] {
    about = read_manifest(directory, shard ? shard->rank : 0, shard ? shard->ranks : 1);
    return std::string();
  });
  auto of_rank = restore(directory, about, p, o, shard);
  return {std::move(about.state), directory, "", std::move(of_rank)};
}

void remove_unfinished(const std::string& run) {
  std::error_code none;
  std::vector<std::string> found;
  for (fs::directory_iterator it(run + "/checkpoints", none), end; !none && it != end; it.increment(none))
    if (it->path().extension() == ".tmp") found.push_back(it->path().string());
  for (auto& path : found) remove_tree(path);
}

bool has_checkpoints(const std::string& run) { return !list(run + "/checkpoints").empty(); }

std::optional<LoadedCheckpoint> find_latest(const std::string& run) {
  auto found = newest(run);
  return found ? std::optional(found->first) : std::nullopt;
}

std::optional<LoadedCheckpoint> load_latest(const std::string& run, Parameters& p, Optimizer* o) {
  auto found = newest(run);
  if (!found) return std::nullopt;
  found->first.local = restore(found->first.path, found->second, p, o);
  return found->first;
}

}  // namespace trireme
