// DescribedPlan: the plan of the settings' strategy for a mesh that is described, not started; with what plan show and
// simulate print of it.
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

/// The mesh of the settings: all ranks on "data" where they name none.
std::vector<Axis> mesh_axes(const TrainerOptions&);

/// The model of the settings, whole, and noise to try its parts on.
struct DescribedModel {
  explicit DescribedModel(const TrainerOptions&);
  Batch sample(Index rows) const;  ///< so many made-up samples
  Tensor input(Index rows) const { return sample(rows).x; }
  Plan plan(const Strategy&, std::vector<PartInfo> parts, const std::vector<Axis>& mesh, Index numbers = 0) const;
  /// What a step's ranks agree on included, and checked. Throws Error with the faults.
  /// numbers: length of the flat block, where parts are a rank's share of the model; 0: the model's.
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
  /// cost: of parts, "measured" here on one rank, "counted" from shapes for a device of so many operations per second,
  /// all "equal", or the path of a machine file. Throws OptionError for another.
  DescribedPlan(const TrainerOptions&, const std::vector<Axis>& mesh, const std::string& cost,
                double flops = Cluster{}.flops);
  /// Costs of micro-batches of so many rows in `parts` and `beside`. Equal costs are in proportion to the rows, and a
  /// millisecond for the first that were asked for.
  void set_rows(Index);
  /// What a plan of the model's layers send and keep (imagine()); `plan` has it only then. Takes a dry run.
  void imagine_ranks(const TrainerOptions&, Plan&);
  /// The plan of these parts on a mesh, with what ranks send and keep: as imagine_ranks() finds it for few ranks and
  /// rows, else by lines through dry runs of few (parallel/search/imagined_models.h). Where layers are split its parts
  /// are what a rank has of them, with its share of their seconds, in proportion to the operations counted. Throws
  /// Error where the model cannot be split so.
  Plan rank_plan(const TrainerOptions&, const std::vector<Axis>& mesh);
  /// Simulates steps of a plan of these parts on the cluster.
  Simulation simulate_on(const Cluster&, const Plan&, std::int64_t step, int steps = 1) const;
  void print_costs() const;
  /// A line, and a table of the plan's programs.
  void print_times(const Simulation&, const std::string& headline) const;
  std::string cost_in_words() const;  ///< "measured here on one rank"
  Source cost_source() const;         ///< of the parts' seconds
  /// Seconds that a device of speed 1 would compute for a step of so many samples if it were alone: forward and
  /// backward of all parts, losses, one update of all parameters, and what is between steps.
  double alone(Index samples) const;
  bool is_timed() const { return cost == "measured" || profile; }  ///< the parts' seconds are of a machine
  /// What is not in the times of the steps shown, of which traffic.step is the first, lines; empty: nothing.
  std::string caveat(int steps = 1) const;

  std::vector<Axis> mesh;
  Strategy strategy;
  DescribedModel model;
  std::string cost;
  double flops;                         ///< per second, for costs that are counted
  std::optional<ModelProfile> profile;  ///< of a machine file
  StepCosts beside;                     ///< of a machine file: loss, update, between steps
  std::vector<MeasuredCall> calls;      ///< of a machine file
  double fresh = 0, vector_op = 0;      ///< of a machine file: of SimulateOptions
  double jitter = 0;                    ///< of a machine file
  std::string collectives = {};         ///< of SimulateOptions
  Index rows = 1, first_rows = 0;       ///< of a micro-batch on a rank; those that set_rows() was first asked for
  std::vector<PartInfo> parts;          ///< with their costs
  Plan plan;
  TrafficOptions traffic;
  std::shared_ptr<ImaginedModels> rank_models = {};  ///< of rank_plan()
};

/// SimulateOptions::collectives: by messages where --collectives says so. Throws OptionError for an all-reduce that is
/// not simulated.
std::string collectives_of(const TrainerOptions&, const PlanOptions&);
/// The ranks among which a batch is divided: those along data of a program that trains; with backup workers the
/// gradients that an update takes.
int batch_ranks(const Plan&);
/// The phases that run in some steps only, of all programs, each once.
std::vector<ProgramPhase> rare_phases(const Plan&);
/// Columns of the terminal; 120 where there is none.
int terminal_width();
/// Writes a file and says so. Throws Error naming it.
void write_file(const std::string& path, const std::string& text);
/// The files that the options ask for; text: below the picture on the page.
void write_drawings(const PlanOptions&, const Plan&, const Timeline&, const std::string& text);

}  // namespace trireme
