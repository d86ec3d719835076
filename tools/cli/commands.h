// The subcommands of the trireme binary. Each returns the exit status, or throws Error.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/optim/parameters.h"
#include "models/text/generate.h"
#include "parallel/runtime/step.h"
#include "tools/launch/supervisor.h"
#include "tools/training/trainer_options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace trireme {

struct PredictOptions {
  std::vector<std::string> images;
  std::string run;             ///< run directory; empty: `model` and `weights` are given
  std::string model, weights;  ///< weights: safetensors file that replaces the run's newest checkpoint
  std::string labels;          ///< file with one class name per line; empty: the run's names, else numbers
  std::string npy;             ///< file to write, an array [images, classes] of f32; empty: a line per image
  int top = 1;
  bool logits = false;  ///< print logits instead of probabilities
  bool json = false;    ///< lines are JSON objects
  bool gray = false;    ///< colour pictures become grey for a model of grey ones, which else refuses them
  bool invert = false;
};

struct GenerateCommand {
  std::string run;                 ///< run directory, checkpoint, or folder with config.json and weights
  std::string model;               ///< without a run: a model's name; needs weights and a tokenizer
  std::string weights, tokenizer;  ///< replace the run's newest checkpoint and its tokenizer
  std::vector<std::string> prompts;
  std::string prompt_file;                   ///< one prompt per line
  std::vector<std::string> stop = {};        ///< texts that stop the output; they are not printed
  Index samples = 1;                         ///< texts per prompt
  Index context = 0;                         ///< most tokens that the model sees; 0: the model's maximum
  bool json = false;                         ///< print one JSON object per finished text
  TrainerOptions::Parallel parallel = {};    ///< ranks, mesh and strategy; the run's are not used
  GenerateOptions options;                   ///< other options; the members below override them
  std::optional<double> temperature, top_p;  ///< none: the folder's generation_config.json, or 1
  std::optional<Index> top_k;                ///< none: the folder's generation_config.json, or 0
};

struct InferCommand {
  std::string run;                          ///< run directory with a model, weights and a scale of voxels
  std::string model, weights, volume, out;  ///< model: empty: the run's, or msd; weights: a safetensors file
  std::optional<double> mean, std;          ///< voxel_scale() of the volume; none: the run's, or 0
  std::string mesh;                         ///< "d=4,h=2"; empty: one rank
  std::string tile = "auto", way = "auto";  ///< InferenceLimits
  std::string memory;                       ///< memory of a rank, for bytes_of_memory(); empty: free memory
  std::string dtype = "f32";                ///< or "f64"
  std::string result = "logits";            ///< or "labels", "probabilities"
  std::string dilations;                    ///< of msd: "1,2,3", repeated over the layers; empty: msd's default
  std::string part;                         ///< "3/8": compute this share of the tiles; empty: all tiles
  Index own_part = 1, parts = 1;            ///< parsed from `part`
  bool plan = false, join = false;          ///< plan: only print the plan; join: only join finished parts
  std::string cluster;                      ///< with plan: cluster file whose links and devices are simulated
  bool measure = false;                     ///< with plan: measure operations per second instead of assuming them
};

struct ExportOptions {
  std::string run;             ///< run directory; empty: `model` and `weights` are given
  std::string model, weights;  ///< weights: safetensors file that replaces the run's newest checkpoint
  std::string onnx;            ///< file to write; empty: none
  std::string pretrained;      ///< folder to write, as Hugging Face's save_pretrained() does; empty: none
};

struct BenchOptions {
  int steps = 10;
  bool infer = false;
};

struct ProfileOptions {
  std::string to;           ///< machine file to write; empty: none
  std::vector<Index> rows;  ///< numbers of rows of micro-batches, ascending; empty: up to a rank's share of data.batch
  int runs = 15;            ///< repetitions of each measurement
  bool load = false;        ///< also measure the data set's loader
  std::string disk = ".";   ///< directory whose disk is measured
};

struct PlanOptions {
  std::string cost = "";                ///< of the model's parts: see DescribedPlan's constructor
  double latency = 0, bandwidth = 0;    ///< latency of a message in seconds; bandwidth in bytes per second, 0:
                                        ///< unlimited
  bool actions = false;                 ///< print every action; false: similar actions share a line
  bool measure = false;                 ///< also run the plan on threads, and draw the measured timeline
  std::string trace, svg, html;         ///< files to write
  int steps = 1;                        ///< simulate: number of consecutive steps
  std::string collectives = "formula";  ///< simulate: "formula" or "messages"
  std::string sweep;                    ///< simulate: "ranks=1,2,4"; empty: one mesh
  std::string scaling = "weak";         ///< simulate --sweep: "weak", "strong" or "both"
  std::string measured;                 ///< simulate --sweep: path for read_measurements(); empty: none
};

struct SearchCommand {
  std::string cost = "counted";  ///< of the model's parts: "counted", "measured", "equal", or a machine file
  std::string memory;            ///< bytes that a rank may hold: "16e9", "16GB"; empty: the cluster file's memory
  int top = 20;                  ///< number of strategies to print
  std::string json;              ///< file to write; empty: none
  bool run = false;              ///< then train with the best strategy
};

struct LaunchCommand {
  LaunchOptions launch;
  std::string hosts, host_file;    ///< parse_hosts(), read_host_file(); empty: not given
  std::vector<std::string> words;  ///< the training: "train" and its arguments, without those of the job
};

struct DoctorOptions {
  std::string directory = ".";  ///< directory for runs, whose disk is checked
  std::string live;             ///< run directory of a running training: only report its ranks; empty: check the
                                ///< machine
  bool json = false;
};

struct StudyCommand {
  std::string action;                   ///< run or report
  std::string what;                     ///< run: file of the question; empty: none. report: folder of the study
  std::string out;                      ///< folder of the study; report: page to write, empty: print the table
  std::vector<std::string> words;       ///< arguments after "--"
  std::string ranks;                    ///< "1,2,4"; empty, 0 and below 0, here and below: the file's value
  std::vector<std::string> strategies;  ///< as in StudyOptions
  int seeds = 0;
  double target = -1;
  bool weak = false, strong = false, scale_lr = false, mpi = false;
  std::int64_t trials = 0;
  int parallel = 0;
  std::string worker;  ///< folder of a study: only work for it; empty: none
  int share = 1;       ///< worker: number of workers that share this host's cores
  int slurm = 0;       ///< number of workers of a Slurm job array; 0: workers of this host
  bool retry = false, dry_run = false;
};

struct VerifyCommand {
  int steps = 20;
  double tolerance = 0;  ///< 0: 1e-11 in f64, else 1e-4
};

/// Exit status of a training that was asked to stop, and has saved its state.
inline constexpr int preempted_status = 85;

std::string version();
int info();
/// Prints the environment variables that the library and the tool read.
int info_environment();
/// cluster_given: a resumed run in virtual time uses the cluster of these settings; else it uses its saved cluster.
int train_command(int argc, char** argv, const TrainerOptions&, bool cluster_given);
/// Checks this machine, or all hosts of the job under a launcher. Returns 1 if there is a fault, or if the live run is
/// stuck.
int doctor_command(int argc, char** argv, const DoctorOptions&);
/// Declares the options of `trireme study`.
void add_options(CLI::App&, StudyCommand&);
/// Runs a scaling study or a search (run_study()), works for one, or prints its results. Throws OptionError for a plan
/// that is not possible.
int study_command(const StudyCommand&);
/// Writes an HTML page of the run directories.
int report_command(const std::vector<std::string>& runs, const std::string& to);
int compare_command(const std::vector<std::string>& two);
/// Supervises a training (supervise()). Throws OptionError if a training would not accept the words.
int launch_command(LaunchCommand);
/// Settings of the training that is given after the -- of another command: "train", "mnist_cnn", "--epochs", ... Throws
/// OptionError if a training would not accept the words. base: settings over which the words are applied.
TrainerOptions training_of(const std::string& command, const std::string& example, std::vector<std::string> words,
                           const TrainerOptions& base = {});
/// weights: safetensors file; empty: the run's newest checkpoint. run_layout: ranks, mesh and strategy are the run's;
/// ranks of another number then evaluate with data_parallel.
int eval_command(int argc, char** argv, const TrainerOptions&, const std::string& run, const std::string& weights,
                 bool run_layout);
/// Prints a line per image: path, most probable class and probability, separated by tabs. Options change the form.
int predict(const PredictOptions&);
/// Prints texts that a language model generates from prompts, on one rank or several.
int generate_command(int argc, char** argv, const GenerateCommand&);
/// Declares the options of `trireme infer`.
void add_options(CLI::App&, InferCommand&);
/// Applies a model to a volume.
int infer_command(int argc, char** argv, InferCommand);
/// Parses --memory: "16e9", "16GB", "512 MiB". Throws OptionError for other text.
Index bytes_of_memory(const std::string& text);
/// Writes a model as ONNX or as a Hugging Face folder.
int export_command(const ExportOptions&);
/// Measures steps of the settings' model and calls between ranks on this machine. Prints a table, and writes a machine
/// file.
int profile_command(int argc, char** argv, const TrainerOptions&, const ProfileOptions&);
/// Measures the speed of the settings' model on synthetic images, by layer and by kind of work.
int bench_command(int argc, char** argv, const TrainerOptions&, const BenchOptions&);
/// Prints the plan of the settings' strategy as a table, with its costs and timeline.
int plan_show(const TrainerOptions&, const PlanOptions&);
/// Ranks the fastest strategies for the settings' ranks on a cluster. Throws Error if none fits the memory.
int plan_search(int argc, char** argv, const TrainerOptions&, const SearchCommand&);
/// Predicts the time of steps of the settings' strategy on a cluster.
int simulate_command(const TrainerOptions&, const PlanOptions&);
/// Compares the settings' strategy with the serial run, and checks the strategy's claims. Returns 0 if the results are
/// equal, or differ as the strategy declares, and all claims hold; else 1. Throws OptionError if strategy and serial
/// run cannot be compared.
int verify_command(int argc, char** argv, const TrainerOptions&, const VerifyCommand&);
/// Converts weights of another framework to safetensors file `to` ("": none). listing: prints a table of the weights.
int import_command(const std::string& from, const std::string& to, bool listing);
/// Model options of the language model in a run directory.
ModelOptions text_run_options(const TrainerOptions&, const std::string& run);
/// The newest undamaged checkpoint of a run, with a note on stderr if a newer one is damaged. Throws Error if there is
/// none.
std::string newest_checkpoint(const std::string& run);
/// Divides a model without weights (made under SkipInit) over the ranks of a mesh, to run it forward. The weights are
/// arbitrary until load_weights(). example: an input of one row, with which strategies that divide layers are planned.
/// A collective call; the mesh must outlive the result.
std::unique_ptr<Step> forward_step(Module undrawn, Mesh&, const Strategy&, const Tensor& example);
/// Brings weights to the ranks that hold them, from a weights file, else from a checkpoint, else from a run's newest
/// checkpoint. path: of the run or of the checkpoint. Returns a description of the source. A collective call.
std::string load_weights(Step&, World&, const std::string& path, const std::string& weights);
/// Fills the parameters from a weights file or the run's newest checkpoint. Returns a description of the source.
std::string load_weights(Parameters&, const std::string& run, const std::string& weights);
/// Writes both splits of the settings' data set to one file, decoded and resized to data.image_size (default 256).
/// Phantoms are written whole, each with its target, as .npy files to a folder for VolumePairsOptions::root.
int pack_command(TrainerOptions, const std::string& to);

}  // namespace trireme
