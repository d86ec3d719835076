// Schedules of a pipeline: the passes of each program and their order. pipeline() (strategies/pipeline.cpp) adds
// messages, updates and the rest in the same way for all schedules.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// A pass of a micro-batch through one of the program's chunks: forward; or backward, whole or in halves. Or the
/// update, which otherwise comes after all passes.
struct Cell {
  ActionKind kind;                               ///< forward, backward, backward_input, backward_weight or update
  int chunk = 0;                                 ///< in [0, PipelineShape::chunks)
  MicroBatch microbatch = {};                    ///< of this step or an earlier one
  int version = 0;                               ///< Action::version
  bool operator==(const Cell&) const = default;  ///< member by member
};
/// The input of a schedule.
struct PipelineShape {
  int programs = 1,      ///< ranks of the pipeline's axis, at least 1
      microbatches = 1;  ///< per step, at least 1
  int chunks = 1;        ///< per program; chunk c of program r is stage c * programs + r
};

/// One schedule: an order of cells for each program.
struct PipelineSchedule {
  std::string name;  ///< "gpipe", "1f1b", "interleaved", "zb-h1"
  /// The cells of a program, in the order of execution.
  std::vector<Cell> (*cells)(const PipelineShape&, int program);
  int (*in_flight)(const PipelineShape&, int program);  ///< maximum number of micro-batches (of one chunk) alive at
                                                        ///< once
  bool interleaves = false;  ///< chunks is at least 2 and microbatches a multiple of programs; false: chunks is 1
  /// Maximum number of updates that the weights of a gradient miss, for schedules whose micro-batches outlive their
  /// step. Null: none; each step ends with its update.
  int (*delay)(const PipelineShape&) = nullptr;
  bool one_by_one = false;  ///< true: microbatches is 1, every micro-batch is a step; false: with a delay, microbatches
                            ///< is at least programs
};
/// GPipe (arXiv 1811.06965), 1F1B (PipeDream, arXiv 1806.03377), interleaved 1F1B (arXiv 2104.04473) and ZB-H1 (zero
/// bubble, arXiv 2401.10241). A new schedule gets a row in schedules.cpp.
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
