#include "tools/training/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/io/suggest.h"
#include "tools/training/toml.h"

namespace trireme {
namespace {

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\u{:04X}", c);
    else
      out += c;
  }
  return out + '"';
}

/// For messages: not all of a text that nobody can have meant.
std::string shortened(const std::string& text) {
  return text.size() <= 200 ? text : fmt::format("{}... ({} characters)", text.substr(0, 60), text.size());
}

Key find(Config& config, const std::string& name) {
  std::vector<Key> all = keys(config);
  std::vector<std::string> names;
  for (const Key& k : all) {
    if (k.name == name || (!k.alias.empty() && k.alias == name)) return k;
    names.push_back(k.name);
  }
  throw ConfigError("unknown setting '" + shortened(name) + "'" +
                    (name.size() <= 200 ? did_you_mean(name, names) : ""));
}

template <class T>
T number(const std::string& name, const std::string& text, const char* kind) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw ConfigError(fmt::format("{}: '{}' is not {}", name, shortened(text), kind));
  return value;
}

struct FromText {
  const std::string &name, &text;
  void operator()(std::string* v) const { *v = text; }
  void operator()(std::int64_t* v) const { *v = number<std::int64_t>(name, text, "a whole number"); }
  void operator()(double* v) const { *v = number<double>(name, text, "a number"); }
  void operator()(std::vector<double>* v) const {
    v->clear();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(',', at), text.size());
      v->push_back(number<double>(name, text.substr(at, end - at), "a list of numbers: 30,60,80"));
      at = end + 1;
    }
  }
  void operator()(bool* v) const {
    if (text != "true" && text != "false")
      throw ConfigError(fmt::format("{}: '{}' is neither true nor false", name, shortened(text)));
    *v = text == "true";
  }
};

struct FromToml {
  const std::string& where;
  const std::string& name;
  const toml::node& node;
  template <class T>
  void take(T* v, const char* kind) const {
    if (auto got = node.value_exact<T>())
      *v = *got;
    else
      throw ConfigError(fmt::format("{}: {} must be {}", where, name, kind));
  }
  void operator()(std::string* v) const { take(v, "a string"); }
  void operator()(std::int64_t* v) const { take(v, "a whole number"); }
  void operator()(bool* v) const { take(v, "true or false"); }
  void operator()(double* v) const {
    if (auto got = node.value<double>(); got && !node.is_boolean())
      *v = *got;
    else
      throw ConfigError(fmt::format("{}: {} must be a number", where, name));
  }
  void operator()(std::vector<double>* v) const {
    const toml::array* all = node.as_array();
    if (!all) throw ConfigError(fmt::format("{}: {} must be a list of numbers, [30, 60, 80]", where, name));
    v->clear();
    for (const toml::node& each : *all) FromToml{where, name, each}(&v->emplace_back());
  }
};

void apply(Config& config, const toml::table& table, const std::string& prefix, const std::string& source) {
  for (auto&& [key, node] : table) {
    std::string name = prefix + std::string(key.str());
    std::string where = fmt::format("{}:{}", source, node.source().begin.line);
    if (const toml::table* inner = node.as_table()) {
      apply(config, *inner, name + ".", source);
      continue;
    }
    try {
      std::visit(FromToml{where, name, node}, find(config, name).value);
    } catch (const ConfigError& e) {
      std::string text = e.what();
      throw ConfigError(text.starts_with(where) ? text : where + ": " + text);
    }
  }
}

}  // namespace

std::vector<Key> keys(Config& c) {
  return {
      {"model", &c.model, "model, as trireme info lists them"},
      {"weights", &c.weights, "safetensors file to start from; a last layer of another shape is drawn anew"},
      {"recompute", &c.recompute,
       "residual blocks keep only their input and run again in backward: about half the memory, "
       "a third more time"},
      {"zero_gamma", &c.zero_gamma, "residual blocks start as the identity: the last gamma of each is 0"},
      {"epochs", &c.epochs, "passes over the training data"},
      {"seed", &c.seed, "of initial weights, shuffling and dropout"},
      {"device", &c.device, "auto (a GPU if there is one), cpu, cuda (by local rank), cuda:N"},
      {"dtype", &c.dtype,
       "element type: f32, f64, or bf16 or f16 (GPU) for activations over f32 weights; tf32: f32, on a GPU with "
       "products "
       "of 10 bits of mantissa"},
      {"repeatable", &c.repeatable,
       "the same bits in every run; false: a GPU may add up in whatever order it finishes, where that is faster"},
      {"loss_scale", &c.loss_scale,
       "f16: the loss is multiplied by this, which adapts itself, so that small gradients live"},
      {"cuda_graphs", &c.cuda_graphs,
       "one rank on a GPU: steps of equal shapes are replayed as CUDA graphs, without starting each kernel anew"},
      {"data.name", &c.data.name,
       "data set: mnist, fashion_mnist, cifar10, cifar100, imagenet (a folder per class), tar, packed, synthetic",
       "data"},
      {"data.root", &c.data.root, "folder of its files; empty: where it was installed"},
      {"data.shards", &c.data.shards,
       "tar: training shards, in data.root: shard-{000000..000099}.tar, or a list by commas"},
      {"data.val_shards", &c.data.val_shards, "tar: shards to test on"},
      {"data.classes", &c.data.classes, "tar: how many classes; 0: the training shards' largest label and one"},
      {"data.batch", &c.data.batch, "samples per optimizer step, over all ranks together", "batch"},
      {"data.eval_batch", &c.data.eval_batch, "samples per evaluation batch, over all ranks together"},
      {"data.workers", &c.data.workers, "threads per rank that read ahead"},
      {"data.limit", &c.data.limit, "use only the first N training samples; 0: all"},
      {"data.shuffle", &c.data.shuffle, "new order each epoch, a function of seed and epoch only"},
      {"data.augment", &c.data.augment, "train on random crops (imagenet: resized) and mirror images"},
      {"data.augment_pad", &c.data.augment_pad, "small pictures: black pixels around one before it is cut"},
      {"data.image_size", &c.data.image_size, "side of photographs and synthetic pictures; 0: the model's usual"},
      {"data.synthetic_size", &c.data.synthetic_size, "samples of the synthetic data set"},
      {"data.on_bad", &c.data.on_bad, "an image that cannot be read: stop, or skip (the next good one takes its place)",
       "data.on-bad"},
      {"optim.name", &c.optim.name, "sgd, adagrad, adadelta, adam, adamw, lars"},
      {"optim.lr", &c.optim.lr, "learning rate (the peak, for schedules that have one)"},
      {"optim.lr_per", &c.optim.lr_per, "samples that lr is for: lr grows by data.batch / lr_per; 0: lr as it is"},
      {"optim.momentum", &c.optim.momentum, "sgd and lars"},
      {"optim.nesterov", &c.optim.nesterov, "sgd: Nesterov's form"},
      {"optim.decay", &c.optim.decay, "weight decay"},
      {"optim.decay_biases", &c.optim.decay_biases, "decay biases and norm scales too"},
      {"optim.clip_norm", &c.optim.clip_norm, "clip the gradient's global norm to this; 0: off"},
      {"optim.label_smoothing", &c.optim.label_smoothing, "share of the target spread over all classes, in training"},
      {"optim.schedule", &c.optim.schedule, "constant, step, milestones, exponential, cosine, linear, one_cycle"},
      {"optim.warmup_epochs", &c.optim.warmup_epochs, "linear warm-up before the schedule, in epochs"},
      {"optim.step_epochs", &c.optim.step_epochs, "schedule step: epochs between decays"},
      {"optim.step_factor", &c.optim.step_factor, "schedules step, milestones and exponential: factor per decay"},
      {"optim.milestones", &c.optim.milestones, "schedule milestones: epochs after which lr decays"},
      {"parallel.ranks", &c.parallel.ranks, "ranks as threads; ignored under mpiexec or srun", "ranks"},
      {"parallel.mesh", &c.parallel.mesh, "axes of the ranks and their sizes: pipe=2,data=4; empty: all are data",
       "mesh"},
      {"parallel.strategy", &c.parallel.strategy, "empty: data_parallel on several ranks, serial on one", "strategy"},
      {"parallel.allreduce", &c.parallel.allreduce, "vendor, ring, recursive_doubling, rabenseifner, tree",
       "allreduce"},
      {"parallel.norm_scope", &c.parallel.norm_scope,
       "whose rows batch norm's statistics cover, where the strategy does not say: global, group, local (each rank's)"},
      {"parallel.norm_group", &c.parallel.norm_group, "norm_scope group: ranks per group"},
      {"parallel.overlap", &c.parallel.overlap, "reduce gradients while backward goes on"},
      {"parallel.threads", &c.parallel.threads, "threads per rank; 0: its share of the cores, at most OMP_NUM_THREADS"},
      {"checkpoint.steps", &c.checkpoint.steps, "also save every N steps; 0: at the end of epochs only"},
      {"checkpoint.keep", &c.checkpoint.keep, "newest checkpoints kept"},
      {"run.dir", &c.run.dir, "run directory; empty: runs/MODEL, numbered"},
      {"run.resume", &c.run.resume,
       "go on from the newest checkpoint of run.dir, with the run's own settings (config.toml); others are refused, "
       "but "
       "for run, checkpoint, parallel (where ranks stand), data.workers, device, and epochs if lr does not depend on "
       "them",
       "resume"},
      {"run.override", &c.run.override, "with resume: take other settings than the run has, and keep them", "override"},
      {"run.progress", &c.run.progress, "bar, lines, or auto: a bar where stderr is a terminal (mpiexec hides it)"},
      {"run.log_seconds", &c.run.log_seconds, "seconds between progress lines"},
      {"run.max_steps", &c.run.max_steps,
       "stop (and save) after this many optimizer steps in all; 0: never; a resume does not inherit it"},
      {"run.tensorboard", &c.run.tensorboard, "write TensorBoard's events into the run directory", "tensorboard"},
      {"run.histograms", &c.run.histograms, "TensorBoard: histograms of all weights every N epochs; 0: none"},
      {"run.images", &c.run.images, "TensorBoard: the first N inputs, as the model sees them"},
      {"run.fault", &c.run.fault, "inject a fault for testing: throw:RANK:STEP"},
  };
}

void set(Config& config, const std::string& name, const std::string& text) {
  std::visit(FromText{name, text}, find(config, name).value);
}

void parse_config(Config& config, const std::string& text, const std::string& source) {
  check_key_depth(text, source);
  try {
    apply(config, toml::parse(text, source), "", source);
  } catch (const toml::parse_error& e) {
    throw ConfigError(fmt::format("{}:{}: {}", source, e.source().begin.line, e.description()));
  }
}

void load_config(Config& config, const std::string& path) { parse_config(config, read_settings(path), path); }

std::string toml_value(const Key& key) {
  return std::visit(
      [](auto* v) -> std::string {
        using T = std::remove_pointer_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>) return quote(*v);
        if constexpr (std::is_same_v<T, bool>) return *v ? "true" : "false";
        if constexpr (std::is_same_v<T, std::int64_t>) return fmt::format("{}", *v);
        if constexpr (std::is_same_v<T, std::vector<double>>) return fmt::format("[{}]", fmt::join(*v, ", "));
        if constexpr (std::is_same_v<T, double>)
          return fmt::format("{}{}", *v, fmt::format("{}", *v).find_first_of(".ein") == std::string::npos ? ".0" : "");
      },
      key.value);
}

std::string to_toml(const Config& config) {
  Config copy = config;
  std::string out, section;
  for (const Key& key : keys(copy)) {
    auto dot = key.name.find('.');
    std::string head = dot == std::string::npos ? "" : key.name.substr(0, dot);
    if (head != section) out += fmt::format("\n[{}]\n", section = head);
    const std::string value = toml_value(key);
    out += fmt::format("{} = {}\n", dot == std::string::npos ? key.name : key.name.substr(dot + 1), value);
  }
  return out;
}

std::string common_settings(const Config& config) {
  constexpr std::array own{"device",          "data.root",  "data.workers", "parallel.ranks",  "parallel.threads",
                           "checkpoint.keep", "run.dir",    "run.progress", "run.log_seconds", "run.tensorboard",
                           "run.histograms",  "run.images", "run.fault"};
  Config copy = config;
  std::string text;
  for (const Key& key : keys(copy))
    if (std::ranges::find(own, key.name) == own.end()) text += fmt::format("{} = {}\n", key.name, toml_value(key));
  return text;
}

namespace {

/// What holds for every setting of a type: numbers are numbers, texts are UTF-8, and names are not pages long.
void validate_values(const Config& c) {
  Config copy = c;
  for (const Key& key : keys(copy)) {
    const auto finite = [&](double value) {
      if (!std::isfinite(value))
        throw ConfigError(fmt::format("{} is {}, it must be a finite number", key.name, value));
    };
    if (const auto* number = std::get_if<double*>(&key.value)) finite(**number);
    if (const auto* list = std::get_if<std::vector<double>*>(&key.value)) std::ranges::for_each(**list, finite);
    const auto* text = std::get_if<std::string*>(&key.value);
    if (!text) continue;
    try {
      (void)nlohmann::json(**text).dump();
    } catch (const nlohmann::json::exception&) {
      throw ConfigError(key.name + " is not UTF-8, which config.toml and checkpoints are");
    }
    const bool files = key.name == "data.shards" || key.name == "data.val_shards";  // lists of them
    if (!files && (*text)->size() > 4096)
      throw ConfigError(fmt::format("{}: '{}' is too long", key.name, shortened(**text)));
  }
}

}  // namespace

void validate(const Config& c) {
  validate_values(c);
  auto at_most = [](const char* name, std::int64_t value, std::int64_t most) {
    if (value > most) throw ConfigError(fmt::format("{} is {}, it must be at most {}", name, value, most));
  };
  at_most("data.batch", c.data.batch, std::int64_t{1} << 31);
  at_most("data.eval_batch", c.data.eval_batch, std::int64_t{1} << 31);
  at_most("data.workers", c.data.workers, 1024);
  at_most("data.image_size", c.data.image_size, 65536);
  at_most("parallel.ranks", c.parallel.ranks, 65536);
  at_most("parallel.threads", c.parallel.threads, 65536);
  auto at_least = [](const char* name, auto value, auto least) {
    if (!(value >= least)) throw ConfigError(fmt::format("{} is {}, it must be at least {}", name, value, least));
  };
  if (c.run.override && !c.run.resume)
    throw ConfigError("run.override is for run.resume: a new run has no settings to override");
  at_least("data.batch", c.data.batch, 1);
  at_least("data.eval_batch", c.data.eval_batch, 1);
  at_least("data.workers", c.data.workers, 0);
  at_least("data.classes", c.data.classes, 0);
  at_least("data.limit", c.data.limit, 0);
  at_least("data.synthetic_size", c.data.synthetic_size, 1);
  at_least("data.image_size", c.data.image_size, 0);
  if (c.data.on_bad != "stop" && c.data.on_bad != "skip")
    throw ConfigError("data.on_bad is '" + c.data.on_bad + "', it must be stop or skip");
  at_least("epochs", c.epochs, 0);
  at_least("optim.lr", c.optim.lr, 0.0);
  at_least("optim.lr_per", c.optim.lr_per, 0);
  at_least("data.augment_pad", c.data.augment_pad, 0);
  if (!(c.optim.label_smoothing >= 0 && c.optim.label_smoothing <= 1))
    throw ConfigError(fmt::format("optim.label_smoothing is {}, it must lie in [0, 1]", c.optim.label_smoothing));
  if (c.optim.schedule == "milestones" && c.optim.milestones.empty())
    throw ConfigError("optim.schedule is milestones, but optim.milestones is empty: name epochs, [30, 60, 80]");
  at_least("optim.clip_norm", c.optim.clip_norm, 0.0);
  if (c.run.progress != "auto" && c.run.progress != "bar" && c.run.progress != "lines")
    throw ConfigError("run.progress is '" + c.run.progress + "', it must be auto, bar or lines");
  at_least("parallel.ranks", c.parallel.ranks, 1);
  at_least("parallel.norm_group", c.parallel.norm_group, 1);
  at_least("parallel.threads", c.parallel.threads, 0);
  at_least("checkpoint.steps", c.checkpoint.steps, 0);
  at_least("checkpoint.keep", c.checkpoint.keep, 1);
  at_least("run.log_seconds", c.run.log_seconds, 0.0);
  at_least("run.max_steps", c.run.max_steps, 0);
  at_least("run.histograms", c.run.histograms, 0);
  at_least("run.images", c.run.images, 0);
  if (c.dtype != "f32" && c.dtype != "f64" && c.dtype != "bf16" && c.dtype != "f16" && c.dtype != "tf32")
    throw ConfigError("dtype is '" + c.dtype + "', it must be f32, f64, bf16, f16 or tf32");
  at_least("loss_scale", c.loss_scale, 1.0);
}

}  // namespace trireme
