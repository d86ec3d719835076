#include "tools/training/trainer_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ranges>
#include <sstream>

#include "framework/io/json.h"
#include "framework/optim/optimizer_config.h"
#include "kernels/core/suggest.h"

namespace trireme {
namespace {

/// With each `old` that stands as a word by itself replaced.
std::string replace_word(std::string text, std::string_view old, std::string_view now) {
  const auto in_word = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
  };
  for (std::size_t at = 0; (at = text.find(old, at)) != text.npos;) {
    const bool word = !in_word(at - 1) && !in_word(at + old.size());  // at - 1 of 0 lies beyond the end
    if (word) text.replace(at, old.size(), now);
    at += word ? now.size() : old.size();
  }
  return text;
}

/// Settings that were renamed: old name, new name.
constexpr std::pair<std::string_view, std::string_view> renamed[] = {
    {"optim.decay", "optim.weight_decay"},
    {"optim.lr_per", "optim.lr_base_size"},
    {"optim.step_factor", "optim.gamma"},
    {"repeatable", "deterministic"},
};

std::string optimizer_names() {
  return fmt::format("{}", fmt::join(optimizers() | std::views::transform(&OptimizerConfig::name), ", "));
}

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

}  // namespace

std::vector<Option> option_table(TrainerOptions& c) {
  constexpr double many = 2147483648, cores = 65536;  // where a number is meant, not a mistake
  constexpr double most = std::numeric_limits<double>::infinity(), any = -most;
  return {
      {"model", &c.model, "model, as trireme info lists them"},
      {"weights", &c.weights, "safetensors file to start from; a last layer of another shape is drawn anew"},
      {"recompute", &c.recompute,
       "residual blocks keep only their input and run again in backward: about half the memory, a third more time"},
      {"zero_gamma", &c.zero_gamma, "residual blocks start as the identity: the last gamma of each is 0"},
      {"epochs", &c.epochs, "passes over the training data", 0},
      {"seed", &c.seed, "of initial weights, shuffling and dropout", 0},
      {"device", &c.device, "auto (a GPU if there is one), cpu, cuda (by local rank), cuda:N"},
      {"dtype", &c.dtype,
       "element type: f32, f64; bf16 or f16 (GPU): activations, over f32 weights; tf32 (GPU): f32 with products of 10 "
       "bits of mantissa",
       any, most, "f32, f64, bf16, f16, tf32"},
      {"deterministic", &c.deterministic,
       "the same bits in every run; false: a GPU adds in whatever order it finishes, where that is faster"},
      {"loss_scale", &c.loss_scale,
       "f16: factor of the loss at the start, so that small gradients do not vanish; it adapts itself", 1},
      {"cuda_graphs", &c.cuda_graphs,
       "a rank with the whole model on one GPU: steps of equal shapes are replayed as CUDA graphs, without starting "
       "each kernel anew"},
      {"arch.layers", &c.arch.layers, "transformers: blocks; 0, here as in all of arch: the model's own", 0, many},
      {"arch.heads", &c.arch.heads, "heads of the queries", 0, many},
      {"arch.kv_heads", &c.arch.kv_heads, "heads of keys and values", 0, many},
      {"arch.width", &c.arch.width, "elements of a token", 0, many},
      {"arch.hidden", &c.arch.hidden, "width of the MLP between", 0, many},
      {"arch.positions", &c.arch.positions, "most tokens of a sample, where positions are learned", 0, many},
      {"arch.vocabulary", &c.arch.vocabulary, "rows of the embedding; 0: as many as the tokenizer has", 0, many},
      {"arch.dropout", &c.arch.dropout, "share of embeddings, probabilities and residuals that become 0; -1: its own",
       -1, 1},
      {"arch.bias", &c.arch.bias, "biases of linear layers and norms: 0 without, 1 with; -1: its own", -1, 1},
      {"arch.tied", &c.arch.tied, "the embedding is the head's weight, too: 0, 1; -1: its own", -1, 1},
      {"arch.activation", &c.arch.activation, "of the MLP", any, most, ", gelu, gelu_tanh, relu, silu"},
      {"data.name", &c.data.name,
       "data set: mnist, fashion_mnist, cifar10, cifar100, imagenet (a folder per class), tar, packed, synthetic, "
       "text, phantoms, volumes",
       any, most, "", "data"},
      {"data.root", &c.data.root, "folder of its files; empty: where it was installed"},
      {"data.shards", &c.data.shards,
       "tar: training shards, in data.root: shard-{000000..000099}.tar, or a list by commas"},
      {"data.val_shards", &c.data.val_shards, "tar: shards to test on"},
      {"data.classes", &c.data.classes,
       "tar: number of classes; 0: the training shards' largest label plus one. phantoms: 0 for 3; volumes: of labels",
       0},
      {"data.tokenizer", &c.data.tokenizer,
       "text: bytes, chars (those that occur), or a tokenizer.json, or a folder with vocab.json and merges.txt"},
      {"data.context", &c.data.context, "text: tokens of a sample; 0: arch.positions, or the model's usual", 0, many},
      {"data.windows", &c.data.windows,
       "text: samples of an epoch, drawn at random places; 0: as many as the text has tokens / context", 0},
      {"data.validation", &c.data.validation, "text of one file: share of its end that is not trained on", 0, 1},
      {"data.task", &c.data.task,
       "phantoms, volumes: segment (a class per voxel) or denoise (the volume as it should be)", any, most,
       "segment, denoise"},
      {"data.size", &c.data.size, "phantoms: height and width of one, or depth, height and width", 1, many},
      {"data.crop", &c.data.crop, "phantoms, volumes: height and width of a sample, or depth, height and width", 1,
       many},
      {"data.samples", &c.data.samples, "phantoms, volumes: crops of an epoch, drawn at random places", 1, many},
      {"data.test_samples", &c.data.test_samples, "phantoms: crops of an evaluation, of other phantoms", 1, many},
      {"data.phantoms", &c.data.phantoms, "phantoms: different ones to train on", 1, many},
      {"data.angles", &c.data.angles, "phantoms: projections that a picture is reconstructed from; 0: no artefacts", 0,
       65536},
      {"data.missing", &c.data.missing, "phantoms: degrees of 180 that were not measured", 0, 179},
      {"data.noise", &c.data.noise, "phantoms: standard deviation of the noise; grey values are 0 to 1.1", 0},
      {"data.mean", &c.data.mean, "volumes: a model sees (voxel - mean) / std"},
      {"data.std", &c.data.std, "volumes: 0: the largest value of integers of 8 and 16 bits, 1 for floats"},
      {"data.batch", &c.data.batch, "samples per optimizer step, over all ranks together", 1, many, "", "batch"},
      {"data.eval_batch", &c.data.eval_batch, "samples per evaluation batch, over all ranks together", 1, many},
      {"data.workers", &c.data.workers, "threads per rank that read ahead", 0, 1024},
      {"data.limit", &c.data.limit, "use only the first N training samples; 0: all", 0},
      {"data.shuffle", &c.data.shuffle, "new order each epoch, a function of seed and epoch only"},
      {"data.augment", &c.data.augment, "train on random crops (imagenet: resized) and mirror images"},
      {"data.augment_pad", &c.data.augment_pad, "small images: black pixels added on each side before a random crop",
       0},
      {"data.image_size", &c.data.image_size, "side of photographs and synthetic images, pixels; 0: the model's usual",
       0, 65536},
      {"data.synthetic_size", &c.data.synthetic_size, "samples of the synthetic data set", 1},
      {"data.on_bad", &c.data.on_bad, "an image that cannot be read: stop, or skip (the next good one takes its place)",
       any, most, "stop, skip", "data.on-bad"},
      {"optim.name", &c.optim.name, optimizer_names(), any, most, optimizer_names()},
      {"optim.lr", &c.optim.lr, "learning rate (the peak, for schedules that have one)", 0},
      {"optim.lr_base_size", &c.optim.lr_base_size,
       "batch that lr is for: lr is multiplied by data.batch / lr_base_size; 0: lr as it is", 0},
      {"optim.momentum", &c.optim.momentum, "sgd and lars"},
      {"optim.nesterov", &c.optim.nesterov, "sgd: Nesterov's form"},
      {"optim.weight_decay", &c.optim.weight_decay, "weight decay: L2, decoupled for adamw"},
      {"optim.decay_biases", &c.optim.decay_biases, "weight decay of biases and norm scales too"},
      {"optim.clip_norm", &c.optim.clip_norm, "clip the gradient's global norm to this; 0: off", 0},
      {"optim.label_smoothing", &c.optim.label_smoothing, "share of the target spread over all classes, in training", 0,
       1},
      {"optim.beta1", &c.optim.beta1, "adam and its kin: decay of the gradient's mean; 0: the optimizer's own", 0, 1},
      {"optim.beta2", &c.optim.beta2, "adam and its kin: decay of the square's mean; 0: the optimizer's own", 0, 1},
      {"optim.min_lr", &c.optim.min_lr, "schedules cosine and linear: the rate they end at", 0},
      {"optim.schedule", &c.optim.schedule, "constant, step, milestones, exponential, cosine, linear, one_cycle", any,
       most, "constant, step, milestones, exponential, cosine, linear, one_cycle"},
      {"optim.warmup_steps", &c.optim.warmup_steps,
       "linear warm-up before the schedule, in steps: lr (step + 1) / (warmup_steps + 1)", 0},
      {"optim.warmup_epochs", &c.optim.warmup_epochs, "linear warm-up before the schedule, in epochs"},
      {"optim.step_epochs", &c.optim.step_epochs, "schedule step: epochs between decays"},
      {"optim.gamma", &c.optim.gamma, "schedules step, milestones and exponential: factor of lr per decay"},
      {"optim.milestones", &c.optim.milestones, "schedule milestones: epochs after which lr decays"},
      {"parallel.ranks", &c.parallel.ranks,
       "ranks as threads, at most 65536; ignored under mpiexec or srun. Of plan search any number", 1, 1 << 24, "",
       "ranks"},
      {"parallel.virtual", &c.parallel.virtual_ranks,
       "train in virtual time: so many ranks as threads of one process, under a simulated clock; 0: time is real", 0,
       cores, "", "virtual"},
      {"parallel.cluster", &c.parallel.cluster,
       "virtual time: TOML file of the machines to simulate; empty: one machine with a device per rank", any, most, "",
       "cluster"},
      {"parallel.mesh", &c.parallel.mesh, "axes of the ranks and their sizes: pipe=2,data=4; empty: all are data", any,
       most, "", "mesh"},
      {"parallel.strategy", &c.parallel.strategy,
       "empty: data_parallel on several ranks, serial on one; auto: what a search finds for these ranks (trireme plan "
       "search), of those about as fast as the fastest the plainest, kept in the run",
       any, most, "", "strategy"},
      {"parallel.plugin", &c.parallel.plugin, "shared library with strategies of your own (parallel/runtime/plugin.h)",
       any, most, "", "plugin"},
      {"parallel.allreduce", &c.parallel.allreduce,
       "default, ring, recursive_doubling, rabenseifner, tree, hierarchical, hierarchical(N) of N ranks a node, torus, "
       "torus(N) of N rows; auto: measured at the start, kept in the run",
       any, most, "", "allreduce"},
      {"parallel.norm_scope", &c.parallel.norm_scope,
       "whose rows batch norm's statistics cover, where the strategy does not say: global, group, local (each rank's)",
       any, most, "global, group, local"},
      {"parallel.norm_group", &c.parallel.norm_group, "norm_scope group: ranks per group", 1},
      {"parallel.overlap", &c.parallel.overlap, "reduce gradients while backward goes on"},
      {"parallel.threads", &c.parallel.threads, "threads per rank; 0: its share of the cores, at most OMP_NUM_THREADS",
       0, cores},
      {"checkpoint.steps", &c.checkpoint.steps, "also save every N steps; 0: at the end of epochs only", 0},
      {"checkpoint.minutes", &c.checkpoint.minutes,
       "also save when so many minutes have passed since the last time; 0: never for that", 0},
      {"checkpoint.keep", &c.checkpoint.keep, "newest checkpoints kept, and the best", 1},
      {"checkpoint.keep_every", &c.checkpoint.keep_every,
       "checkpoints of steps that N divides are kept, too; 0: none for that", 0},
      {"checkpoint.best", &c.checkpoint.best,
       "the key of metrics.jsonl by which the best is chosen, with a minus where lower is better; empty: test_top1, or "
       "-test_loss of data without classes"},
      {"checkpoint.async", &c.checkpoint.async,
       "write checkpoints while training goes on; it takes memory for a copy of weights and optimizer state"},
      {"run.dir", &c.run.dir, "run directory; empty: runs/MODEL, numbered"},
      {"run.resume", &c.run.resume,
       "continue from the newest checkpoint of run.dir, with the run's own settings (config.toml); others are refused, "
       "but for run, checkpoint, parallel (where ranks stand), data.workers, device, and epochs if lr does not depend "
       "on them; auto: where there is none yet, begin",
       any, most, "no, yes, auto", "resume", "yes"},
      {"run.override", &c.run.override, "with resume: take other settings than the run has, and keep them", any, most,
       "", "override"},
      {"run.progress", &c.run.progress,
       "bar, lines, off, or auto: a bar where stderr is a terminal (mpiexec hides it), else lines", any, most,
       "auto, bar, lines, off"},
      {"run.log_seconds", &c.run.log_seconds, "seconds between progress lines", 0},
      {"run.max_steps", &c.run.max_steps,
       "stop (and save) after this many optimizer steps in all; 0: never; a resume does not inherit it", 0},
      {"run.time_limit", &c.run.time_limit,
       "seconds: stop early enough to have saved by then, with exit status 85; 0: never; Slurm's end of the job "
       "counts, too",
       0},
      {"run.tensorboard", &c.run.tensorboard, "write TensorBoard events into the run directory", any, most, "",
       "tensorboard"},
      {"run.histograms", &c.run.histograms, "TensorBoard: histograms of all weights every N epochs; 0: none", 0},
      {"run.images", &c.run.images, "TensorBoard: the first N inputs, as the model sees them", 0},
      {"run.replay", &c.run.replay,
       "with servers or asynchronous gossip: repeat the order of arrivals of that run (its directory, or a checkpoint "
       "of it), bit for bit"},
      {"run.on_nan", &c.run.on_nan,
       "a loss or gradient that is not finite: stop, or rollback (once more from the newest checkpoint; where that "
       "leads here again, without the samples from there to here; three times at most)",
       any, most, "stop, rollback"},
      {"run.finite_steps", &c.run.finite_steps,
       "look every N steps whether all weights and gradients are finite (the loss: each step); 0: each with rollback "
       "and where steps are long, else each 10th",
       0, many},
      {"run.spike", &c.run.spike,
       "a loss of more than so many times its mean over some 50 steps counts as not finite; 0: none does", 0},
      {"run.digest_steps", &c.run.digest_steps,
       "compare weights that ranks have alike every N steps and at checkpoints, and name rank and tensor; 0: never", 0},
      {"run.log_format", &c.run.log_format, "lines on stderr: text, or json (an object a line)", any, most,
       "text, json"},
      {"run.profile", &c.run.profile,
       "steps to trace, \"100-110\": trace.json (Perfetto, chrome://tracing) in the run directory, and a table of "
       "where "
       "their time went"},
      {"run.predict", &c.run.predict,
       "several ranks on CPUs: when the run ends, measure what its steps are made of, and print what they were to take "
       "beside what they took"},
      {"run.mllog", &c.run.mllog, "write MLPerf's :::MLLOG lines to mllog.txt in the run directory"},
      {"run.fault", &c.run.fault,
       "inject a fault for testing: KIND:RANK:STEP, of throw, exit, hang, term, segv, abort, stop, nan, flip"},
  };
}

void validate(const TrainerOptions& options) {
  TrainerOptions copy = options;
  for (const Option& o : option_table(copy)) {
    check_value(o);
    const auto* text = std::get_if<std::string*>(&o.value);
    if (!text) continue;
    try {
      (void)json_text(**text);
    } catch (const Json::exception&) {
      throw OptionError(o.name + " is not UTF-8, which config.toml and checkpoints are");
    }
    const bool files = o.name == "data.shards" || o.name == "data.val_shards";  // lists of them
    if (!files && (*text)->size() > 4096)
      throw OptionError(fmt::format("{}: '{}' is too long", o.name, shortened(**text)));
  }
  if (options.run.override && options.run.resume == "no")
    throw OptionError("run.override is for run.resume: a new run has no settings to override");
  if (options.optim.warmup_steps > 0 && options.optim.warmup_epochs > 0)
    throw OptionError("optim.warmup_steps and optim.warmup_epochs are two warm-ups: leave out one of them");
  if (options.optim.schedule == "milestones" && options.optim.milestones.empty())
    throw OptionError("optim.schedule is milestones, but optim.milestones is empty: name epochs, [30, 60, 80]");
}

std::string renamed_option(const std::string& name) {
  const auto at = std::ranges::find(renamed, name, &std::pair<std::string_view, std::string_view>::first);
  return at == std::end(renamed) ? "" : std::string(at->second);
}

std::string renamed_value(const std::string& name, const std::string& value) {
  if (name == "parallel.allreduce") return replace_word(value, "vendor", "default");
  if (name == "parallel.strategy") return replace_word(value, "one_weird", "one_weird_trick");
  if (name == "run.resume") return value == "true" ? "yes" : value == "false" ? "no" : value;
  return value;
}

std::string toml_value(const Option& o) {
  const std::string text = value_text(o);
  if (std::holds_alternative<std::string*>(o.value)) return quote(text);
  if (std::holds_alternative<std::vector<double>*>(o.value))
    return fmt::format("[{}]", fmt::join(*std::get<std::vector<double>*>(o.value), ", "));
  const bool whole = std::holds_alternative<double*>(o.value) && text.find_first_of(".ein") == std::string::npos;
  return whole ? text + ".0" : text;
}

std::string to_toml(const TrainerOptions& options) {
  TrainerOptions copy = options;
  std::string out, section;
  for (const Option& o : option_table(copy)) {
    const auto dot = o.name.find('.');
    const std::string head = dot == std::string::npos ? "" : o.name.substr(0, dot);
    if (head != section) out += fmt::format("\n[{}]\n", section = head);
    out += fmt::format("{} = {}\n", dot == std::string::npos ? o.name : o.name.substr(dot + 1), toml_value(o));
  }
  return out;
}

std::map<std::string, std::string> read_own_toml(const std::string& toml) {
  std::map<std::string, std::string> found;
  std::string section, line;
  for (std::istringstream in(to_toml({}) + "\n[]\n" + toml); std::getline(in, line);) {
    if (line.starts_with('[')) section = line.size() > 2 ? line.substr(1, line.size() - 2) + "." : "";
    const auto equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    const std::string name = section + line.substr(0, equals), now = renamed_option(name);
    found[now.empty() ? name : now] = renamed_value(name, line.substr(equals + 3));
  }
  return found;
}

std::string common_settings(const TrainerOptions& options) {
  constexpr std::array own{
      "device",    "data.root",      "data.workers",    "parallel.ranks",  "parallel.threads",     "checkpoint.keep",
      "run.dir",   "run.progress",   "run.log_seconds", "run.tensorboard", "run.histograms",       "run.images",
      "run.fault", "run.log_format", "run.mllog",       "run.predict",     "checkpoint.keep_every"};
  std::string text;
  for (const auto& [name, value] : read_own_toml(to_toml(options)))
    if (std::ranges::find(own, name) == own.end()) text += fmt::format("{} = {}\n", name, value);
  return text;
}

}  // namespace trireme
