// Schedules of a pipeline: the order of passes in each program. pipeline() (strategies/pipeline.cpp) adds messages,
// frees and updates in the same way for all schedules.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// One pass of a micro-batch through one chunk: forward, or backward whole or in halves. Or an update; a schedule
/// without update cells updates after all passes.
struct Cell {
  ActionKind kind;                               ///< forward, backward, backward_input, backward_weight or update
  int chunk = 0;                                 ///< chunk of the program, in [0, PipelineShape::chunks)
  MicroBatch microbatch = {};                    ///< micro-batch of this step, or of an earlier one
  int version = 0;                               ///< age of the weights that a pass reads: Action::version
  bool operator==(const Cell&) const = default;  ///< member by member
};
/// The input of a schedule.
struct PipelineShape {
  int programs = 1,                                       ///< number of ranks along the pipeline's axis, at least 1
      microbatches = 1;                                   ///< number per step, at least 1
  int chunks = 1;                                         ///< number of stages per program
  bool operator==(const PipelineShape&) const = default;  ///< member by member
};

/// One schedule: an order of cells for each program.
struct PipelineSchedule {
  std::string name;  ///< "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"
  /// The cells of a program, in the order of execution. program: its index.
  std::vector<Cell> (*cells)(const PipelineShape&, int program);
  /// The largest number of activations that a program holds at once, counted once per chunk and micro-batch.
  int (*in_flight)(const PipelineShape&, int program);
  /// True: chunks must be at least 2, and microbatches a multiple of programs. False: chunks must be 1, unless `folds`.
  bool interleaves = false;
  /// True: chunks must be 2, and the second half of the stages goes back from the last program to the first, as a V.
  /// The last program runs its two stages as one chunk.
  bool folds = false;
  /// For schedules whose micro-batches outlive their step: the largest age, in updates, of the weights of a gradient.
  /// Null: each step ends with its update, and gradients are of the newest weights.
  int (*delay)(const PipelineShape&) = nullptr;
  /// With a delay. True: microbatches must be 1, every micro-batch is a step. False: microbatches must be at least
  /// programs.
  bool one_by_one = false;
};
/// The stage of a program's chunk: chunk * programs + program, or in a V 2 * programs - 1 - program for chunk 1.
int stage_of(const PipelineSchedule&, const PipelineShape&, int program, int chunk);
/// The largest number of micro-batches that cells with halves of backward hold at once, in one chunk; -1: in all
/// chunks, each counted.
int most_alive(const std::vector<Cell>&, int chunk = -1);
/// The program of a stage.
int program_of(const PipelineSchedule&, const PipelineShape&, int stage);
/// GPipe (arXiv 1811.06965), 1F1B (PipeDream, arXiv 1806.03377), interleaved 1F1B (arXiv 2104.04473), ZB-H1 and ZB-V
/// (zero bubble, arXiv 2401.10241), DualPipeV (arXiv 2412.19437). A new schedule gets a row in schedules.cpp.
const std::vector<PipelineSchedule>& schedules();
/// The schedules with a delay. pipedream updates after each micro-batch and keeps a version of the weights for each
/// micro-batch in flight (PipeDream: Harlap et al., arXiv 1806.03377; Narayanan et al., SOSP 2019). 2bw keeps two
/// versions (PipeDream-2BW: arXiv 2006.09503).
const std::vector<PipelineSchedule>& asynchronous_schedules();
/// A schedule of either table. Throws Error with the list, and a suggestion, for an unknown name.
const PipelineSchedule& find_schedule(const std::string& name);
/// Throws Error if the schedule does not support the shape.
void check_shape(const PipelineSchedule&, const PipelineShape&);

}  // namespace trireme
