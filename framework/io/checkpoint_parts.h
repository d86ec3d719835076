// What saving and loading checkpoints have in common.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "framework/io/checkpoint_manifest.h"

namespace trireme::detail {

/// Finished checkpoints of <run>/checkpoints by step, newest first.
std::vector<std::pair<std::int64_t, std::string>> checkpoints_of(const std::string& root);
/// What cannot be removed now is tried again by the next save.
void remove_tree(const std::string& path);
/// Throws Error where the optimizer has a part of the state only.
void check_whole(const Parameters&, const Optimizer&);
std::string layout_of(const std::optional<CheckpointShard>&);

/// What the names of CheckpointShard::states begin with in files.
inline constexpr std::string_view of_store = "state.";
/// States of the store, of what lies in these slices.
void add_states(std::vector<StoredTensor>& to, const Parameters&, const std::optional<CheckpointShard>&,
                const std::vector<Slice>& within);

/// By rank, what every rank gives. A collective call.
using GatherTexts = std::function<std::vector<std::string>(const std::string&)>;
/// Runs body on every rank; returns the texts of all, by rank, or throws on all what it threw on one. gather null:
/// there is one rank.
std::vector<std::string> together(const GatherTexts& gather, const std::function<std::string()>& body);
inline std::vector<std::string> together(const std::optional<CheckpointShard>& shard,
                                         const std::function<std::string()>& body) {
  return together(shard && shard->ranks > 1 ? shard->all_gather : nullptr, body);
}

}  // namespace trireme::detail
