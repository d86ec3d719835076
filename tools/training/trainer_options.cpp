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

/// Replaces each occurrence of `old` that is a whole word.
std::string replace_word(std::string text, std::string_view old, std::string_view now) {
  const auto in_word = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
  };
  for (std::size_t at = 0; (at = text.find(old, at)) != text.npos;) {
    const bool word = !in_word(at - 1) && !in_word(at + old.size());  // at - 1 of 0 is beyond the end
    if (word) text.replace(at, old.size(), now);
    at += word ? now.size() : old.size();
  }
  return text;
}

/// Renamed settings: old name, new name.
constexpr std::pair<std::string_view, std::string_view> renamed[] = {
    {"data.validation", "data.test_split"}, {"optim.decay", "optim.weight_decay"},
    {"optim.lr_per", "optim.lr_base_size"}, {"optim.step_factor", "optim.gamma"},
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
  constexpr double many = 2147483648, cores = 65536;  // bounds that only catch mistakes
  constexpr double most = std::numeric_limits<double>::infinity(), any = -most;
  return {
      {"model", &c.model, "model; trireme info lists the names"},
      {"weights", &c.weights, "safetensors file to start from; a last layer of another shape starts at random"},
      {.name = "recompute",
       .value = &c.recompute,
       .help = "keep only the input of residual blocks, and compute the blocks again in backward: about half the "
               "memory, a third more time; true, false, or the layers by name: layer1.*,layer2.0",
       .bare = "true"},
      {"recompute_offload", &c.recompute_offload,
       "with recompute: keep these inputs in host memory until backward, not on the GPU; on a CPU this does nothing"},
      {"zero_gamma", &c.zero_gamma, "start residual blocks as the identity: the last gamma of each block is 0"},
      {"epochs", &c.epochs, "passes over the training data", 0},
      {"seed", &c.seed, "seed of initial weights, shuffling and dropout", 0},
      {"device", &c.device, "auto (a GPU if there is one), cpu, cuda (by local rank) or cuda:N"},
      {"dtype", &c.dtype,
       "element type: f32, f64, bf16 (activations; weights stay f32); on a GPU also f16 (the same) and tf32 (f32 with "
       "a mantissa of 10 bits in products)",
       any, most, "f32, f64, bf16, f16, tf32"},
      {"deterministic", &c.deterministic,
       "true: the same bits in every run; false: a GPU may add in any order if that is faster"},
      {"loss_scale", &c.loss_scale,
       "f16: first factor of the loss, which keeps small gradients from vanishing; training adapts the factor", 1},
      {"cuda_graphs", &c.cuda_graphs,
       "replay steps of equal shapes as CUDA graphs, if a rank has the whole model on one GPU"},
      {"arch.layers", &c.arch.layers, "blocks of a transformer; 0, as everywhere in arch: the model's own value", 0,
       many},
      {"arch.heads", &c.arch.heads, "heads of the queries", 0, many},
      {"arch.kv_heads", &c.arch.kv_heads, "heads of keys and values", 0, many},
      {"arch.width", &c.arch.width, "elements of a token", 0, many},
      {"arch.hidden", &c.arch.hidden, "width of the MLP's hidden layer", 0, many},
      {"arch.experts", &c.arch.experts, "MLPs of a block, of which each token uses some (gpt2, llama)", 0, many},
      {"arch.expert_top_k", &c.arch.expert_top_k, "experts of a token; 0: 2", 0, many},
      {"arch.expert_balance", &c.arch.expert_balance, "weight of the loss for equal use of experts; -1: 0.01", -1, 10},
      {"arch.positions", &c.arch.positions, "most tokens of a sample, for learned positions", 0, many},
      {"arch.vocabulary", &c.arch.vocabulary, "rows of the embedding; 0: the size of the tokenizer", 0, many},
      {"arch.dropout", &c.arch.dropout,
       "probability that an embedding, attention weight or residual is set to 0; -1: the model's own", -1, 1},
      {"arch.bias", &c.arch.bias, "biases of linear layers and norms: 0 none, 1 all; -1: the model's own", -1, 1},
      {"arch.tied", &c.arch.tied, "the embedding is also the head's weight: 0 no, 1 yes; -1: the model's own", -1, 1},
      {"arch.activation", &c.arch.activation,
       "activation of the MLP: gelu, gelu_tanh, relu, silu; empty: the model's own", any, most,
       ", gelu, gelu_tanh, relu, silu"},
      {"data.name", &c.data.name,
       "data set: mnist, fashion_mnist, cifar10, cifar100, imagenet (a folder per class), tar, packed, synthetic, "
       "text, phantoms, volumes",
       any, most, "", "data"},
      {"data.root", &c.data.root, "folder of the data set's files; empty: where the data set was installed"},
      {"data.shards", &c.data.shards,
       "tar: training shards in data.root, as shard-{000000..000099}.tar or a list with commas"},
      {"data.val_shards", &c.data.val_shards, "tar: test shards"},
      {"data.classes", &c.data.classes,
       "number of classes. tar: 0 takes the largest label of the training shards plus 1. phantoms: 0 takes 3. volumes: "
       "classes of the labels",
       0},
      {"data.tokenizer", &c.data.tokenizer,
       "text: bytes, chars (the characters that occur), a tokenizer.json, or a folder with vocab.json and merges.txt"},
      {"data.context", &c.data.context, "text: tokens of a sample; 0: arch.positions, or the model's usual number", 0,
       many},
      {"data.windows", &c.data.windows,
       "text: samples of an epoch, drawn at random places; 0: the text's tokens / context", 0},
      {"data.separator", &c.data.separator,
       "text: id that ends a document; tokens attend to their own document only (gpt2, llama). -1: to the whole sample",
       -1, many},
      {"data.test_split", &c.data.test_split, "text of one file: share at its end that is only tested on", 0, 1},
      {"data.validation_split", &c.data.validation_split,
       "share of the training samples that is held out: epochs end with an evaluation on it, the last one also with "
       "one on the test set; 0: all end with the test set",
       0, 0.99},
      {"data.task", &c.data.task, "phantoms, volumes: segment (a class per voxel) or denoise (the clean volume)", any,
       most, "segment, denoise"},
      {"data.size", &c.data.size, "phantoms: extents of a phantom, height,width or depth,height,width", 1, many},
      {"data.crop", &c.data.crop, "phantoms, volumes: extents of a sample, height,width or depth,height,width", 1,
       many},
      {"data.samples", &c.data.samples, "phantoms, volumes: random crops of an epoch", 1, many},
      {"data.test_samples", &c.data.test_samples,
       "phantoms: crops of an evaluation, from phantoms that are not trained on", 1, many},
      {"data.phantoms", &c.data.phantoms, "phantoms: different phantoms to train on", 1, many},
      {"data.angles", &c.data.angles, "phantoms: projections that a picture is reconstructed from; 0: no artefacts", 0,
       65536},
      {"data.missing", &c.data.missing, "phantoms: degrees that were not measured, of 180", 0, 179},
      {"data.noise", &c.data.noise, "phantoms: standard deviation of the noise; grey values are 0 to 1.1", 0},
      {"data.mean", &c.data.mean, "volumes: a model sees (voxel - mean) / std"},
      {"data.std", &c.data.std, "volumes: 0 takes the largest value of 8- and 16-bit integers, and 1 for floats"},
      {"data.batch", &c.data.batch, "samples of an optimizer step, over all ranks together", 1, many, "", "batch"},
      {"data.eval_batch", &c.data.eval_batch, "samples of an evaluation batch, over all ranks together", 1, many},
      {"data.workers", &c.data.workers, "threads per rank that load data ahead", 0, 1024},
      {"data.limit", &c.data.limit, "use only the first N training samples; 0: all", 0},
      {"data.shuffle", &c.data.shuffle, "new order in each epoch, a function of seed and epoch only"},
      {"data.augment", &c.data.augment, "train on random crops (imagenet: resized) and mirror images"},
      {"data.augment_pad", &c.data.augment_pad, "small images: black pixels added on each side before a random crop",
       0},
      {"data.image_size", &c.data.image_size,
       "side of photographs and synthetic images in pixels; 0: the model's usual", 0, 65536},
      {"data.synthetic_size", &c.data.synthetic_size, "samples of the synthetic data set", 1},
      {"data.on_bad", &c.data.on_bad, "an image that cannot be read: stop, or skip (the next good image replaces it)",
       any, most, "stop, skip", "data.on-bad"},
      {"optim.name", &c.optim.name, "optimizer: " + optimizer_names(), any, most, optimizer_names()},
      {"optim.lr", &c.optim.lr, "learning rate; for schedules with a peak, the peak", 0},
      {"optim.lr_base_size", &c.optim.lr_base_size,
       "batch that lr is meant for: lr is multiplied by data.batch / lr_base_size; 0: lr as given", 0},
      {"optim.momentum", &c.optim.momentum, "sgd, lars: momentum"},
      {"optim.nesterov", &c.optim.nesterov, "sgd: Nesterov momentum"},
      {"optim.weight_decay", &c.optim.weight_decay, "weight decay: L2, for adamw decoupled"},
      {"optim.decay_biases", &c.optim.decay_biases, "also decay biases and scales of norms"},
      {"optim.clip_norm", &c.optim.clip_norm, "clip the norm of the whole gradient to this value; 0: no clipping", 0},
      {"optim.label_smoothing", &c.optim.label_smoothing,
       "share of the target that is spread over all classes in training", 0, 1},
      {"optim.z_loss", &c.optim.z_loss,
       "factor of (log Z)^2 in the training loss, which keeps logits small (PaLM: 1e-4); 0: none", 0},
      {"optim.beta1", &c.optim.beta1, "adam and its variants: decay of the gradient's mean; 0: the optimizer's own", 0,
       1},
      {"optim.beta2", &c.optim.beta2,
       "adam and its variants: decay of the squared gradient's mean; 0: the optimizer's own", 0, 1},
      {"optim.min_lr", &c.optim.min_lr, "schedules cosine and linear: last learning rate", 0},
      {"optim.schedule", &c.optim.schedule,
       "learning-rate schedule: constant, step, milestones, exponential, cosine, linear, one_cycle", any, most,
       "constant, step, milestones, exponential, cosine, linear, one_cycle"},
      {"optim.warmup_steps", &c.optim.warmup_steps,
       "steps of linear warm-up before the schedule: lr (step + 1) / (warmup_steps + 1)", 0},
      {"optim.warmup_epochs", &c.optim.warmup_epochs,
       "epochs of linear warm-up before the schedule, from 0 or, with lr_base_size, from lr", 0},
      {"optim.step_epochs", &c.optim.step_epochs, "schedule step: epochs between decays", 0},
      {"optim.gamma", &c.optim.gamma, "schedules step, milestones and exponential: factor of lr at each decay", 0},
      {"optim.milestones", &c.optim.milestones, "schedule milestones: epochs after which lr decays, 30,60,80", 0},
      {"parallel.ranks", &c.parallel.ranks,
       "ranks as threads, at most 65536; ignored under mpiexec or srun. plan search takes any number", 1, 1 << 24, "",
       "ranks"},
      {"parallel.virtual", &c.parallel.virtual_ranks,
       "train in virtual time: N ranks as threads of one process with a simulated clock; 0: real time", 0, cores, "",
       "virtual"},
      {"parallel.cluster", &c.parallel.cluster,
       "virtual time: TOML file of the machines to simulate; empty: one machine with a device per rank", any, most, "",
       "cluster"},
      {"parallel.mesh", &c.parallel.mesh,
       "axes of the ranks and their sizes, pipe=2,data=4; empty: all ranks on axis data", any, most, "", "mesh"},
      {"parallel.strategy", &c.parallel.strategy,
       "parallel strategy; empty: data_parallel on several ranks, serial on one; auto: the simplest of the fastest "
       "strategies that a search finds (trireme plan search), kept in the run",
       any, most, "", "strategy"},
      {"parallel.plugin", &c.parallel.plugin, "shared library with custom strategies (parallel/runtime/plugin.h)", any,
       most, "", "plugin"},
      {"parallel.allreduce", &c.parallel.allreduce,
       "all-reduce algorithm: default, ring, recursive_doubling, rabenseifner, tree, hierarchical, hierarchical(N) "
       "with N ranks a node, torus, torus(N) with N rows; auto: the fastest, measured at the start and kept in the run",
       any, most, "", "allreduce"},
      {"parallel.norm_scope", &c.parallel.norm_scope,
       "rows that batch norm's statistics cover, unless the strategy decides: global, group, local (each rank's own)",
       any, most, "global, group, local"},
      {"parallel.norm_group", &c.parallel.norm_group, "norm_scope group: ranks per group", 1},
      {"parallel.overlap", &c.parallel.overlap, "reduce gradients while backward still runs"},
      {"parallel.threads", &c.parallel.threads,
       "threads per rank; 0: an equal share of the cores, at most OMP_NUM_THREADS", 0, cores},
      {"parallel.bind", &c.parallel.bind,
       "where ranks run on a host: core gives each rank its own cores, with a thread on each; numa gives it the NUMA "
       "nodes of its share; none leaves it to the launcher and the system",
       any, most, "none, numa, core"},
      {"checkpoint.steps", &c.checkpoint.steps, "also save every N steps; 0: only at the end of epochs", 0},
      {"checkpoint.minutes", &c.checkpoint.minutes,
       "also save when N minutes have passed since the last save; 0: never", 0},
      {"checkpoint.keep", &c.checkpoint.keep, "number of newest checkpoints to keep; the best is kept, too", 1},
      {"checkpoint.keep_every", &c.checkpoint.keep_every,
       "also keep checkpoints whose step is a multiple of N; 0: none", 0},
      {"checkpoint.best", &c.checkpoint.best,
       "key of metrics.jsonl that chooses the best checkpoint, with a minus if lower is better; empty: test_top1, or "
       "-test_loss of data without classes; with data.validation_split val_top1 or -val_loss"},
      {"checkpoint.async", &c.checkpoint.async,
       "write checkpoints while training continues; needs memory for a copy of weights and optimizer state"},
      {"run.dir", &c.run.dir, "run directory; empty: runs/MODEL, numbered"},
      {"run.resume", &c.run.resume,
       "continue from the newest checkpoint of run.dir, with the run's own settings (config.toml). Only run, "
       "checkpoint, parallel, data.workers and device may change, and epochs if lr does not depend on it. auto: start "
       "a new run if there is none",
       any, most, "no, yes, auto", "resume", "yes"},
      {"run.override", &c.run.override, "with resume: accept other settings than the run has, and keep them", any, most,
       "", "override"},
      {"run.progress", &c.run.progress,
       "bar, lines, off, or auto: a bar if stderr is a terminal (mpiexec hides it), else lines", any, most,
       "auto, bar, lines, off"},
      {"run.log_seconds", &c.run.log_seconds, "seconds between progress lines", 0},
      {"run.max_steps", &c.run.max_steps,
       "stop and save after N optimizer steps in all; 0: no limit; a resumed run does not inherit N", 0},
      {"run.time_limit", &c.run.time_limit,
       "seconds: stop early enough to save within this time, with exit status 85; 0: no limit; the end of a Slurm job "
       "counts, too",
       0},
      {"run.tensorboard", &c.run.tensorboard, "write TensorBoard events into the run directory", any, most, "",
       "tensorboard"},
      {"run.histograms", &c.run.histograms, "TensorBoard: histograms of all weights every N epochs; 0: none", 0},
      {"run.images", &c.run.images, "TensorBoard: the first N inputs, as the model sees them", 0},
      {"run.replay", &c.run.replay,
       "servers, asynchronous gossip: repeat the recorded order of messages of a run (its directory, or a checkpoint "
       "of it), bit for bit"},
      {"run.on_nan", &c.run.on_nan,
       "a loss or gradient that is not finite: stop, or rollback to the newest checkpoint. A second failure at the "
       "same step leaves out the samples since the checkpoint. At most three rollbacks",
       any, most, "stop, rollback"},
      {"run.finite_steps", &c.run.finite_steps,
       "check every N steps that all weights and gradients are finite (the loss: every step); 0: every step with "
       "rollback or long steps, else every 10th",
       0, many},
      {"run.spike", &c.run.spike,
       "a loss above this multiple of its mean over about 50 steps counts as not finite; 0: never", 0},
      {"run.digest_steps", &c.run.digest_steps,
       "compare the weights that ranks share every N steps and at checkpoints, and name rank and tensor; 0: never", 0},
      {"run.log_format", &c.run.log_format, "lines on stderr: text, or json (one object a line)", any, most,
       "text, json"},
      {"run.profile", &c.run.profile,
       "steps to trace, 100-110: writes trace.json (Perfetto, chrome://tracing) to the run directory, and prints where "
       "the time went"},
      {"run.predict", &c.run.predict,
       "several ranks on CPUs: measure the parts of a step when the run ends, and print predicted next to measured "
       "times"},
      {"run.mllog", &c.run.mllog, "write MLPerf's :::MLLOG lines to mllog.txt in the run directory"},
      {"run.fault", &c.run.fault,
       "inject a fault for testing: KIND:RANK:STEP with KIND throw, exit, hang, term, segv, abort, stop, nan or flip"},
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
      throw OptionError(o.name + " is not UTF-8, as config.toml and checkpoints need");
    }
    const bool files = o.name == "data.shards" || o.name == "data.val_shards";  // lists of them
    if (!files && (*text)->size() > 4096)
      throw OptionError(fmt::format("{}: '{}' is too long", o.name, shortened(**text)));
  }
  if (options.run.override && options.run.resume == "no")
    throw OptionError("run.override is for run.resume, because a new run has no settings; leave it out");
  if (options.recompute_offload && options.recompute == "false")
    throw OptionError(
        "recompute_offload keeps the inputs of recomputed blocks in host memory, but recompute is false; add "
        "--recompute, or leave out recompute_offload");
  if (options.optim.warmup_steps > 0 && options.optim.warmup_epochs > 0)
    throw OptionError("optim.warmup_steps and optim.warmup_epochs are both given; leave out one of them");
  if (options.optim.schedule == "step" && options.optim.step_epochs == 0)
    throw OptionError("optim.step_epochs is 0, but lr cannot decay every 0 epochs; give epochs, for example 1 or 0.5");
  if (options.optim.schedule == "milestones" && options.optim.milestones.empty())
    throw OptionError("optim.schedule is milestones, but optim.milestones is empty; give epochs, for example 30,60,80");
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
  // fmt::join() of numbers, not of texts, would compile all of fmt's formatting of numbers here.
  const auto number = [](double value) { return fmt::format("{}", value); };
  const std::string text = value_text(o);
  // Options that were switches before they took texts keep the form of a switch, so that older runs compare equal.
  if (!o.bare.empty() && (text == "true" || text == "false")) return text;
  if (std::holds_alternative<std::string*>(o.value)) return quote(text);
  if (std::holds_alternative<std::vector<double>*>(o.value))
    return fmt::format("[{}]",
                       fmt::join(*std::get<std::vector<double>*>(o.value) | std::views::transform(number), ", "));
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
      "device",    "data.root",      "data.workers",    "parallel.ranks",  "parallel.threads",      "checkpoint.keep",
      "run.dir",   "run.progress",   "run.log_seconds", "run.tensorboard", "run.histograms",        "run.images",
      "run.fault", "run.log_format", "run.mllog",       "run.predict",     "checkpoint.keep_every", "parallel.bind"};
  std::string text;
  for (const auto& [name, value] : read_own_toml(to_toml(options)))
    if (std::ranges::find(own, name) == own.end()) text += fmt::format("{} = {}\n", name, value);
  return text;
}

}  // namespace trireme
