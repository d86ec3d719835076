#include "framework/io/checkpoint_save.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace trireme::detail {
namespace {

namespace fs = std::filesystem;

constexpr char save_op[] = "checkpoint";

void check_finite(const std::vector<TensorToWrite>& tensors) {
  for (auto& t : tensors)
    if (is_float(t.tensor.dtype()))
      dispatch_float(t.tensor.dtype(), save_op, [&]<class T>(T) {
        bool finite = true;
        for (T v : t.tensor.view().span<T>()) finite &= std::isfinite(static_cast<double>(v));
        check(finite, ErrorKind::numerics, save_op,
              "\"{}\" has values that are not finite, so nothing was saved: resume from an earlier checkpoint", t.name);
      });
}

/// Puts a finished directory in place. A directory of the same step (training resumed from an earlier one) is exchanged
/// atomically.
void publish(const std::string& temporary, const std::string& path) {
  bool exchanged = ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0;
  if (exchanged) {
    sync_directory(fs::path(path).parent_path().string());
    return remove_tree(temporary);
  }
  remove_tree(path);  // nothing there, or a file system without exchange: the older checkpoints remain
  rename_durably(temporary, path);
}

/// Renames before removing, so that a partly removed directory is never taken for a checkpoint.
void prune(const std::string& root, const std::string& current, const SaveOptions& options) {
  std::error_code none;
  const std::string best = fs::exists(root + "/best", none) ? read_text(root + "/best", 256) : "";
  int kept = 1;
  for (auto& [step, path] : checkpoints_of(root)) {
    const std::string name = fs::path(path).filename().string();
    if (name == current || name + "\n" == best || ++kept <= options.keep_last) continue;
    if (options.keep_every > 0 && step % options.keep_every == 0) continue;
    if (::rename(path.c_str(), (path + ".tmp").c_str()) == 0) remove_tree(path + ".tmp");
  }
}

/// Writes an index if a kind has several files, after checking that they contain the whole model.
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

/// Writes this rank's files and returns them as JSON. wanted: per rank, one mark per kind: whether it has something to
/// write.
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

/// Rank 0's work after all files are written: the indices, the manifest, the names.
void complete(const std::string& path, const CheckpointInput& input, const SaveOptions& options,
              const std::vector<std::string>& written) {
  std::array<std::vector<ShardFile>, file_kinds> files;
  std::vector<ShardFile> all;
  for (const std::string& text : written)
    for (const Json& f : parse_json(text)) {
      all.push_back({f[1], f[2], f[3]});
      files[f[0].get<std::size_t>()].push_back(all.back());
    }
  const std::string temporary = path + ".tmp", root = fs::path(path).parent_path().string(),
                    name = fs::path(path).filename().string();
  for (const CheckpointFile kind : {model_file, optimizer_file})
    index_shards(temporary, kind, files[kind], input.expected[kind], all);
  write_manifest(temporary, all, input.manifest, files[local_file].empty() ? "" : input.layout);
  publish(temporary, path);
  replace_file(root + "/latest", name + "\n");
  if (options.best) replace_file(root + "/best", name + "\n");
  if (options.keep_last > 0) prune(root, name, options);
}

}  // namespace

CheckpointInput::CheckpointInput(const Parameters& p, const Optimizer& o, const TrainState& state,
                                 const SaveOptions& options)
    : manifest(describe(p, o, state)), layout(layout_of(options.shard)), step(state.step) {
  const auto& shard = options.shard;
  divided = shard.has_value();
  if (shard) {
    rank = shard->rank;
    ranks = shard->ranks;
  }
  stored[model_file] = shard ? stored_weights(p, shard->writes, shard->writes_buffers) : stored_weights(p);
  counters = batch_counters(stored[model_file], state.step);
  auto& states = stored[optimizer_file];
  for (auto& [kind, flat] : o.state())
    for (auto& t : shard ? stored_state(p, kind, flat, o.kept(), shard->writes_state) : stored_state(p, kind, flat))
      states.push_back(std::move(t));
  if (shard) add_states(states, p, shard, shard->writes);
  for (auto& [name, tensor] : options.local) local.push_back({name, tensor});
  if (shard)
    for (auto& [name, tensor] : shard->local) local.push_back({name, tensor.to(cpu())});
  if (rank > 0 || ranks == 1) return;
  expected[model_file] = stored_weights(p, {}, std::vector<bool>(p.buffers().size()));
  for (auto& [kind, flat] : o.state())
    for (auto& t : stored_state(p, kind, flat, o.kept(), {})) expected[optimizer_file].push_back(std::move(t));
  add_states(expected[optimizer_file], p, shard, {});
}

void CheckpointInput::copy(std::vector<Tensor>& space) {
  std::size_t next = 0;
  const auto own = [&](Tensor& t) {
    if (next == space.size()) space.emplace_back();
    Tensor& to = space[next++];
    if (!to.defined() || to.dtype() != t.dtype() || to.shape() != t.shape()) to = Tensor::empty(t.shape(), t.dtype());
    to.copy_from(t);
    t = to;
  };
  for (auto& list : stored)
    for (StoredTensor& t : list) own(t.tensor);
  for (NamedTensor& t : local) own(t.tensor);
  space.resize(next);
}

Shards CheckpointInput::shards() const {
  Shards all;
  for (const CheckpointFile kind : {model_file, optimizer_file})
    for (const StoredTensor& t : stored[kind]) {
      if (divided && t.tensor.numel() == 0 && (t.whole.numel() > 0 || rank > 0)) continue;
      const Shape whole = in_file(t.whole, t.layout);
      all[kind].add(to_write(t), whole, divided ? in_file(t.at, t.layout) : whole);
    }
  for (auto& count : counters) all[model_file].tensors.push_back(count);
  for (auto& t : local) all[local_file].tensors.push_back(t);
  return all;
}

std::string write_checkpoint(const std::string& run, const CheckpointInput& input,
                             const std::function<Shards()>& shards, const SaveOptions& options,
                             const GatherTexts& gather) {
  const bool main = input.rank == 0;
  const std::string root = run + "/checkpoints", path = root + "/" + step_directory(input.step);
  try {
    Shards mine;
    // Every rank sends one mark per kind of file that it writes; rank 0 also sends the path.
    auto starts = together(gather, [&] {
      mine = shards();
      std::string text;
      for (const SafetensorsShard& s : mine) {
        check_finite(s.tensors);
        text += s.tensors.empty() ? '0' : '1';
      }
      check(input.step >= 0, save_op, "step is {}, expected at least 0", input.step);
      if (!main) return text;
      make_directories(root);
      remove_unfinished(run);
      make_directories(path + ".tmp");
      return text + path;
    });
    const std::string place = starts[0].substr(file_kinds);
    const auto rank = static_cast<std::size_t>(input.rank);
    const auto written = together(gather, [&] { return store_shards(place + ".tmp", mine, starts, rank); });
    together(gather, [&] {
      if (main) complete(path, input, options, written);
      return std::string();
    });
    return place;
  } catch (...) {
    if (main) remove_tree(path + ".tmp");
    throw;
  }
}

}  // namespace trireme::detail

namespace trireme {

std::string save_checkpoint(const std::string& run, const Parameters& p, const Optimizer& o, const TrainState& state,
                            const SaveOptions& options) {
  const auto& shard = options.shard;
  if (!shard) detail::check_whole(p, o);
  const detail::CheckpointInput input(p, o, state, options);
  detail::Shards mine;
  if (!shard) mine = input.shards();  // collective, where weights are divided
  if (!options.write) return "";
  return detail::write_checkpoint(
      run, input, [&] { return shard ? input.shards() : mine; }, options,
      shard && shard->ranks > 1 ? shard->all_gather : nullptr);
}

}  // namespace trireme
