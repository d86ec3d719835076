// infer(): carries out an InferencePlan over the ranks of a world. Finished tiles are recorded in a TileJournal. A
// killed run, or a part of a job array, continues with the missing tiles.
#pragma once
#include <functional>
#include <string>

#include "parallel/comm/world/mesh.h"
#include "parallel/inference/inference_plan.h"
#include "parallel/inference/tile_journal.h"

namespace trireme {

/// Input and output of one rank. Boxes are [1, spatial..., C] as in VolumeNet.
struct InferenceFiles {
  ReadBox read;  ///< reads the volume
  /// Writes the net's values of a box. Returns the stored numbers, of which checksums are taken.
  std::function<Tensor(const Box&, const Tensor&)> write;
  std::function<void()> sync = [] {};                       ///< syncs written data to the disk
  std::function<Tensor(const Box&)> read_result = nullptr;  ///< reads what write() returned
};

struct InferenceProgress {
  Index done = 0, all = 0;  ///< tiles of this rank in all passes, without tiles that were finished before
  double seconds = 0;       ///< since the start
};

struct InferenceRun {
  std::string journal = {};   ///< folder of the TileJournal, which must exist; empty: no journal
  std::string volume = {};    ///< file that write() writes, for the journal; empty: none
  std::string features = {};  ///< file of features between passes; needed for several passes
  std::string writer = "0";   ///< name of this process, unique among users of the journal
  Index part = 0, parts = 1;  ///< of the tiles
  std::function<void(const InferenceProgress&)> progress = nullptr;
  std::function<bool()> stop = nullptr;  ///< called before each tile; true: stop after recording finished tiles

  std::vector<std::string> data() const { return {volume, features}; }  ///< files for the journal (TileJournal)
};

struct InferenceResult {
  Index computed = 0, kept = 0;  ///< tiles computed now by all ranks, and by earlier runs
  Index missing = 0;             ///< unfinished tiles of the last pass, over all parts
  bool stopped = false;
  double sent = 0;    ///< bytes of messages, over all ranks
  double memory = 0;  ///< most bytes of tensors on a rank
};

/// Opens input and output of a rank; called once per rank, in its thread.
using OpenFiles = std::function<InferenceFiles(World&)>;

/// Runs the plan. A collective call of all ranks. Throws Error for a plan of several passes with parts.
InferenceResult infer(World&, const std::vector<Axis>& mesh, const VolumeNet&, const InferencePlan&, const OpenFiles&,
                      const InferenceRun& = {});

/// Finished and missing tiles of a journal, by part of a job array.
struct MissingTiles {
  Index missing = 0;
  std::vector<std::pair<Index, Index>> parts;  ///< part (from 0) and its number of missing tiles
};
MissingTiles missing_tiles(const VolumeNet&, const InferencePlan&, const TileJournal&, Index parts);
/// Reads all tiles of the result and compares their checksums with the journal. Throws Error with the first box that
/// differs.
void verify_tiles(const VolumeNet&, const InferencePlan&, const TileJournal&, const InferenceFiles&);

}  // namespace trireme
