// The manifest of a checkpoint's directory: the run's position, and sizes and CRCs of the other files. It is written
// last, and its own CRC covers all of its text.
#pragma once
#include <array>

#include "framework/io/checkpoint.h"
#include "framework/io/json.h"

namespace trireme::detail {

/// The kinds of files of a checkpoint.
enum CheckpointFile : std::size_t { model_file, optimizer_file, local_file, file_kinds };
/// "model-00002-of-00003.safetensors"; "model.safetensors" for a single file, except of rank-local state.
std::string file_name(CheckpointFile kind, std::size_t number, std::size_t files);
/// "model.safetensors.index.json"
std::string index_name(CheckpointFile kind);

/// The contents of a manifest, after the manifest and its files have been checked.
struct Manifest {
  TrainState state;
  std::string optimizer;
  std::int64_t optimizer_steps = 0;
  std::array<std::vector<std::string>, file_kinds> files;  ///< paths
  std::string layout;                                      ///< layout of the rank-local state; empty: there is none
};
/// Throws Error for a manifest or a file that is missing, malformed or damaged. Checks only every ranks-th file, from
/// number `rank` on: ranks share the work.
Manifest read_manifest(const std::string& directory, int rank, int ranks);
/// A manifest without files and layout.
Json describe(const Parameters&, const Optimizer&, const TrainState&);
/// Completes describe()'s manifest, writes it and makes the directory durable. layout: as in Manifest.
void write_manifest(const std::string& directory, const std::vector<ShardFile>&, Json manifest,
                    const std::string& layout);

}  // namespace trireme::detail
