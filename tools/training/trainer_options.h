// TrainerOptions: every setting of a run, with its default. option_table() is the only list of their names on the
// command line and in settings files.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/io/options.h"
#include "models/registry/models.h"

namespace trireme {

/// Settings of a training run. option_table() in trainer_options.cpp and `trireme train --help` describe each setting
/// and its values. Texts ("adam", "cosine", "pipeline(micro=4)") are the same as on the command line.
struct TrainerOptions {
  std::string model = "mnist_cnn";  ///< registered name; for a custom model any name, which run directories show
  std::string weights = {};         ///< safetensors file to start from (import_but_head); empty: drawn from seed
  /// "true": ModelOptions::recompute; "false": nothing; or names of layers with *, separated by commas (recompute()).
  std::string recompute = "false";
  bool recompute_offload = false,  ///< RecomputeOptions::offload of these layers
      zero_gamma = false,          ///< ModelOptions::zero_gamma
      deterministic = true,        ///< GPU: the same bits in every run; false: faster kernels that add in any order
      cuda_graphs = true;          ///< StepOptions::cuda_graphs
  std::int64_t epochs = 3;         ///< passes over the training data, at least 0
  std::int64_t seed = 1;           ///< random seed of initial weights, shuffling, augmentation and dropout
  std::string dtype = "f32",       ///< f32, f64, bf16, f16, tf32; bf16 and f16: type of activations, with f32 weights
      device = "auto";             ///< auto (a GPU if there is one), cpu, cuda (by local rank), cuda:N
  double loss_scale = 65536;       ///< dtype f16: the first factor of the loss, at least 1 (LossScale)

  ArchOptions arch = {};  ///< sizes of transformers, the settings "arch.*"

  /// The data sets and how ranks read them.
  struct Data {
    std::string name = "mnist",    ///< a name of open_dataset()
        root = {};                 ///< OpenOptions::root; empty: where the files were installed
    std::int64_t batch = 64,       ///< samples per optimizer step, over all ranks; at least 1
        eval_batch = 500,          ///< samples per evaluation batch, over all ranks; at least 1
        workers = 1,               ///< LoaderOptions::workers, per rank, in [0, 1024]
        limit = 0;                 ///< the first N training samples only; 0: all
    bool shuffle = true,           ///< LoaderOptions::shuffle of training
        augment = false;           ///< train on random crops (photographs: resized) and mirror images
    std::int64_t augment_pad = 4,  ///< AugmentOptions::pad of small images, pixels
        image_size = 0;  ///< side of images, pixels; 0: photographs 224, synthetic images as the model's input
    std::int64_t synthetic_size = 1024;  ///< data set synthetic: samples per split, at least 1
    std::string on_bad = "stop";         ///< "stop" or "skip": OnBad
    std::string shards = {},             ///< tar: OpenOptions::shards
        val_shards = {};                 ///< tar: OpenOptions::val_shards
    std::int64_t classes = 0;            ///< tar: OpenOptions::classes; 0: the training shards' largest label plus one
    std::string tokenizer = "bytes";     ///< text: OpenOptions::tokenizer
    std::int64_t context = 0,            ///< text: tokens of a sample; 0: arch.positions, or the model's usual
        windows = 0,                     ///< text: OpenOptions::windows, samples of an epoch; 0: tokens / context
        separator = -1;                  ///< text: OpenOptions::separator, id at the end of a document; -1: none
    double test_split = 0.1,             ///< text: OpenOptions::test_split, in [0, 1)
        validation_split = 0;            ///< OpenOptions::validation_split, in [0, 1); 0: epochs end with the test set
    /// Of phantoms and volumes; see PhantomsOptions and VolumePairsOptions.
    std::string task = "segment";           ///< segment or denoise: VolumeTask
    std::vector<double> size = {256, 256},  ///< phantoms: PhantomOptions::size
        crop = {64, 64};                    ///< of a sample: height and width, or depth, height and width
    std::int64_t samples = 1024,            ///< of an epoch of training, at least 1
        test_samples = 128,                 ///< phantoms: of an evaluation, at least 1
        phantoms = 16,                      ///< phantoms: PhantomsOptions::phantoms, at least 1
        angles = 90;                        ///< phantoms: PhantomOptions::angles
    double missing = 30,                    ///< phantoms: PhantomOptions::missing
        noise = 0.2,                        ///< phantoms: PhantomOptions::noise
        mean = 0,                           ///< volumes: VolumePairsOptions::mean
        std = 0;                            ///< volumes: VolumePairsOptions::std
  } data = {};                              ///< the settings "data.*"
  /// The optimizer, its learning rate and the loss. An optimizer ignores settings that it does not have.
  struct Optim {
    std::string name = "adam";      ///< a name of optimizers()
    double lr = 0.002;              ///< learning rate, at least 0; the peak, for schedules that have one
    std::int64_t lr_base_size = 0;  ///< lr is multiplied by data.batch / this (Goyal et al. 2017); 0: lr as it is
    double momentum = 0.9,          ///< sgd and lars
        weight_decay = 0,           ///< L2; decoupled for adamw
        clip_norm = 0,              ///< OptimizerOptions::clip_norm, bound of the gradient's global norm; 0: none
        label_smoothing = 0,        ///< share of the target spread over all classes in training, in [0, 1]
        z_loss = 0,                 ///< LabelLossOptions::z_loss in training
        beta1 = 0,                  ///< of Adam and related optimizers, in [0, 1); 0: the optimizer's default
        beta2 = 0,                  ///< likewise
        min_lr = 0;                 ///< schedules cosine and linear: final learning rate
    bool nesterov = true,           ///< sgd: Nesterov's form of momentum
        decay_biases = false;       ///< OptimizerOptions::decay_biases: weight decay of biases and norm scales too
    /// Learning rate schedule: constant, step, milestones, exponential, cosine, linear, one_cycle; by optimizer step.
    std::string schedule = "linear";
    std::int64_t warmup_steps = 0;        ///< linear warm-up in steps: lr (step + 1) / (warmup_steps + 1) (nanoGPT's)
    double warmup_epochs = 0,             ///< linear warm-up before the schedule, in epochs
        step_epochs = 1,                  ///< schedule step: epochs between decays
        gamma = 0.1;                      ///< factor of lr per decay (step, milestones) or per epoch (exponential)
    std::vector<double> milestones = {};  ///< schedule milestones: epochs after which lr decays
  } optim = {};                           ///< the settings "optim.*"
  /// Ranks, their strategy and their communication.
  struct Parallel {
    std::int64_t ranks = 1,       ///< used only by make_ranks(): a Trainer has the ranks of its World
        virtual_ranks = 0;        ///< ranks in virtual time (World::virtual_time); 0: time is real
    std::string cluster = {};     ///< virtual time: path of a cluster file (make_cluster); empty: this machine
    std::string mesh = {},        ///< parse_mesh(): "pipe=2,data=4"; empty: all ranks on "data"
        strategy = {},            ///< parse_strategy(); empty: data_parallel on several ranks, serial on one
        plugin = {},              ///< load_strategies(): shared library with custom strategies
        allreduce = "default",    ///< with_all_reduce(); auto: measured once, kept in the run
        norm_scope = "global";    ///< global, group or local (NormScope), where the strategy names none
    std::int64_t norm_group = 1;  ///< norm_scope group: ranks per group
    bool overlap = true;          ///< DataParallelOptions::overlap, where strategy is empty
    std::int64_t threads = 0;     ///< per rank; 0: its share of the cores, at most OMP_NUM_THREADS
    std::string bind = "none";    ///< World::bind(): none, numa or core
  } parallel = {};                ///< the settings "parallel.*"
  /// When checkpoints are saved, in addition to the end of each epoch.
  struct Checkpoint {
    std::int64_t steps = 0;       ///< also every N optimizer steps; 0: at the end of epochs only
    double minutes = 0;           ///< also every N minutes; 0: off
    std::int64_t keep = 3;        ///< newest checkpoints kept, at least 1 (2 with run.on_nan rollback), and the best
    std::int64_t keep_every = 0;  ///< also keep checkpoints whose step is a multiple of this; 0: off
    std::string best = {};  ///< key of metrics.jsonl by which the best is chosen, "-test_loss": the lowest; empty:
                            ///< test_top1, or -test_loss without classes; with a validation split val_top1, -val_loss
    bool async = true;      ///< write while training continues (CheckpointWriter); never in virtual time
  } checkpoint = {};        ///< the settings "checkpoint.*"
  /// The run directory, its logs and when to stop.
  struct Run {
    std::string dir = {};  ///< run directory; empty: runs/MODEL, numbered
    /// yes: resume from the newest checkpoint of dir with the settings of its config.toml. auto: resume if there is a
    /// checkpoint, else start. no: start, in a directory without checkpoints.
    std::string resume = "no";
    bool override = false;          ///< with resume: accept and store settings that differ from the run's
    std::string progress = "auto";  ///< bar, lines, off; auto: a bar where stderr is a terminal, else lines
    double log_seconds = 5;         ///< seconds between progress lines, at least 0
    std::int64_t max_steps = 0;     ///< stop and save after this many optimizer steps in total; 0: off
    double time_limit = 0;          ///< seconds of this run(): stop in time to have saved by then; 0: none
    bool tensorboard = false;       ///< write TensorBoard's event files into dir
    std::int64_t histograms = 1,    ///< TensorBoard: histograms of all weights every N epochs; 0: none
        images = 8;                 ///< TensorBoard: the first N inputs, as the model sees them; 0: none
    std::string replay =
        {};  ///< run directory (its newest checkpoint) or checkpoint: StepResume::replay(); empty: none
    /// Action for a loss or gradient that is not finite. stop: end the run. rollback: continue from the newest
    /// checkpoint, without the samples since then.
    std::string on_nan = "stop";
    std::int64_t finite_steps = 0;    ///< check gradients every N steps; 0: every step with rollback or long steps,
                                      ///< else every 10th
    double spike = 0;                 ///< a loss above this factor times its running mean counts as not finite; 0: off
    std::int64_t digest_steps = 100;  ///< compare weights that ranks hold in common every N steps and at each
                                      ///< checkpoint; 0: never
    std::string log_format = "text";  ///< of stderr: text, or json (an object per line)
    std::string profile = {};         ///< steps to trace: "100-110"; empty: none
    bool predict = true;              ///< runs of several ranks end with the predicted and actual duration of steps
    bool mllog = false;               ///< MLPerf's ":::MLLOG" lines, to mllog.txt in dir
    std::string fault = {};           ///< for tests: "throw:RANK:STEP" and others (inject_fault.h); empty: none
  } run = {};                         ///< the settings "run.*"
};

/// A row per setting: name ("optim.lr"), member, allowed values, and a line of help.
std::vector<Option> option_table(TrainerOptions&);
/// Throws OptionError for invalid values (batch 0, negative epochs, ...).
void validate(const TrainerOptions&);
/// The current name of a renamed setting: "optim.weight_decay" for "optim.decay". Empty: not a former name.
std::string renamed_option(const std::string& name);
/// The value of a setting, with former names of strategies and all-reduce algorithms replaced by the current ones.
std::string renamed_value(const std::string& name, const std::string& value);

/// A setting's value as TOML, on one line.
std::string toml_value(const Option&);
/// All settings as TOML: the config.toml of a run directory.
std::string to_toml(const TrainerOptions&);
/// Reads the output of to_toml(), also of earlier versions, with current names: {"optim.lr", "0.002"}. Missing settings
/// have their defaults.
std::map<std::string, std::string> read_own_toml(const std::string& toml);
/// The settings that must be equal on all ranks, one per line ("optim.lr = 0.1"): all except where and how a rank
/// reads, computes and prints.
std::string common_settings(const TrainerOptions&);

}  // namespace trireme
