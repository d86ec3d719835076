#include "framework/io/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "framework/io/checkpoint_parts.h"
#include "kernels/core/text.h"

namespace trireme {

std::string step_directory(std::int64_t step) { return fmt::format("step_{:08}", step); }
namespace {

namespace fs = std::filesystem;

constexpr char op[] = "checkpoint";
/// The path of one file, or the folder of several files.
std::string name_of(const std::vector<std::string>& files, const std::string& directory) {
  return files.size() == 1 ? files[0] : directory;
}

/// Removes the states that only the file has, or only the run.
void match_states(std::vector<StoredTensor>& targets, std::vector<SafetensorsPiece>& pieces) {
  const auto lacks = [](const auto& list) {
    std::set<std::string> names;
    for (const auto& t : list) names.insert(t.name);
    return [names](const auto& t) { return t.name.starts_with(detail::of_store) && !names.contains(t.name); };
  };
  const auto not_in_file = lacks(pieces);
  const auto not_in_run = lacks(targets);
  std::erase_if(targets, not_in_file);
  std::erase_if(pieces, not_in_run);
}

/// The words of a layout, sorted: strategies may be written in any order.
std::vector<std::string> words_of(const std::string& layout) {
  std::vector<std::string> words = split_text(layout, ' ');
  std::ranges::sort(words);
  return words;
}

/// This rank's state, as saved by a run of the same layout.
std::map<std::string, Tensor> read_local(const std::string& directory, const detail::Manifest& about,
                                         const std::optional<CheckpointShard>& shard) {
  std::map<std::string, Tensor> found;
  if (about.layout.empty()) return found;
  check(words_of(about.layout) == words_of(detail::layout_of(shard)), op,
        "{} holds state of single ranks of layout {}, this run has layout {}: resume with the layout of the checkpoint",
        directory, about.layout, [&] { return detail::layout_of(shard); });
  const auto number = static_cast<std::size_t>(shard ? shard->rank : 0) + 1;
  const std::string name =
      detail::file_name(detail::local_file, number, static_cast<std::size_t>(shard ? shard->ranks : 1));
  for (const std::string& path : about.files[detail::local_file])
    if (fs::path(path).filename() == name)
      for (auto& [key, tensor] : read_safetensors(path).tensors) found[key] = tensor;
  return found;
}

/// Checks everything against the model and the optimizer, then overwrites both. Returns the rank-local state.
std::map<std::string, Tensor> restore(const std::string& directory, const detail::Manifest& about, Parameters& p,
                                      Optimizer* o, const std::optional<CheckpointShard>& shard = {}) {
  std::vector<Import> imports;
  std::map<std::string, Tensor> of_rank;
  detail::together(shard, [&] {
    const auto& [weights, states, of_ranks] = about.files;
    imports.emplace_back(shard ? stored_weights(p, shard->holds, shard->holds_buffers) : stored_weights(p),
                         open_shards(weights), name_of(weights, directory));
    if (!o) return std::string();
    if (!shard) detail::check_whole(p, *o);
    check(about.optimizer == o->name(), op,
          "{} was saved with optimizer {}, this run uses {}: use the optimizer of the checkpoint", directory,
          about.optimizer, [&] { return o->name(); });
    std::vector<StoredTensor> targets;
    for (auto& [kind, flat] : o->state())
      for (auto& t : shard ? stored_state(p, kind, flat, o->kept(), o->kept()) : stored_state(p, kind, flat))
        targets.push_back(std::move(t));
    if (shard) detail::add_states(targets, p, shard, shard->holds);
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
std::optional<std::pair<LoadedCheckpoint, detail::Manifest>> newest(const std::string& run,
                                                                    const std::string& but = "") {
  std::string damage;
  std::optional<ErrorKind> kind;  // of the newest checkpoint's error
  for (auto& [step, path] : detail::checkpoints_of(run + "/checkpoints")) {
    if (path == but) continue;
    detail::Manifest about;
    try {
      about = detail::read_manifest(path, 0, 1);
    } catch (const Error& e) {
      damage += (damage.empty() ? "" : "; ") + std::string(e.what());
      kind = kind.value_or(e.kind());
      continue;
    }
    std::string note = damage.empty() ? "" : fmt::format("{}; resumed from {}", damage, path);
    return std::pair{LoadedCheckpoint{about.state, path, note, {}}, about};
  }
  check(damage.empty(), kind.value_or(ErrorKind::data), op, "no checkpoint of {} can be read: {}", run, damage);
  return std::nullopt;
}

}  // namespace

std::map<std::string, Tensor> read_local_state(const std::string& directory, const CheckpointShard& shard) {
  return read_local(directory, detail::read_manifest(directory, shard.rank, shard.ranks), shard);
}

TrainState verify_checkpoint(const std::string& directory) { return detail::read_manifest(directory, 0, 1).state; }

LoadedCheckpoint load_checkpoint(const std::string& directory, Parameters& p, Optimizer* o,
                                 const std::optional<CheckpointShard>& shard) {
  detail::Manifest about;
  detail::together(shard, [&] {
    about = detail::read_manifest(directory, shard ? shard->rank : 0, shard ? shard->ranks : 1);
    return std::string();
  });
  auto of_rank = restore(directory, about, p, o, shard);
  return {std::move(about.state), directory, "", std::move(of_rank)};
}

std::vector<std::string> import_but_head(const std::string& path, Parameters& p, const CheckpointShard& shard) {
  std::optional<std::pair<Import, std::vector<std::string>>> found;
  detail::together(shard, [&] {
    found = Import::but_head(p, stored_weights(p, shard.holds, shard.holds_buffers), open_safetensors(path), path);
    return std::string();
  });
  found->first.apply();
  return std::move(found->second);
}

void remove_unfinished(const std::string& run) {
  std::error_code none;
  std::vector<std::string> found;
  for (fs::directory_iterator it(run + "/checkpoints", none), end; !none && it != end; it.increment(none))
    if (it->path().extension() == ".tmp") found.push_back(it->path().string());
  for (auto& path : found) detail::remove_tree(path);
}

bool has_checkpoints(const std::string& run) { return !detail::checkpoints_of(run + "/checkpoints").empty(); }

std::optional<LoadedCheckpoint> find_latest(const std::string& run, const std::string& but) {
  auto found = newest(run, but);
  return found ? std::optional(found->first) : std::nullopt;
}

std::optional<LoadedCheckpoint> load_latest(const std::string& run, Parameters& p, Optimizer* o) {
  auto found = newest(run);
  if (!found) return std::nullopt;
  found->first.local = restore(found->first.path, found->second, p, o);
  return found->first;
}

}  // namespace trireme
