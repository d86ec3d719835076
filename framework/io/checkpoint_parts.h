// Functions that saving and loading checkpoints share.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "framework/io/checkpoint_manifest.h"

namespace trireme::detail {

/// Step and path of each finished checkpoint in root, the folder <run>/checkpoints; newest first.
std::vector<std::pair<std::int64_t, std::string>> checkpoints_of(const std::string& root);
/// Removes a directory tree. Ignores errors: the next save removes the rest.
void remove_tree(const std::string& path);
/// Throws Error if the optimizer has only part of the state.
void check_whole(const Parameters&, const Optimizer&);
/// CheckpointShard::layout, or "one rank alone" without a shard.
std::string layout_of(const std::optional<CheckpointShard>&);

/// Prefix of the names of CheckpointShard::states in files.
inline constexpr std::string_view of_store = "state.";
/// Appends the store's states, restricted to these slices.
void add_states(std::vector<StoredTensor>& to, const Parameters&, const std::optional<CheckpointShard>&,
                const std::vector<Slice>& within);

/// Gathers a text of every rank, in the order of ranks. Collective.
using GatherTexts = std::function<std::vector<std::string>(const std::string&)>;
/// Runs body on every rank, and returns the texts of all ranks in order. If body throws on one rank, all ranks throw
/// its error. gather null: there is one rank.
std::vector<std::string> together(const GatherTexts& gather, const std::function<std::string()>& body);
inline std::vector<std::string> together(const std::optional<CheckpointShard>& shard,
                                         const std::function<std::string()>& body) {
  return together(shard && shard->ranks > 1 ? shard->all_gather : nullptr, body);
}

}  // namespace trireme::detail
