#include "tools/commands.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <thread>

#include "datasets/image.h"
#include "framework/checkpoint.h"
#include "framework/pass.h"
#include "framework/tape.h"
#include "framework/weights.h"
#include "kernels/kernel.h"
#include "kernels/runtime.h"
#include "kernels/vendor.h"
#include "parallel/step.h"
#include "tools/recipe.h"
#include "tools/trainer.h"
#include "tools/version.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

/// Fills the parameters from a weights file or the run's newest checkpoint. Returns where they came from.
std::string load(Parameters& parameters, const std::string& run, const std::string& weights) {
  if (!weights.empty()) {
    import_weights(parameters, read_safetensors(weights), weights);
    return weights;
  }
  auto loaded = load_latest(run, parameters, nullptr);
  check(loaded.has_value(), "checkpoint", "{}/checkpoints holds no usable checkpoint", run);
  if (!loaded->note.empty()) std::fprintf(stderr, "%s\n", loaded->note.c_str());
  return loaded->path;
}

}  // namespace

std::string version() { return std::string("trireme ") + version_text; }

Config run_config(const std::string& run) {
  check(fs::is_regular_file(run + "/config.toml"), "run directory", "{} has no config.toml: it is not a run directory",
        run);
  Config config;
  load_config(config, run + "/config.toml");
  return config;
}

int info() {
  fmt::print("version   {} ({}, {})\n", version_text, build_type, compiler_text);
  fmt::print("cpu       {} core{} usable of {}, {}\n", cores(), cores() == 1 ? "" : "s",
             std::thread::hardware_concurrency(), cpu_library());
  fmt::print("threads   {} per process (--parallel.threads; ranks divide the cores)\n", threads());
  fmt::print("cuda      not in this build\n");
  fmt::print("mpi       {}\n", mpi_version());
  std::vector<CensusRow> rows = census();
  fmt::print(
      "kernels   {} contracts, {} with a CPU kernel\n", rows.size(),
      std::count_if(rows.begin(), rows.end(), [](auto& r) { return r.present[static_cast<int>(DeviceKind::cpu)]; }));
  fmt::print("models   ");
  for (const ModelRow& row : models()) fmt::print(" {}", row.name);
  fmt::print("\nstrategies");
  for (const StrategyRow& row : strategies()) fmt::print(" {}", row.name);
  fmt::print("\n");
  return 0;
}

int train_command(int argc, char** argv, const Config& config) {
  return World::run(argc, argv, static_cast<int>(config.parallel.ranks), [&](World& world) { train(config, world); });
}

int eval_command(int argc, char** argv, const Config& config, const std::string& run, const std::string& weights) {
  return World::run(argc, argv, static_cast<int>(config.parallel.ranks), [&](World& world) {
    Console console(!world.main(), config.run.progress, config.run.log_seconds);
    Dataset data = make_dataset(config, "test");
    Module model = make_model(config, data);
    Parameters parameters(model);
    std::string source = load(parameters, run, weights);
    Evaluation e = evaluate(model, data, config, world, console);
    console.result(
        fmt::format("test accuracy: {:.2f} % ({} of {}), loss {:.5f}", e.accuracy(), e.correct, e.samples, e.loss));
    console.result("weights:       " + source);
  });
}

int predict(const std::string& run, const std::string& weights, const PredictOptions& options) {
  Config config = run_config(run);
  Dataset data = make_dataset(config, "test");
  Module model = make_model(config, data);
  Parameters parameters(model);
  load(parameters, run, weights);
  PassScope pass(Pass{.training = false});
  NoGrad no_grad;
  Shape in = data->shape();
  PixelScale scale = data->scale();
  for (const std::string& path : options.images) {
    Tensor image = resize(read_image(path, static_cast<int>(in[2])), in[0], in[1]);
    std::vector<double> pixels = image.to_vector();
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      std::size_t c = i % scale.mean.size();
      double value = options.invert ? 255 - pixels[i] : pixels[i];
      pixels[i] = (value / 255 - scale.mean[c]) / scale.deviation[c];
    }
    std::vector<double> p =
        softmax(model(Tensor::of(pixels, {1, in[0], in[1], in[2]}, make_dtype(config)))).to_vector();
    std::vector<int> order(p.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p[a] > p[b]; });
    std::string line = path;
    for (int k = 0; k < std::clamp<int>(options.top, 1, static_cast<int>(p.size())); ++k)
      line += fmt::format("\t{}\t{:.4f}", order[k], p[order[k]]);
    fmt::print("{}\n", line);
  }
  return 0;
}

}  // namespace trireme
