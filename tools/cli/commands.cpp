#include "tools/cli/commands.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <ranges>
#include <thread>

#include "datasets/core/tensors.h"
#include "datasets/formats/packed.h"
#include "datasets/text/tokenizer.h"
#include "framework/io/bytes.h"
#include "framework/io/checkpoint.h"
#include "framework/io/file.h"
#include "framework/io/foreign/npy.h"
#include "framework/io/json.h"
#include "framework/io/weights.h"
#include "kernels/core/backend.h"
#include "kernels/core/environment.h"
#include "kernels/core/kernel.h"
#include "kernels/core/runtime.h"
#include "kernels/core/vendor.h"
#include "parallel/comm/world/compare.h"
#include "parallel/runtime/step_resume.h"
#include "tools/cli/config_file.h"
#include "tools/cli/signals.h"
#include "tools/cli/version.h"
#include "tools/cli/wrapped_text.h"
#include "tools/training/data_record.h"
#include "tools/training/from_options.h"
#include "tools/training/prepared_input.h"
#include "tools/training/resume.h"
#include "tools/training/run_dir.h"
#include "tools/training/trainer.h"

namespace trireme {
namespace fs = std::filesystem;

/// The path of a run's newest checkpoint.
static std::string usable(std::optional<LoadedCheckpoint> found, const std::string& run) {
  check(found.has_value(), ErrorKind::data, "checkpoint",
        "{}/checkpoints has no usable checkpoint; train the run first, or give --weights FILE", run);
  if (!found->note.empty()) std::fprintf(stderr, "%s\n", found->note.c_str());
  return found->path;
}

std::string newest_checkpoint(const std::string& run) { return usable(find_latest(run), run); }

std::string load_weights(Parameters& parameters, const std::string& run, const std::string& weights) {
  if (!weights.empty()) {
    import_weights(parameters, weights);
    return weights;
  }
  return usable(load_latest(run, parameters, nullptr), run);
}

std::unique_ptr<Step> forward_step(Module undrawn, Mesh& mesh, const Strategy& strategy, const Tensor& example) {
  StepOptions how{.initialize = 1, .epoch_steps = 1};
  // A pipeline alone plans without costs, since rank 0 would measure them with the whole model.
  if (strategy.split.any()) how.profile.example = example;
  return std::make_unique<Step>(std::move(undrawn), cross_entropy, Sgd{}, mesh, strategy, how);
}

std::string load_weights(Step& step, World& world, const std::string& path, const std::string& weights) {
  StepResume resume(step);
  if (!weights.empty()) {
    const std::vector<std::string> kept = resume.import_weights(weights);
    check(kept.empty(), ErrorKind::data, "weights", "{} has {} of another shape than the model; give its own weights",
          weights, fmt::join(kept, ", "));
    return weights;
  }
  if (fs::exists(path + "/manifest.json")) return resume.load_weights(path).path;
  return resume.load_weights(broadcast_text(world.comm(), world.main() ? newest_checkpoint(path) : "", 0)).path;
}

ModelOptions text_run_options(const TrainerOptions& config, const std::string& run) {
  const std::string kept = run + "/" + tokenizer_file;
  const auto classes = [&] {  // the data set knows the number of ids in token files
    if (fs::exists(kept)) return open_tokenizer(kept).vocabulary();
    return config.arch.vocabulary > 0 ? config.arch.vocabulary : make_dataset(config, "test")->classes();
  };
  return {.input = {config.arch.positions > 0 ? config.arch.positions : context_of(config)}, .classes = classes()};
}

std::string version() { return std::string("trireme ") + version_text; }

int info() {
  fmt::print("version   {} ({}, {})\n", version_text, build_type, compiler_text);
  fmt::print("cpu       {} core{} usable of {}, {}\n", cores(), cores() == 1 ? "" : "s",
             std::thread::hardware_concurrency(), cpu_library());
  fmt::print("threads   {} per process (--parallel.threads; ranks divide the cores)\n", threads());
  const Backend& gpus = open_backend(DeviceKind::cuda);
  if (!gpus.library.empty()) fmt::print("cuda      {}\n", gpus.library);
  for (int i = 0; i < gpus.devices; ++i) fmt::print("cuda:{:<4} {}\n", i, gpus.names.at(static_cast<std::size_t>(i)));
  if (gpus.devices == 0) fmt::print("cuda      no GPU to use: {}\n", gpus.absent);
  fmt::print("mpi       {}\n", mpi_version());
  std::vector<CensusRow> rows = census();
  const auto on = [&](DeviceKind kind) {
    return std::count_if(rows.begin(), rows.end(), [&](auto& r) { return r.present[static_cast<std::size_t>(kind)]; });
  };
  fmt::print("kernels   {} contracts, {} with a CPU kernel, {} with a CUDA kernel\n", rows.size(), on(DeviceKind::cpu),
             on(DeviceKind::cuda));
  fmt::print("models    {}\nstrategies {}\n", fmt::join(models() | std::views::transform(&ModelRow::name), " "),
             fmt::join(strategies() | std::views::transform(&StrategyRow::name), " "));
  return 0;
}

int info_environment() {
  fmt::print("{:<28} {:<18} {:<20} {}\n", "variable", "default", "unit or values", "value now");
  for (const EnvironmentVariable& v : environment_variables()) {
    const char* now = std::getenv(v.name);
    fmt::print("{:<28} {:<18} {:<20} {}\n", v.name, v.fallback, v.unit.empty() ? v.words : v.unit,
               now ? in_quotes(now) : "not set");
    fmt::print("    {}", wrapped(std::string(v.meaning), 4));
  }
  return 0;
}

int train_command(int argc, char** argv, const TrainerOptions& options, bool cluster_given) {
  std::signal(SIGPIPE, SIG_IGN);  // if the reader of stdout closes the pipe, the training continues
  TrainerInput data;
  const auto train = [&](World& world) -> int {
    Trainer trainer(data, options, world);  // the Trainer's longer time limits hold until all ranks have written
    const TrainerResult run = trainer.run();
    Console console(!world.main(), options.run.progress, options.run.log_seconds);
    console.result(fmt::format(
        "{}, after {} steps in {}{}", run.test.samples > 0 ? run.test.text() : "not evaluated", run.steps,
        world.clock() ? fmt::format("{:.6f} simulated seconds", run.seconds) : fmt::format("{:.1f} s", run.seconds),
        run.sent > 0 ? fmt::format("; {:.2f} MB sent by all ranks", run.sent / 1e6) : ""));
    if (run.bad_images > 0)
      console.result(
          fmt::format("bad images:    {} reads replaced by the next good image; {}", run.bad_images,
                      run.first_bad.empty() ? "none of them on rank 0" : "rank 0's first: " + run.first_bad));
    console.result("checkpoint:    " + (run.checkpoint.empty()
                                            ? "none written, as no step was left; --epochs asks for more"
                                            : run.checkpoint));
    console.result("metrics:       " + run.metrics);
    console.check_results();
    if (!run.stopped) return 0;
    world.comm().barrier();  // all ranks have written
    console.log(
        fmt::format("trireme: preempted after step {}; the state is saved, and --resume continues from it", run.steps));
    return preempted_status;
  };
  const auto ranks = static_cast<int>(options.parallel.virtual_ranks);
  if (ranks == 0) {
    if (!options.parallel.cluster.empty())
      throw OptionError("parallel.cluster is for virtual time; add --virtual N, or leave it out");
    Signals signals;
    data.request = [&] { return signals.take(); };
    return World::run(argc, argv, make_ranks(options), train);
  }
  const Cluster cluster = make_cluster(options, cluster_given ? "" : kept_cluster(options));
  return World::run(argc, argv, 1, [&](World& world) {
    check(world.size() == 1, "parallel.virtual",
          "{} ranks in virtual time are threads of one process; start without mpiexec or srun", ranks);
    data = {.train = make_dataset(options, "train"), .test = make_dataset(options, "test")};  // once for all ranks
    if (options.data.validation_split > 0) data.validation = make_dataset(options, "validation");
    World::virtual_time(ranks, cluster, [&](World& each) { train(each); });
  });
}

/// Number of ranks that a run was last trained on.
static int ranks_of_run(const TrainerOptions& config, const std::string& run) {
  if (config.parallel.virtual_ranks > 0) return static_cast<int>(config.parallel.virtual_ranks);
  try {
    return parse_json(read_text(run + "/environment.json", std::size_t{1} << 20)).at("ranks").get<int>();
  } catch (const std::exception&) { return make_ranks(config); }  // of a run that has lost it
}

int eval_command(int argc, char** argv, const TrainerOptions& given, const std::string& run, const std::string& weights,
                 bool run_layout) {
  const TrainerOptions::Data own = run_config(run).data;
  const bool own_tokenizer = given.data.tokenizer == own.tokenizer;
  const TrainerOptions asked = own_tokenizer ? with_kept_tokenizer(given, run) : given;
  return World::run(argc, argv, make_ranks(asked), [&](World& world) {
    TrainerOptions options = asked;
    TrainerOptions::Parallel& layout = options.parallel;
    Console console(!world.main(), options.run.progress, options.run.log_seconds);
    const int trained = run_layout ? ranks_of_run(asked, run) : world.size();
    if (trained != world.size()) {
      if (!layout.strategy.empty() || !layout.mesh.empty())
        console.log(fmt::format(
            "note: the run has {} ranks with strategy {}{}, but {} started; each gets the whole model, unless you give "
            "--strategy",
            trained, layout.strategy.empty() ? "data_parallel" : layout.strategy,
            layout.mesh.empty() ? "" : " on mesh " + layout.mesh, world.size()));
      layout = {.threads = layout.threads, .bind = layout.bind};
    }
    (void)use_threads(options, world);
    compare_ranks(world.comm(), "settings", common_settings(options));
    const Dataset data = make_dataset(options, "test");
    compare_ranks(world.comm(), "data", "test " + description(*data));
    check_same_labels(run, data);
    const Device device = make_device(options, world);
    const ModelOptions shape = options_for(*data);
    EvaluateOptions how = evaluate_options(options, device, console, data->size());
    if (data->classes() == 0) how.loss = make_loss(options);
    how.metrics = make_metrics(options, *data);
    std::string source;
    const auto in_parts = [&]() -> std::optional<Evaluation> {
      if (layout.strategy.empty() && layout.mesh.empty()) return {};
      const Strategy strategy = make_strategy(options, world.size());
      Mesh mesh = make_mesh(options, world);
      TrainerOptions of_row = options;
      of_row.data.batch = 1;
      const auto step = forward_step(make_undrawn_model(options, shape, device), mesh, strategy,
                                     make_example(of_row, {.train = data}, 1, device));
      if (!divide(how, *step)) return {};
      source = load_weights(*step, world, run, weights);
      if (!how.forward) step->gather_weights();  // zero(1) and zero(2) read each rank's share
      console.log(fmt::format("ranks divide the model: {} on mesh {}", strategy.name(), to_string(mesh.axes())));
      return evaluate(step->model(), data, world, how);
    };
    const auto whole = [&] {
      Module model = make_model(options, shape, device);
      Parameters parameters(model);
      source = load_weights(parameters, run, weights);
      return evaluate(model, data, world, how);
    };
    const std::optional<Evaluation> divided = in_parts();
    const Evaluation found = divided ? *divided : whole();
    console.finish();
    const bool same_name = given.data.root == own.root && given.data.name == own.name &&
                           given.data.val_shards == own.val_shards && given.data.test_split == own.test_split;
    if (world.main() && same_name)
      for (const std::string& change : data_changes(run, data_record({}, data))) console.log("note: " + change);
    console.result(found.text());
    console.result("weights:       " + source);
    console.result(fmt::format("data:          {}, {} test samples", data->name(), data->size()));
    console.check_results();
  });
}

/// Writes whole phantoms of both splits as volumes into folder `to`, for VolumePairs(). Returns the exit status.
static int pack_phantoms(OpenOptions open, const std::string& to) {
  const Shape size = open.phantoms.crop = open.phantoms.phantom.size;  // a sample is a phantom
  open.phantoms.samples = open.test_samples = open.phantoms.phantoms;
  for (const auto& [split, folder] : {std::pair("train", to + "/train"), std::pair("test", to + "/val")}) {
    for (const char* part : {"/inputs", "/targets"}) fs::create_directories(folder + part);
    const Dataset data = open_dataset("phantoms", split, open);
    for (Index i = 0; i < data->size(); ++i) {
      const auto [x, y] = data->tensors()->sample(i);
      write_npy(fmt::format("{}/inputs/{}.npy", folder, i), x.reshape(size));
      write_npy(fmt::format("{}/targets/{}.npy", folder, i), y.reshape(size));
    }
  }
  fmt::print("{}: {} training phantoms of {}, and the same number of test phantoms\n", to, open.test_samples, size);
  return 0;
}

int pack_command(TrainerOptions options, const std::string& to) {
  if (options.data.name == "phantoms") return pack_phantoms(open_options(options), to);
  if (options.data.image_size == 0) options.data.image_size = 256;
  OpenOptions open = open_options(options);
  open.augment = false;
  open.central = 1;
  const Dataset train = open_dataset(options.data.name, "train", open);
  const Dataset test = open_dataset(options.data.name, "test", open);
  Console console(false, options.run.progress, options.run.log_seconds);
  const Index all = train->size() + test->size();
  const int workers = std::max(1, static_cast<int>(options.data.workers));
  pack(train, test, to, {.workers = workers, .progress = [&](Index done) {
                           console.progress("pack", done, all, fmt::format("{} images", done));
                         }});
  console.result(fmt::format("{}: {} training and {} test samples of {}, {} classes", to, train->size(), test->size(),
                             train->shape(), train->classes()));
  if (const Index bad = train->bad().count + test->bad().count; bad > 0)
    console.result(fmt::format("bad images: {} replaced by the next good image; the first: {}", bad,
                               train->bad().count > 0 ? train->bad().first : test->bad().first));
  return 0;
}

}  // namespace trireme
