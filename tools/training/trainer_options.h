// TrainerOptions: every setting of a run, with its default. option_table() gives the names that a command line and a
// settings file have for them; nothing else lists them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/io/options.h"
#include "models/registry/models.h"

namespace trireme {

/// Settings of a training. What a member is for, and the values it may have: option_table() in trainer_options.cpp, or
/// `trireme train --help`. Texts that name things ("adam", "cosine", "pipeline(micro=4)") are those of the command
/// line.
struct TrainerOptions {
  std::string model = "mnist_cnn";  ///< of a program's own model any name, which run directories show
  std::string weights = {};         ///< safetensors file to start from (import_but_head); empty: drawn from seed
  bool zero_gamma = false,          ///< ModelOptions::zero_gamma
      recompute = false,            ///< ModelOptions::recompute
      deterministic = true,         ///< GPU: the same bits in every run; false: faster kernels that add in any order
      cuda_graphs = true;           ///< StepOptions::cuda_graphs
  std::int64_t epochs = 3;          ///< passes over the training data, at least 0
  std::int64_t seed = 1;            ///< of initial weights, shuffling, augmentation and dropout
  std::string dtype = "f32",        ///< f32, f64, bf16, f16, tf32; bf16 and f16: of activations, over f32 weights
      device = "auto";              ///< auto (a GPU if there is one), cpu, cuda (by local rank), cuda:N
  double loss_scale = 65536;        ///< dtype f16: the first factor of the loss, at least 1 (LossScale)

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
        windows = 0;                     ///< text: OpenOptions::windows, samples of an epoch; 0: tokens / context
    double validation = 0.1;             ///< text: OpenOptions::validation, in [0, 1)
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
        mean = 0, std = 0;                  ///< volumes: VolumePairsOptions::mean and std
  } data = {};                              ///< the settings "data.*"
  /// The optimizer, its learning rate and the loss. An optimizer leaves settings alone that it does not have.
  struct Optim {
    std::string name = "adam";      ///< a name of optimizers()
    double lr = 0.002;              ///< learning rate, at least 0; the peak, for schedules that have one
    std::int64_t lr_base_size = 0;  ///< lr is multiplied by data.batch / this (Goyal et al. 2017); 0: lr as it is
    double momentum = 0.9,          ///< sgd and lars
        weight_decay = 0,           ///< L2; decoupled for adamw
        clip_norm = 0,              ///< OptimizerOptions::clip_norm, bound of the gradient's global norm; 0: none
        label_smoothing = 0,        ///< share of the target spread over all classes in training, in [0, 1]
        beta1 = 0, beta2 = 0,       ///< Adam's and its kin's, in [0, 1); 0: the optimizer's own
        min_lr = 0;                 ///< schedules cosine and linear: where they end
    bool nesterov = true,           ///< sgd: Nesterov's form of momentum
        decay_biases = false;       ///< OptimizerOptions::decay_biases: weight decay of biases and norm scales too
    /// Of the learning rate: constant, step, milestones, exponential, cosine, linear, one_cycle; by optimizer step.
    std::string schedule = "linear";
    std::int64_t warmup_steps = 0;        ///< linear warm-up in steps: lr (step + 1) / (warmup_steps + 1) (nanoGPT's)
    double warmup_epochs = 0,             ///< linear warm-up before the schedule, in epochs
        step_epochs = 1,                  ///< schedule step: epochs between decays
        gamma = 0.1;                      ///< factor of lr per decay (step, milestones) or per epoch (exponential)
    std::vector<double> milestones = {};  ///< schedule milestones: epochs after which lr decays
  } optim = {};                           ///< the settings "optim.*"
  /// Ranks, their strategy and their communication.
  struct Parallel {
    std::int64_t ranks = 1,       ///< read by make_ranks() alone: a Trainer has the ranks of its World
        virtual_ranks = 0;        ///< ranks in virtual time (World::virtual_time); 0: time is real
    std::string cluster = {};     ///< virtual time: path of a cluster file (make_cluster); empty: this machine
    std::string mesh = {},        ///< parse_mesh(): "pipe=2,data=4"; empty: all ranks on "data"
        strategy = {},            ///< parse_strategy(); empty: data_parallel on several ranks, serial on one
        plugin = {},              ///< load_strategies(): a shared library with strategies of the user's own
        allreduce = "default",    ///< with_all_reduce(); auto: measured once, kept in the run
        norm_scope = "global";    ///< global, group or local (NormScope), where the strategy names none
    std::int64_t norm_group = 1;  ///< norm_scope group: ranks per group
    bool overlap = true;          ///< DataParallelOptions::overlap, where strategy is empty
    std::int64_t threads = 0;     ///< per rank; 0: its share of the cores, at most OMP_NUM_THREADS
  } parallel = {};                ///< the settings "parallel.*"
  /// When checkpoints are saved, beside those at the end of epochs.
  struct Checkpoint {
    std::int64_t steps = 0;       ///< also every N optimizer steps; 0: at the end of epochs only
    double minutes = 0;           ///< also when so many minutes have passed since the last one; 0: never for that
    std::int64_t keep = 3;        ///< newest checkpoints kept, at least 1 (2 with run.on_nan rollback), and the best
    std::int64_t keep_every = 0;  ///< those of steps that this divides are kept, too; 0: none for that
    std::string best = {};  ///< key of metrics.jsonl by which the best is chosen, "-test_loss": the lowest; empty:
                            ///< test_top1, of data without classes -test_loss
    bool async = true;      ///< written while training goes on (CheckpointWriter); never in virtual time
  } checkpoint = {};        ///< the settings "checkpoint.*"
  /// The run directory, its logs and when to stop.
  struct Run {
    std::string dir = {};  ///< run directory; empty: runs/MODEL, numbered
    /// yes: go on from the newest checkpoint of dir, with the settings of its config.toml; auto: that if there is one,
    /// else begin; no: begin, in a directory without checkpoints.
    std::string resume = "no";
    bool override = false;          ///< with resume: take other settings than the run has, and keep them
    std::string progress = "auto";  ///< bar, lines, off; auto: a bar where stderr is a terminal, else lines
    double log_seconds = 5;         ///< seconds between progress lines, at least 0
    std::int64_t max_steps = 0;     ///< stop (and save) after so many optimizer steps in all; 0: never
    double time_limit = 0;          ///< seconds of this run(): stop in time to have saved by then; 0: none
    bool tensorboard = false;       ///< write TensorBoard's event files into dir
    std::int64_t histograms = 1,    ///< TensorBoard: histograms of all weights every N epochs; 0: none
        images = 8;                 ///< TensorBoard: the first N inputs, as the model sees them; 0: none
    std::string replay = {};  ///< run directory (its newest checkpoint) or checkpoint: Step::replay(); empty: none
    /// A loss or gradient that is not finite ends the run (stop), or it goes on from the newest checkpoint, without the
    /// samples from there to here (rollback).
    std::string on_nan = "stop";
    std::int64_t finite_steps = 0;    ///< gradients are looked at for numbers that are not finite every N steps; 0: in
                                      ///< each with rollback and where steps are long, else in each 10th
    double spike = 0;                 ///< a loss of so many times its running mean counts as not finite; 0: none does
    std::int64_t digest_steps = 100;  ///< weights that ranks hold alike are compared every N steps and at each
                                      ///< checkpoint; 0: never
    std::string log_format = "text";  ///< of what goes to stderr: text, or json, an object a line
    std::string profile = {};         ///< steps to trace: "100-110"; empty: none
    bool predict = true;              ///< runs of several ranks end with what their steps were to take, and took
    bool mllog = false;               ///< MLPerf's ":::MLLOG" lines, to mllog.txt in dir
    std::string fault = {};           ///< for tests: "throw:RANK:STEP" and its like; empty: none
  } run = {};                         ///< the settings "run.*"
};

/// A row per setting: "optim.lr", its member, the values it may have, a line of help.
std::vector<Option> option_table(TrainerOptions&);
/// Refuses values that can never work (batch 0, negative epochs, ...). Throws OptionError.
void validate(const TrainerOptions&);
/// What a setting that once had that name is called now: "optim.weight_decay" for "optim.decay". Empty: it never did.
std::string renamed_option(const std::string& name);
/// The value of a setting with retired names of strategies and all-reduce algorithms replaced by those of now.
std::string renamed_value(const std::string& name, const std::string& value);

/// A setting's value as TOML, on one line.
std::string toml_value(const Option&);
/// All settings as TOML: the config.toml of a run directory.
std::string to_toml(const TrainerOptions&);
/// What to_toml() wrote, now or before settings were renamed, by today's names: {"optim.lr", "0.002"}. Settings that it
/// lacks have their defaults.
std::map<std::string, std::string> read_own_toml(const std::string& toml);
/// What all ranks of a run must have alike, "optim.lr = 0.1" and so on in lines: all but where and how a rank reads,
/// computes and prints.
std::string common_settings(const TrainerOptions&);

}  // namespace trireme
