// The manifest of a checkpoint's directory: where the run stood, and the sizes and CRCs of the other files. It is
// written last; its own CRC covers all of its text.
#pragma once
#include <array>

#include "framework/io/checkpoint.h"
#include "framework/io/json.h"

namespace trireme::detail {

/// What the files of a checkpoint hold.
enum CheckpointFile : std::size_t { model_file, optimizer_file, local_file, file_kinds };
/// "model-00002-of-00003.safetensors"; a file alone, unless it is of rank-local state: "model.safetensors".
std::string file_name(CheckpointFile kind, std::size_t number, std::size_t files);
/// "model.safetensors.index.json"
std::string index_name(CheckpointFile kind);

/// What a manifest says, once it and the files it names are verified.
struct Manifest {
  TrainState state;
  std::string optimizer;
  std::int64_t optimizer_steps = 0;
  std::array<std::vector<std::string>, file_kinds> files;  ///< paths
  std::string layout;                                      ///< of rank-local state; empty: there is none
};
/// Throws Error for a manifest or a file that is missing, malformed or damaged. Of the files only every ranks-th, from
/// number `rank` on, is looked at: ranks share them.
Manifest read_manifest(const std::string& directory, int rank, int ranks);
/// All of a manifest but the files and the layout.
Json describe(const Parameters&, const Optimizer&, const TrainState&);
/// Writes what describe() has given, completed, and makes the directory durable. layout: as in Manifest.
void write_manifest(const std::string& directory, const std::vector<ShardFile>&, Json manifest,
                    const std::string& layout);

}  // namespace trireme::detail
