// The most memory that a rank holds while a model is made, trained for two steps, evaluated and saved. Every rank is a
// process, and prints one line per phase: MiB of the process beyond what it held before the model, and the ratio to
// the whole model's weights.
//   mpiexec -n N model_memory MODEL STRATEGY MESH DIRECTORY [--drawn 1] [--layers N] [--optimizer NAME]
//       MODEL: gpt2 or llama; --drawn 1: every rank draws the whole model before the Step divides it, and gets all
//       weights before the evaluation
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "bench/measure.h"
#include "framework/layers/init.h"
#include "kernels/core/runtime.h"
#include "models/registry/models.h"
#include "parallel/runtime/step_forward.h"
#include "tools/training/evaluate.h"
#include "trireme/trireme.h"
using namespace trireme;

namespace {

/// Kilobytes of a line of /proc/self/status.
double status_kilobytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1));
  return 0;
}
/// The next peak is of the memory from here on.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

}  // namespace

int model_memory_main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "model_memory MODEL STRATEGY MESH DIRECTORY [--drawn 1] [--layers N] [--optimizer NAME]\n");
    return 2;
  }
  const std::string name = argv[1], strategy = argv[2], axes = argv[3], run = argv[4];
  std::map<std::string, std::string> options{{"--drawn", "0"}, {"--layers", "0"}, {"--optimizer", "adamw"}};
  for (int i = 5; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  World world(argc, argv);
  set_threads(1);
  Mesh mesh(world, axes == "1" ? std::vector<Axis>{{"data", 1}} : parse_mesh(axes));
  const double before = status_kilobytes("VmRSS");
  double weights = 0;
  const auto report = [&](const char* phase) {
    const double held = status_kilobytes("VmRSS") - before, peak = status_kilobytes("VmHWM") - before;
    std::printf("rank %d %-12s peak %8.1f MiB %5.2f  after %8.1f MiB %5.2f\n", world.rank(), phase, peak / 1024,
                peak * 1024 / weights, held / 1024, held * 1024 / weights);
    std::fflush(stdout);
    world.comm().barrier();
    forget_peak();
  };
  forget_peak();
  const Index tokens = 32, words = name == "gpt2" ? 50257 : 32000;
  ModelOptions how{.input = {tokens}, .classes = words, .arch = {.layers = std::stoll(options["--layers"])}};
  Module model;
  {
    const SkipInit drawn_below;
    model = make_model(name, how);
  }
  std::set<const void*> seen;
  model.visit(StateVisitor([&](const NamedState& t) {
    if (seen.insert(t.tensor->id()).second) weights += 4.0 * static_cast<double>(t.tensor->numel());
  }));
  const bool drawn = options["--drawn"] == "1";
  if (drawn) initialize(model, 1);
  report("model");
  const Index rows = 4 * mesh.size("data");
  const Tensor example = Tensor::zeros({2, tokens}, DType::i64);
  StepOptions step_options{.profile = {.example = example, .batch = rows}};
  if (!drawn) step_options.initialize = 1;
  const OptimizerConfig optimizer = options["--optimizer"] == "sgd" ? OptimizerConfig(Sgd{.lr = 0.01}) : AdamW{};
  Step step(model, cross_entropy, optimizer, mesh, parse_strategy(strategy), step_options);
  report("construction");
  std::vector<Index> ids(static_cast<std::size_t>(rows * tokens));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<Index>(i * 7919) % words;
  const Tensor all = Tensor::from(ids).reshape({rows, tokens});
  const Dataset data = TensorDataset(all, all, words);
  double loss = 0;
  {
    Loader loader(data, {.batch = rows, .shard = step.shard()});
    for (int i = 0; i < 2; ++i)
      for (Batch& batch : loader) loss = step(batch.x, batch.y).item();
  }
  report("2 steps");
  const StepForward forward(step);
  const bool in_parts = forward.is_needed() && !drawn;
  if (!in_parts) step.gather_weights();
  Module evaluated = model;
  EvaluateOptions evaluation{.batch = rows};
  if (in_parts) {
    evaluation.shard = forward.share();
    evaluation.forward = forward;
    evaluated = step.model();
  } else if (StepProbe(step).is_tensor_parallel()) {
    evaluation.shard = step.shard();
    evaluated = step.model();
  }
  const double tested = evaluate(evaluated, data, world, evaluation).loss;
  report("evaluation");
  (void)save_checkpoint(run, step.parameters(), step.optimizer(), {.step = 1},
                        {.keep_last = 1, .shard = step.checkpoint_shard()});
  report("save");
  if (world.main())
    std::printf("%s, %s, mesh %s: %.1f MB of weights; loss %.9g, then %.9g\n", name.c_str(), strategy.c_str(),
                axes.c_str(), weights / 1e6, loss, tested);
  if (world.main()) std::filesystem::remove_all(run);
  return 0;
}
