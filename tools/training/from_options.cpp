#include "tools/training/from_options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "datasets/core/tensors.h"
#include "datasets/formats/data_paths.h"
#include "datasets/formats/webdataset.h"
#include "datasets/images/augment.h"
#include "framework/io/json.h"
#include "framework/layers/init.h"
#include "framework/layers/on.h"
#include "framework/layers/recompute.h"
#include "framework/metrics/metrics.h"
#include "kernels/core/backend.h"
#include "kernels/core/runtime.h"
#include "kernels/core/suggest.h"
#include "kernels/core/text.h"
#include "parallel/runtime/plugin.h"
#include "tools/training/cluster_file.h"
#include "tools/training/dtype_dataset.h"
#include "tools/training/run_metrics.h"

namespace trireme {
DType make_dtype(const TrainerOptions& c) {
  for (DType t : {DType::f64, DType::bf16, DType::f16})
    if (c.dtype == name_of(t)) return t;
  return DType::f32;
}

Device make_device(const TrainerOptions& c, int local_rank) {
  const auto refuse_f16 = [&](Device device) {
    check(c.dtype != "f16" && c.dtype != "tf32", "dtype", "{} is for GPUs, but this run is on {}; use bf16 or f32",
          c.dtype, device);
    return device;
  };
  if (c.device == "cpu" || c.parallel.virtual_ranks > 0) return refuse_f16(cpu());
  std::string_view index = c.device;
  const bool named = index.starts_with("cuda");
  if (named) index.remove_prefix(4);
  int wanted = local_rank;
  const bool given = index.size() > 1 && index[0] == ':';
  check(!given || (parse_number(index.substr(1), wanted) && wanted >= 0), "device",
        "'{}' is no device, expected cuda:NUMBER", c.device);
  if (c.device != "auto" && (!named || (!index.empty() && !given)))
    fail("device", "{}", [&] { return unknown_name(c.device, {"auto", "cpu", "cuda", "cuda:0"}); });
  const Backend& gpus = open_backend(DeviceKind::cuda);
  if (c.device == "auto" && gpus.devices == 0) return refuse_f16(cpu());
  check(gpus.devices > 0, ErrorKind::device, "device", "there is no GPU to use: {}", gpus.absent);
  check(!given || wanted < gpus.devices, ErrorKind::device, "device", "there is no {}; this machine has {} GPU{}",
        c.device, gpus.devices, gpus.devices == 1 ? "" : "s");
  set_f32_product(c.dtype == "tf32" ? MatmulPrecision::tf32 : MatmulPrecision::highest);
  set_deterministic(c.deterministic);
  return cuda(wanted % gpus.devices);
}

Device make_device(const TrainerOptions& c, World& world) {
  const Device device = make_device(c, world.local_rank());
  (void)world.use(device);
  return device;
}

Index context_of(const TrainerOptions& c) {
  const ModelRow& row = model_row(c.model);
  if (c.data.context > 0) return c.data.context;
  if (c.arch.positions > 0) return c.arch.positions;
  return row.text ? row.usual.input[0] : 256;
}

bool takes_volumes(const TrainerOptions& c) { return c.data.name == "phantoms" || c.data.name == "volumes"; }
static bool denoises(const TrainerOptions& c) { return takes_volumes(c) && c.data.task == "denoise"; }

static Index phantom_classes(const TrainerOptions& c) { return c.data.classes > 0 ? c.data.classes : 3; }

/// Parses sides in voxels: two or three whole numbers.
static Shape extents_of(const char* name, const std::vector<double>& sides) {
  Shape shape;
  if (sides.size() != 2 && sides.size() != 3)
    throw OptionError(fmt::format("{} has {} number{}, expected height,width or depth,height,width", name, sides.size(),
                                  sides.size() == 1 ? "" : "s"));
  for (const double side : sides) {
    if (side != std::floor(side))
      throw OptionError(fmt::format("{}: {} is given, expected a whole number", name, side));
    shape.push_back(static_cast<Index>(side));
  }
  return shape;
}

ModelOptions usual_options(const TrainerOptions& c) {
  ModelOptions usual = model_row(c.model).usual;
  if (model_row(c.model).text) {
    usual.input = {context_of(c)};
    if (c.arch.vocabulary > 0) usual.classes = c.arch.vocabulary;
    return usual;
  }
  if (takes_volumes(c)) {  // input size is the crop
    usual.input = extents_of("data.crop", c.data.crop);
    usual.input.push_back(1);
    if (c.data.name == "phantoms") usual.classes = phantom_classes(c);
    if (c.data.name == "volumes" && c.data.classes > 0) usual.classes = c.data.classes;
    if (denoises(c)) usual.classes = 1;
  } else if (c.data.image_size > 0) {
    for (int d = 0; d < usual.input.rank() - 1; ++d) usual.input[d] = c.data.image_size;
  }
  return usual;
}

OpenOptions open_options(const TrainerOptions& c) {
  const VolumeTask task = c.data.task == "denoise" ? VolumeTask::denoise : VolumeTask::segment;
  const Shape crop = takes_volumes(c) ? extents_of("data.crop", c.data.crop) : Shape{64, 64};
  const ModelOptions usual = c.data.name == "synthetic" ? usual_options(c) : ModelOptions{};
  return {.root = c.data.root,
          .shards = c.data.shards,
          .val_shards = c.data.val_shards,
          .classes = c.data.classes,
          .image_size = c.data.image_size,
          .augment = c.data.augment,
          .on_bad = c.data.on_bad == "skip" ? OnBad::skip : OnBad::stop,
          .context = context_of(c),
          .tokenizer = c.data.tokenizer,
          .test_split = c.data.test_split,
          .validation_split = c.data.validation_split,
          .windows = c.data.windows,
          .separator = c.data.separator,
          .synthetic = {.size = c.data.synthetic_size,
                        .shape = usual.input,
                        .classes = usual.classes,
                        .seed = 7,
                        .dense = model_row(c.model).dense},
          .phantoms = {.phantom = {.size = takes_volumes(c) ? extents_of("data.size", c.data.size) : Shape{256, 256},
                                   .classes = phantom_classes(c),
                                   .angles = c.data.angles,
                                   .missing = c.data.missing,
                                   .noise = c.data.noise,
                                   .seed = 7},
                       .phantoms = c.data.phantoms,
                       .crop = crop,
                       .task = task,
                       .samples = c.data.samples},
          .volumes = {.crop = crop,
                      .task = task,
                      .classes = c.data.classes,
                      .samples = c.data.samples,
                      .mean = c.data.mean,
                      .std = c.data.std},
          .test_samples = c.data.test_samples};
}

Dataset synthetic_data(const TrainerOptions& c, const ModelOptions& shape, Index samples) {
  const ModelRow& row = model_row(c.model);
  if (!row.text) {
    const Dataset data =
        Synthetic({.size = samples, .shape = shape.input, .classes = shape.classes, .dense = row.dense});
    if (!denoises(c)) return in_dtype(data, make_dtype(c));
    return map_samples(in_dtype(data, make_dtype(c)), [](const Sample& s, Index, const AugmentKey&) {
      return Sample{s.x, s.x};
    });
  }
  const Index tokens = shape.input[0];
  const Tensor ids = Tensor::empty({samples, tokens + 1}, DType::i64);
  const Philox random{7};
  for (Index i = 0; i < ids.numel(); ++i)
    ids.data<std::int64_t>()[i] =
        static_cast<std::int64_t>(random(0, static_cast<std::uint64_t>(i))[0]) % shape.classes;
  return TensorDataset(slice(ids, 1, 0, tokens), slice(ids, 1, 1, tokens + 1), shape.classes);
}

Dataset make_dataset(const TrainerOptions& c, const std::string& split) {
  check(!model_row(c.model).text || c.data.name == "text" || c.data.name == "synthetic", "data.name",
        "{} takes text, but {} are pictures; use --data text --data.root FILE", c.model, c.data.name);
  check(
      !c.model.starts_with("bert") || c.data.name != "text", "data.name",
      "{} attends to all tokens of a sample, but the data is text, whose target is the next token: that one is in the "
      "model's input; use gpt2 or llama, or a custom data set that masks tokens",
      c.model);
  check(model_row(c.model).text || c.data.name != "text", "data.name",
        "{} takes pictures, but the data is text; use gpt2 or llama", c.model);
  check(!model_row(c.model).dense || takes_volumes(c) || c.data.name == "synthetic", "data.name",
        "{} has a result per pixel, but {} has a label per picture; use --data phantoms or volumes", c.model,
        c.data.name);
  check((c.data.name != "text" && !takes_volumes(c)) || (c.data.limit == 0 && !c.data.augment), "data.name",
        "data.limit and data.augment are for pictures; for {} use {} for the samples of an epoch", c.data.name,
        c.data.name == "text" ? "data.windows" : "data.samples");
  if (model_row(c.model).text && c.data.name == "synthetic")
    return synthetic_data(c, usual_options(c), c.data.synthetic_size);
  Dataset data = open_dataset(c.data.name, split, open_options(c));
  if (split == "train" && c.data.limit > 0) data = head(data, std::min<Index>(c.data.limit, data->size()));
  // Photographs are cropped by their own data sets.
  const bool photographs = c.data.name == "imagenet" || c.data.name == "tar" || c.data.name == "packed";
  if (split == "train" && c.data.augment && !photographs) data = augmented(data, {.pad = c.data.augment_pad});
  return in_dtype(data, make_dtype(c));
}

std::string description(const DatasetSource& data) {
  const std::string name = std::filesystem::path(data.name()).filename().string();  // folders may differ
  return fmt::format("{}: {} samples of {}, {} classes\n", name, data.size(), data.shape(), data.classes());
}

ModelOptions options_for(const DatasetSource& data) {
  ModelOptions options{.input = data.shape(), .classes = data.classes()};
  if (options.classes == 0 && data.tensors() && data.size() > 0)
    if (const Tensor y = data.tensors()->sample(0).y; y && y.rank() > 0) options.classes = y.dim(-1);
  return options;
}

static Module undrawn(const TrainerOptions& c, ModelOptions options) {
  options.zero_gamma = c.zero_gamma;
  options.recompute = c.recompute == "true";
  options.arch = c.arch;
  if (c.dtype == "bf16" || c.dtype == "f16") options.dtype = make_dtype(c);
  const SkipInit drawn_below;
  Module model = make_model(c.model, options);
  if (c.recompute == "false" || (c.recompute == "true" && !c.recompute_offload)) return model;
  const auto patterns = c.recompute == "true" ? std::vector<std::string>{} : split_text(c.recompute, ',');
  return recompute(model, patterns, {.offload = c.recompute_offload});
}

Module make_model(const TrainerOptions& c, ModelOptions options, Device device) {
  Module model = undrawn(c, std::move(options));
  initialize(model, static_cast<std::uint64_t>(c.seed));
  move_to(model, c, device);
  return model;
}

Module make_undrawn_model(const TrainerOptions& c, ModelOptions options, Device device) {
  const SkipInit moved_below;
  Module model = undrawn(c, std::move(options));
  move_to(model, c, device);
  return model;
}

void move_to(Module& model, const TrainerOptions& c, Device device) {
  if (c.dtype == "f64") convert(model, DType::f64);
  place(model, device);
}

EvaluateOptions evaluate_options(const TrainerOptions& c, Device device, Console& console, Index samples) {
  return {.batch = c.data.eval_batch,
          .workers = static_cast<int>(c.data.workers),
          .dtype = make_dtype(c),
          .device = device,
          .progress = [&console, tail = fmt::format("{} samples", samples)](Index batch, Index batches) {
            console.progress("evaluate", batch, batches, tail);
          }};
}

void check_shards(const TrainerOptions& c, int ranks) {
  if (c.data.name != "tar" || c.data.shards.empty()) return;
  const auto shards = std::ssize(expand_shards(c.data.shards, c.data.root));
  check(shards >= ranks, "data.shards",
        "{} for {} ranks, so ranks would read the same files; write at least {} shards, or start at most {} ranks",
        shards, ranks, ranks, shards);
}

Schedule make_schedule(const TrainerOptions& c, std::int64_t per_epoch) {
  const TrainerOptions::Optim& o = c.optim;
  const auto steps = [&](double epochs) {
    return static_cast<std::int64_t>(std::llround(epochs * static_cast<double>(per_epoch)));
  };
  const double scale = o.lr_base_size > 0 ? static_cast<double>(c.data.batch) / static_cast<double>(o.lr_base_size) : 1;
  const double lr = o.lr * scale;
  const std::int64_t warm = o.warmup_steps > 0 ? o.warmup_steps : steps(o.warmup_epochs);
  const std::int64_t rest = std::max<std::int64_t>(1, c.epochs * per_epoch - warm);
  // Schedules with a fixed end start after warm-up. Decays at given epochs count from the start of the run.
  const auto after_warm_up = [&](Schedule rate) {
    return Schedule([rate, warm](std::int64_t step) { return rate(std::max<std::int64_t>(0, step - warm)); });
  };
  const auto base = [&]() -> Schedule {
    if (o.schedule == "constant") return lr;
    if (o.schedule == "step") return step_decay(lr, std::max<std::int64_t>(1, steps(o.step_epochs)), o.gamma);
    if (o.schedule == "exponential") return exponential(lr, std::pow(o.gamma, 1.0 / static_cast<double>(per_epoch)));
    if (o.schedule == "milestones") {
      std::vector<std::int64_t> at;
      for (double epoch : o.milestones) at.push_back(steps(epoch));
      return milestones(lr, at, o.gamma);
    }
    if (o.schedule == "cosine") return after_warm_up(cosine(lr, rest, o.min_lr * scale));
    if (o.schedule == "linear") return after_warm_up(polynomial(lr, rest, 1, o.min_lr * scale));
    if (o.schedule == "one_cycle") return after_warm_up(one_cycle(lr, rest));
    fail("optim.schedule", "there is no '{}'", o.schedule);
  };
  if (o.warmup_steps > 0) {
    const Schedule rate = base();
    const double first = lr / static_cast<double>(warm + 1);
    return linear(first, lr, warm).then(warm, [rate, warm](std::int64_t step) { return rate(step + warm); });
  }
  // Goyal et al.: warm-up starts at the rate before scaling for a large batch.
  return warm > 0 ? warm_up(base(), warm, o.lr_base_size > 0 ? std::min(1.0, 1 / scale) : 0) : base();
}

std::vector<Metric> make_metrics(const TrainerOptions& c, const DatasetSource& data) {
  if (denoises(c)) return {RegressionErrors{}};
  if (!takes_volumes(c)) return {};
  const ConfusionOptions classes{.classes = data.classes()};
  return {Dice{classes}, MeanIoU{classes}};
}

Loss make_loss(const TrainerOptions& c) {
  if (denoises(c)) return mse_loss;
  if (c.optim.label_smoothing == 0 && c.optim.z_loss == 0) return cross_entropy;
  return cross_entropy_with({.label_smoothing = c.optim.label_smoothing,
                             .z_loss = c.optim.z_loss,
                             .ignore_index = CrossEntropyOptions::ignore_none});
}

OptimizerConfig make_optimizer(const TrainerOptions& c, std::int64_t per_epoch) {
  const TrainerOptions::Optim& o = c.optim;
  const auto at = std::ranges::find(optimizers(), o.name, &OptimizerConfig::name);
  if (at == optimizers().end()) fail("optim.name", "there is no '{}'", o.name);
  OptimizerConfig optimizer = *at;
  // Settings that the optimizer does not have are ignored.
  for (const OptimizerField& field : optimizer.fields()) {
    const std::string name = field.name;
    if (name == "lr") *std::get<Schedule*>(field.value) = make_schedule(c, per_epoch);
    if (name == "momentum") *std::get<double*>(field.value) = o.momentum;
    if (name == "weight_decay") *std::get<double*>(field.value) = o.weight_decay;
    if (name == "beta1" && o.beta1 > 0) *std::get<double*>(field.value) = o.beta1;
    if (name == "beta2" && o.beta2 > 0) *std::get<double*>(field.value) = o.beta2;
    if (name == "nesterov") *std::get<bool*>(field.value) = o.nesterov;
  }
  return optimizer;
}

LoaderOptions loader_options(const TrainerOptions& c, RankShare share, Device device) {
  return {.batch = c.data.batch,
          .shuffle = c.data.shuffle,
          .seed = static_cast<std::uint64_t>(c.seed),
          .shard = share,
          .workers = static_cast<int>(c.data.workers),
          .dtype = make_dtype(c),
          .device = device};
}

StepOptions step_options(const TrainerOptions& c) {
  // Predictions are kept for the accuracy. Those of a language model are large, and its loss may take them divided.
  const bool keeps = std::ranges::none_of(models(), [&](const ModelRow& m) { return m.name == c.model && m.text; });
  return {.seed = static_cast<std::uint64_t>(c.seed),
          .optimizer = {.clip_norm = c.optim.clip_norm, .decay_biases = c.optim.decay_biases},
          .loss_scale = c.dtype == "f16" ? c.loss_scale : 0,
          .keep_outputs = keeps ? whole_output : StepOptions::KeepOutputs()};
}

int steps_between_flags(Module& model, const Tensor& example) {
  Index weights = 0;
  model.visit(StateVisitor([&](const NamedState& state) { weights += state.tensor->numel(); }));
  const double least = 6.0 * static_cast<double>(weights * example.dim(0) + 100 * example.numel());
  return least < 2e8 ? 10 : 1;  // floating-point operations of models that use each weight at least once per row
}

FiniteChecks finite_checks(const TrainerOptions& c, int between_flags) {
  const int every = c.run.finite_steps > 0       ? static_cast<int>(c.run.finite_steps)
                    : c.run.on_nan == "rollback" ? 1
                                                 : between_flags;
  return {.every = every, .offset = static_cast<int>((record_every - 1) % every)};
}

Cluster make_cluster(const TrainerOptions& c, const std::string& kept) {
  const TrainerOptions::Parallel& p = c.parallel;
  const auto ranks = static_cast<int>(p.virtual_ranks);
  const auto refuse = [&](const std::string& why) {
    throw OptionError(fmt::format("parallel.virtual is {}, but {}", ranks, why));
  };
  if (p.ranks != 1 && p.ranks != ranks) refuse(fmt::format("parallel.ranks is {}; leave out parallel.ranks", p.ranks));
  if (c.device != "auto" && c.device != "cpu")
    refuse(fmt::format("device is {}; virtual time computes on the CPU, so use cpu", c.device));
  if (!p.mesh.empty() && ranks_of(parse_mesh(p.mesh)) != ranks)
    refuse(fmt::format("parallel.mesh {} has {} ranks", p.mesh, ranks_of(parse_mesh(p.mesh))));
  const std::string& file = kept.empty() ? p.cluster : kept;
  if (file.empty()) {
    const Link link{.latency = 10e-6, .bandwidth = 1e10, .sizes = mpich_sizes};
    return {.nodes = {{.devices = ranks}}, .inside = link, .between = link, .name = "this machine"};
  }
  Cluster cluster = read_cluster(file);
  if (cluster.name.empty()) cluster.name = std::filesystem::path(file).stem().string();
  if (cluster.devices() < ranks)
    refuse(fmt::format("{} has {} device{}", file, cluster.devices(), cluster.devices() == 1 ? "" : "s"));
  return cluster;
}

int make_ranks(const TrainerOptions& c) {
  constexpr int most_threads = 65536;
  if (c.parallel.mesh.empty() && c.parallel.ranks > most_threads)
    throw OptionError(fmt::format("parallel.ranks is {}, expected at most {}", c.parallel.ranks, most_threads));
  if (c.parallel.mesh.empty()) return static_cast<int>(c.parallel.ranks);
  const int ranks = ranks_of(parse_mesh(c.parallel.mesh));
  if (c.parallel.ranks != 1 && c.parallel.ranks != ranks)
    throw OptionError(
        fmt::format("parallel.mesh: {} has {} ranks, but --ranks is {}; use equal numbers, or leave out one of them",
                    c.parallel.mesh, ranks, c.parallel.ranks));
  return ranks;
}

std::string use_threads(const TrainerOptions& c, World& world) {
  std::string cpus = world.bind(c.parallel.bind);
  if (c.parallel.threads > 0) set_threads(static_cast<int>(c.parallel.threads));
  return cpus;
}

Mesh make_mesh(const TrainerOptions& c, World& world) {
  return c.parallel.mesh.empty() ? Mesh(world) : Mesh(world, parse_mesh(c.parallel.mesh));
}

Strategy make_strategy(const TrainerOptions& c, int ranks) {
  Strategy s;
  const auto own = c.parallel.plugin.empty() ? std::vector<StrategyRow>() : load_strategies(c.parallel.plugin);
  if (c.parallel.strategy == "auto")
    throw OptionError("parallel.strategy auto is for trireme train; use trireme plan search");
  if (!c.parallel.strategy.empty())
    s = parse_strategy(c.parallel.strategy, own);
  else if (ranks > 1)
    s = data_parallel({.overlap = c.parallel.overlap});
  check(c.parallel.norm_group == 1 || c.parallel.norm_scope == "group" || s.norm_scope, "parallel.norm_group",
        "{} ranks per group are for norm_scope group, but norm_scope is {}; set parallel.norm_scope=group, or leave "
        "out norm_group",
        c.parallel.norm_group, c.parallel.norm_scope);
  if (!s.norm_scope) {
    s.norm_scope = norm_scope_of(c.parallel.norm_scope);
    s.norm_group = static_cast<int>(c.parallel.norm_group);
  }
  return s;
}

}  // namespace trireme
