// TrainerOptions: every setting of a run, with its default. option_table() gives the names that a command line and a
// settings file have for them; nothing else lists them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/io/options.h"

namespace trireme {

/// Settings of a training. What a member is for, and the values it may have: option_table() in trainer_options.cpp, or
/// `trireme train --help`. Texts that name things ("adam", "cosine", "pipeline(micro=4)") are those of the command
/// line.
struct TrainerOptions {
  std::string model = "mnist_cnn";  ///< of a program's own model any name, which run directories show
  std::string weights;
  bool zero_gamma = false, recompute = false, deterministic = true, cuda_graphs = true;
  std::int64_t epochs = 3;
  std::int64_t seed = 1;
  std::string dtype = "f32", device = "auto";
  double loss_scale = 65536;

  struct Data {
    std::string name = "mnist", root;
    std::int64_t batch = 64, eval_batch = 500, workers = 1, limit = 0;
    bool shuffle = true, augment = false;
    std::int64_t augment_pad = 4, image_size = 0;
    std::int64_t synthetic_size = 1024;
    std::string on_bad = "stop";
    std::string shards, val_shards;
    std::int64_t classes = 0;
  } data;
  struct Optim {
    std::string name = "adam";
    double lr = 0.002;
    std::int64_t lr_base_size = 0;
    double momentum = 0.9, weight_decay = 0, clip_norm = 0, label_smoothing = 0;
    bool nesterov = true, decay_biases = false;
    std::string schedule = "linear";
    double warmup_epochs = 0, step_epochs = 1, gamma = 0.1;
    std::vector<double> milestones;
  } optim;
  struct Parallel {
    std::int64_t ranks = 1;  ///< read by make_ranks() alone: a Trainer has the ranks of its World
    std::string mesh, strategy, allreduce = "default", norm_scope = "global";
    std::int64_t norm_group = 1;
    bool overlap = true;
    std::int64_t threads = 0;
  } parallel;
  struct Checkpoint {
    std::int64_t steps = 0, keep = 3;
  } checkpoint;
  struct Run {
    std::string dir;
    bool resume = false, override = false;
    std::string progress = "auto";
    double log_seconds = 5;
    std::int64_t max_steps = 0;
    bool tensorboard = false;
    std::int64_t histograms = 1, images = 8;
    std::string fault;
  } run;
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
