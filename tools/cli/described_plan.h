// DescribedPlan: the plan of the settings' strategy for a mesh whose ranks are described, not started. Also the output
// that plan show and simulate share.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/optim/optimizer.h"
#include "parallel/analysis/imagine.h"
#include "parallel/analysis/simulate.h"
#include "parallel/model/chain.h"
#include "parallel/model/memory.h"
#include "parallel/profile/machine_profile.h"
#include "parallel/search/imagined_models.h"
#include "parallel/strategies/strategy.h"
#include "tools/cli/commands.h"
#include "tools/training/from_options.h"

namespace trireme {

/// Axes of the settings' mesh. Without a mesh, all ranks are on "data".
std::vector<Axis> mesh_axes(const TrainerOptions&);

/// The whole model of the settings, and noise as input for measuring its parts.
struct DescribedModel {
  explicit DescribedModel(const TrainerOptions&);
  Batch sample(Index rows) const;  ///< a batch of `rows` random samples
  Tensor input(Index rows) const { return sample(rows).x; }
  /// measure_costs() on such a batch, with drawn weights; otherwise no weight is written.
  std::vector<PartCost> measured_costs(Index rows);
  Plan plan(const Strategy&, std::vector<PartInfo> parts, const std::vector<Axis>& mesh, Index numbers = 0) const;
  /// The plan with the traffic of a step, checked. Throws Error with the faults. numbers: length of the flat parameter
  /// block if the parts are a rank's share of the model; 0: the model's length.
  Plan whole_plan(const TrainerOptions&, const Strategy&, std::vector<PartInfo> parts, const std::vector<Axis>& mesh,
                  Index numbers = 0);
  std::string memory(const TrainerOptions&, const Plan&);  ///< a table of what ranks hold, predicted

  TrainerOptions settings;
  ModelOptions shape;
  Device device;
  Module model;
  Chain chain;
  Parameters parameters;
  DType dtype;
};
MemoryOptions memory_options(const TrainerOptions&, Parameters&);

struct DescribedPlan {
  /// cost: of parts. "measured" here on one rank; "counted" from shapes, for a device with these rates; "equal" for all
  /// parts; or the path of a machine file; empty: measured if that takes seconds, else counted. Throws OptionError for
  /// another word.
  DescribedPlan(const TrainerOptions&, const std::vector<Axis>& mesh, const std::string& cost,
                const DeviceRates& = Cluster{}.rates());
  /// Sets the costs of micro-batches of that many rows in `parts` and `beside`. Equal costs are proportional to the
  /// rows; for the first rows that were set they are a millisecond.
  void set_rows(Index);
  /// Adds to `plan` the messages and activations of the model's layers (imagine()). Needs a dry run.
  void imagine_ranks(const TrainerOptions&, Plan&);
  /// The plan of these parts on a mesh, with each rank's messages and memory. For few ranks and rows imagine_ranks()
  /// finds them. For more, they are extrapolated from small dry runs (parallel/search/imagined_models.h). If layers are
  /// split, a part's cost is the rank's share of the seconds, proportional to its counted operations. Throws Error if
  /// the model cannot be split that way.
  Plan rank_plan(const TrainerOptions&, const std::vector<Axis>& mesh);
  /// After rank_plan() with split layers: layers_table() of that plan. Else empty.
  std::string layers() const;
  /// Simulates steps of a plan of these parts on the cluster.
  Simulation simulate_on(const Cluster&, const Plan&, std::int64_t step, int steps = 1) const;
  void print_costs() const;
  /// Prints a headline, and a table of the plan's programs.
  void print_times(const Simulation&, const std::string& headline) const;
  std::string cost_in_words() const;  ///< "measured here on one rank"
  Source cost_source() const;         ///< of the parts' seconds
  /// Seconds that one device of speed 1 needs for a step of that many samples: forward and backward of all parts,
  /// losses, one update of all parameters, and the work between steps.
  double alone(Index samples) const;
  bool is_timed() const { return cost == "measured" || profile; }  ///< the parts' seconds were measured
  /// Lines that describe costs missing from the simulated steps, the first of which is traffic.step; empty: none.
  std::string caveat(int steps = 1) const;

  std::vector<Axis> mesh;
  Strategy strategy;
  DescribedModel model;
  std::string cost;
  DeviceRates rates;                    ///< for counted costs
  std::optional<ModelProfile> profile;  ///< of a machine file
  StepCosts beside;                     ///< of a machine file: loss, update, work between steps
  std::vector<MeasuredCall> calls;      ///< of a machine file
  double fresh = 0, vector_op = 0;      ///< of a machine file, for SimulateOptions
  double jitter = 0;                    ///< of a machine file
  std::string busy = {};                ///< of a machine file: busy_in_words()
  std::string collectives = {};         ///< of SimulateOptions
  Index rows = 1, first_rows = 0;       ///< rows of a micro-batch on a rank; argument of the first set_rows()
  std::vector<PartInfo> parts;          ///< with their costs
  Plan plan;
  TrafficOptions traffic;
  std::shared_ptr<ImaginedModels> rank_models = {};             ///< of rank_plan()
  std::shared_ptr<const std::vector<RankWeight>> weights = {};  ///< of rank_plan()
};

/// SimulateOptions::collectives as --collectives says. Throws OptionError for an all-reduce that cannot be simulated.
std::string collectives_of(const TrainerOptions&, const PlanOptions&);
/// Number of ranks with rows of their own: the ranks of a training program along batch_axis(). With backup workers, the
/// number of gradients per update. split: the strategy's.
int batch_ranks(const Plan&, const SplitOptions&);
/// The phases of all programs that run in some steps only, without duplicates.
std::vector<ProgramPhase> rare_phases(const Plan&);
/// Columns of the terminal; 120 without a terminal.
int terminal_width();
/// Writes a file and prints its path. Throws Error with the path.
void write_file(const std::string& path, const std::string& text);
/// Writes the files that the options ask for. text: printed below the picture on the page.
void write_drawings(const PlanOptions&, const Plan&, const Timeline&, const std::string& text);

}  // namespace trireme
