// infer(): carries out an InferencePlan over the ranks of a world. Finished tiles are noted in a TileJournal, so that a
// run that was killed, or one of several parts of a job array, goes on where tiles are missing.
#pragma once
#include <functional>
#include <string>

#include "parallel/comm/world/mesh.h"
#include "parallel/inference/inference_plan.h"
#include "parallel/inference/tile_journal.h"

namespace trireme {

/// The volumes of one rank: whence and where to. Boxes are [1, spatial..., C] as VolumeNet's.
struct InferenceFiles {
  ReadBox read;  ///< of the volume
  /// Writes the net's values of a box. Returns the numbers that the file now has there, of which checksums are taken.
  std::function<Tensor(const Box&, const Tensor&)> write;
  std::function<void()> sync = [] {};                       ///< what was written is on the disk
  std::function<Tensor(const Box&)> read_result = nullptr;  ///< what write() returned, read again
};

struct InferenceProgress {
  Index done = 0, all = 0;  ///< tiles of this rank's share in all passes, those that were finished before left out
  double seconds = 0;       ///< since it began
};

struct InferenceRun {
  std::string journal = {};   ///< the TileJournal's folder, which stands already; empty: nothing is kept
  std::string volume = {};    ///< the file that write() writes, of which the journal speaks; empty: it has no name
  std::string features = {};  ///< file for what passes keep; only where there are several
  std::string writer = "0";   ///< a name of this process that no other on the same journal has
  Index part = 0, parts = 1;  ///< of the tiles
  std::function<void(const InferenceProgress&)> progress = nullptr;
  std::function<bool()> stop = nullptr;  ///< asked before each tile: whether to end, with what is done noted

  std::vector<std::string> data() const { return {volume, features}; }  ///< of the journal (TileJournal)
};

struct InferenceResult {
  Index computed = 0, kept = 0;  ///< tiles, by all ranks now and by earlier runs
  Index missing = 0;             ///< tiles of the last pass that nobody has finished, of all parts
  bool stopped = false;
  double sent = 0;    ///< bytes of messages, of all ranks
  double memory = 0;  ///< bytes of tensors at the most, of the rank with most
};

/// Opens the volumes for a rank; called once per rank, by its thread.
using OpenFiles = std::function<InferenceFiles(World&)>;

/// A collective call of all ranks. Throws Error for a plan of several passes with parts.
InferenceResult infer(World&, const std::vector<Axis>& mesh, const VolumeNet&, const InferencePlan&, const OpenFiles&,
                      const InferenceRun& = {});

/// Tiles that are finished by the journal, and those that are not: which parts of a job array lack how many.
struct MissingTiles {
  Index missing = 0;
  std::vector<std::pair<Index, Index>> parts;  ///< part (from 0) and how many of it
};
MissingTiles missing_tiles(const VolumeNet&, const InferencePlan&, const TileJournal&, Index parts);
/// Reads all tiles of the result and compares them with the checksums that were noted. Throws Error naming the first
/// box that is not what was computed.
void verify_tiles(const VolumeNet&, const InferencePlan&, const TileJournal&, const InferenceFiles&);

}  // namespace trireme
