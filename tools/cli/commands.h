// The subcommands of the trireme binary. Each returns the exit status, or throws what went wrong.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "framework/optim/parameters.h"
#include "models/text/generate.h"
#include "tools/launch/supervisor.h"
#include "tools/training/trainer_options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace trireme {

struct PredictOptions {
  std::vector<std::string> images;
  std::string run;             ///< a run directory; or none, and a model of ImageNet's with its weights
  std::string model, weights;  ///< weights: instead of the run's newest checkpoint
  std::string labels;          ///< a file with the name of one class per line; none: the run's, else numbers
  std::string npy;             ///< file to write, an array [images, classes] of f32; none: a line per image
  int top = 1;
  bool logits = false;  ///< not probabilities
  bool json = false;    ///< lines are JSON objects
  bool gray = false;    ///< colour pictures become grey for a model of grey ones, which else refuses them
  bool invert = false;
};

struct GenerateCommand {
  std::string run;                 ///< a run directory, a checkpoint, or a folder with config.json and weights
  std::string model;               ///< or none, and a model with its weights and tokenizer
  std::string weights, tokenizer;  ///< instead of the run's newest checkpoint and its tokenizer
  std::vector<std::string> prompts;
  std::string prompt_file;                   ///< one a line
  std::vector<std::string> stop = {};        ///< texts that end one; they are not printed
  Index samples = 1;                         ///< of each prompt
  Index context = 0;                         ///< most tokens that the model sees; 0: as many as it can
  bool json = false;                         ///< an object per text and line, when it is whole
  GenerateOptions options;                   ///< but for what follows
  std::optional<double> temperature, top_p;  ///< none: of the folder, or the usual
  std::optional<Index> top_k;                ///< alike
};

struct InferCommand {
  std::string run;                          ///< a run directory: its model, newest weights and scale
  std::string model, weights, volume, out;  ///< model: empty: the run's, or msd; weights: a safetensors file
  std::optional<double> mean, std;          ///< voxel_scale() of the volume; none: the run's, else 0
  std::string mesh;                         ///< "d=4,h=2"; empty: one rank
  std::string tile = "auto", way = "auto";  ///< InferenceLimits
  std::string memory;                       ///< bytes_of_memory() of a rank; empty: what is free
  std::string dtype = "f32";                ///< or "f64"
  std::string result = "logits";            ///< or "labels", "probabilities"
  std::string dilations;                    ///< of msd: "1,2,3", over and over; empty: its own
  std::string part;                         ///< "3/8": this share of the tiles; empty: all
  Index own_part = 1, parts = 1;            ///< what part says
  bool plan = false, join = false;          ///< only print the plan; only bring parts together
  std::string cluster;                      ///< of plan: a cluster file; its links and devices carry it out
  bool measure = false;                     ///< of plan: operations per second are measured here, not assumed
};

struct ExportOptions {
  std::string run;             ///< a run directory; or none, and a model with its weights
  std::string model, weights;  ///< weights: instead of the run's newest checkpoint
  std::string onnx;            ///< file to write; empty: none
  std::string pretrained;      ///< folder to write as Hugging Face's save_pretrained() does; empty: none
};

struct BenchOptions {
  int steps = 10;
  bool infer = false;
};

struct ProfileOptions {
  std::string to;           ///< a machine file to write; empty: none
  std::vector<Index> rows;  ///< of micro-batches, in ascending order; empty: up to a rank's share of data.batch
  int runs = 15;            ///< of each measurement
  bool load = false;        ///< the named data set's loader, too
  std::string disk = ".";   ///< directory whose disk is measured
};

struct PlanOptions {
  std::string cost = "measured";        ///< of parts: DescribedPlan::cost
  double latency = 0, bandwidth = 0;    ///< of a message: seconds; bytes per second, 0: any number
  bool actions = false;                 ///< print every action, not a line for those that are alike
  bool measure = false;                 ///< run the plan on threads, and draw what happened
  std::string trace, svg, html;         ///< files to write
  int steps = 1;                        ///< of simulate: one behind the other
  std::string collectives = "formula";  ///< of simulate: "formula" or "messages"
  std::string sweep;                    ///< of simulate: "ranks=1,2,4"; empty: one mesh
  std::string scaling = "weak";         ///< of simulate --sweep: "weak", "strong" or "both"
  std::string measured;                 ///< of simulate --sweep: read_measurements(); empty: none
  std::string backtest;                 ///< of simulate: a table of others' results; empty: none
  std::string predictions;              ///< of simulate --backtest: CSV file to write; empty: none
  bool leave_submitter = false;         ///< of simulate --backtest: learn from other submitters alone
};

struct SearchCommand {
  std::string cost = "counted";  ///< of parts: "counted", "measured", "equal", or a machine file
  std::string memory;            ///< bytes that a rank may hold: "16e9", "16GB"; empty: as the cluster file says
  int top = 20;                  ///< strategies ranked
  std::string json;              ///< file to write; empty: none
  bool run = false;              ///< train with the first
};

struct LaunchCommand {
  LaunchOptions launch;
  std::string hosts, host_file;    ///< parse_hosts(), read_host_file(); empty: not given
  std::vector<std::string> words;  ///< what stands behind "--"
};

struct DoctorOptions {
  std::string directory = ".";  ///< in which runs are to be written
  std::string live;             ///< a run directory: what its ranks do now, and nothing else; empty: not asked
  bool json = false;
};

struct ScalingCommand {
  std::string study;                    ///< TOML file of a study; empty: none
  std::string ranks;                    ///< "1,2,4"; here as below empty: as the study says
  std::vector<std::string> strategies;  ///< as of StudyOptions
  int seeds = 0;
  double target = -1;
  bool weak = false, strong = false, scale_lr = false, mpi = false, dry_run = false;
  std::string out;  ///< directory of the study
};

struct TuneCommand {
  std::string what;                ///< a file of parameters; "report"; empty: the search of `out` goes on
  std::string directory;           ///< of report
  std::string out;                 ///< folder of the search; of report the page to write, empty: the table is printed
  std::string worker;              ///< folder of a search that this process works for, and nothing else; empty: none
  std::vector<std::string> words;  ///< what stands behind "--"
  std::int64_t trials = 0;         ///< here as below 0: as the search says
  int parallel = 0;
  int share = 1;  ///< of a worker: workers of this host
  int slurm = 0;  ///< workers of a Slurm job array; 0: this host's
  bool retry = false, dry_run = false;
};

struct VerifyCommand {
  int steps = 20;
  double tolerance = 0;  ///< 0: 1e-11 in f64, else 1e-4
};

/// Exit status of a training that was asked to stop, and has saved where it goes on.
inline constexpr int preempted_status = 85;

std::string version();
int info();
/// Prints the environment variables that the library and its tool read.
int info_environment();
/// cluster_given: a run in virtual time that goes on has the cluster of these settings, else the one that it keeps.
int train_command(int argc, char** argv, const TrainerOptions&, bool cluster_given);
/// Checks this machine, or under a launcher all hosts of the job; 1: something is at fault, or holds up the live run.
int doctor_command(int argc, char** argv, const DoctorOptions&);
/// Declares the options of `trireme scaling`.
void add_options(CLI::App&, ScalingCommand&);
/// What a study's settings begin with: those of its file, which without a model is that of its directory.
TrainerOptions scaling_base(ScalingCommand&, bool model_given);
/// Runs a study (run_study()), once every cell's plan is checked. Throws OptionError for one that cannot be.
int scaling_command(const TrainerOptions&, const ScalingCommand&);
/// A page of the run directories, written to a file.
int report_command(const std::vector<std::string>& runs, const std::string& to);
/// Supervises a training (supervise()). Throws OptionError for words that no training would take.
int launch_command(LaunchCommand);
/// The settings of a training that stands behind the -- of another command: "train", "mnist_cnn", "--epochs", ...
/// Throws OptionError for words that no training would take.
TrainerOptions training_of(const std::string& command, const std::string& example, std::vector<std::string> words);
/// Declares the options of `trireme tune`.
void add_options(CLI::App&, TuneCommand&);
/// Searches hyper-parameters (run_search()), works for a search, or shows one.
int tune_command(const TuneCommand&);
/// weights: a safetensors file, or empty for the run's newest checkpoint.
int eval_command(int argc, char** argv, const TrainerOptions&, const std::string& run, const std::string& weights);
/// One line per image: its path, then class and probability of the likeliest, tab separated; or as the options say.
int predict(const PredictOptions&);
/// Prints what a language model makes of prompts.
int generate_command(const GenerateCommand&);
/// Declares the options of `trireme infer`.
void add_options(CLI::App&, InferCommand&);
/// A model over a volume.
int infer_command(int argc, char** argv, InferCommand);
/// "16e9", "16GB", "512 MiB", given as --memory. Throws OptionError for another text.
Index bytes_of_memory(const std::string& text);
/// Writes a model for other programs.
int export_command(const ExportOptions&);
/// What the pieces of steps of the settings' model and calls between ranks take here: a table, and a machine file.
int profile_command(int argc, char** argv, const TrainerOptions&, const ProfileOptions&);
/// Speed of the settings' model on synthetic images, by layer and by kind of work.
int bench_command(int argc, char** argv, const TrainerOptions&, const BenchOptions&);
/// The plan of the settings' strategy as a table, its costs, and its timeline.
int plan_show(const TrainerOptions&, const PlanOptions&);
/// The fastest strategies for the settings' ranks on a cluster, ranked. Throws Error where nothing fits.
int plan_search(int argc, char** argv, const TrainerOptions&, const SearchCommand&);
/// What steps of the settings' strategy would take on a cluster.
int simulate_command(const TrainerOptions&, const PlanOptions&);
/// Results of others in options.backtest predicted from their smaller systems, with every error.
int backtest_command(const PlanOptions&);
/// The settings' strategy beside the serial run, and what it claims beside that. Returns 0: equal, or other than the
/// serial run as it says, and all claims hold; 1: not so; throws OptionError where they cannot be compared.
int verify_command(int argc, char** argv, const TrainerOptions&, const VerifyCommand&);
/// Weights of another framework to a safetensors file `to` ("": none is written), and a table of them when listing.
int import_command(const std::string& from, const std::string& to, bool listing);
/// What the language model of a run directory was built from.
ModelOptions text_run_options(const TrainerOptions&, const std::string& run);
/// Fills the parameters from a weights file or the run's newest checkpoint. Returns where they came from.
std::string load_weights(Parameters&, const std::string& run, const std::string& weights);
/// Both splits of the settings' data set, decoded and resized to data.image_size (256 unless given), to one file; of
/// phantoms each whole, with its target, to .npy files of a folder that VolumePairsOptions::root takes.
int pack_command(TrainerOptions, const std::string& to);

}  // namespace trireme
