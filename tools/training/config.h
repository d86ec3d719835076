// Config: every setting of a run, with its default. One table (keys) gives the TOML names, the command-line options,
// --help and
// --print-config; nothing else lists them.
#pragma once
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace trireme {

struct Config {
  std::string model = "mnist_cnn";
  std::string weights;
  bool zero_gamma = false, recompute = false, repeatable = true, cuda_graphs = true;
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
    std::int64_t lr_per = 0;
    double momentum = 0.9, decay = 0, clip_norm = 0, label_smoothing = 0;
    bool nesterov = true, decay_biases = false;
    std::string schedule = "linear";
    double warmup_epochs = 0, step_epochs = 1, step_factor = 0.1;
    std::vector<double> milestones;
  } optim;
  struct Parallel {
    std::int64_t ranks = 1;
    std::string mesh, strategy, allreduce = "vendor", norm_scope = "global";
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

/// One setting: its dotted name, where it lives, and a line of help.
struct Key {
  std::string name;
  std::variant<std::string*, std::int64_t*, double*, bool*, std::vector<double>*> value;
  std::string help;
  std::string alias = {};  ///< a short command-line form: "ranks" for "parallel.ranks"
};
std::vector<Key> keys(Config&);

/// A setting's value as TOML.
std::string toml_value(const Key&);
/// Sets one key from text, as on the command line. Throws ConfigError for an unknown key (with "did you mean") or a
/// value of another type.
void set(Config&, const std::string& name, const std::string& text);
/// Applies a TOML file. Throws ConfigError naming file, line and key.
void load_config(Config&, const std::string& path);
void parse_config(Config&, const std::string& toml, const std::string& source);
/// The whole config as TOML; parse_config reads it back.
std::string to_toml(const Config&);
/// What all ranks of a run must have alike, "optim.lr = 0.1" and so on in lines: all but where and how a rank reads,
/// computes and prints.
std::string common_settings(const Config&);
/// Refuses values that can never work (batch 0, negative epochs, ...). Throws ConfigError.
void validate(const Config&);

/// A mistake of the user's in naming or typing a setting: exit status 2.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace trireme
