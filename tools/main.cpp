// trireme: train, eval, predict, pack, import, export, info.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "tools/commands.h"
#include "tools/recipe.h"

namespace trireme {
namespace {

/// What the command line says, in the order it takes effect: defaults < config file < options.
struct Given {
  std::string config_file;
  std::vector<std::pair<std::string, std::string>> settings;
  bool print_config = false;

  Config resolve(Config config = {}) const {
    if (!config_file.empty()) load_config(config, find_config(config_file));
    for (auto& [name, text] : settings) set(config, name, text);
    validate(config);
    return config;
  }
};

std::string model_names() {
  std::vector<std::string> names;
  for (const ModelRow& row : models()) names.push_back(row.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string default_text(const Key& key) {
  return std::visit(
      [](auto* v) {
        if constexpr (std::is_same_v<decltype(v), std::vector<double>*>)
          return fmt::format("{}", fmt::join(*v, ","));
        else
          return fmt::format("{}", *v);
      },
      key.value);
}

void add_settings(CLI::App& command, Given& given) {
  command
      .add_option("-c,--config", given.config_file, "TOML file of settings, or the name of a recipe: imagenet_resnet50")
      ->type_name("FILE");
  command.add_flag("--print-config", given.print_config, "print the settings that result, as TOML, and stop");
  Config defaults;
  for (const Key& key : keys(defaults)) {
    if (key.name == "model") continue;                                     // positional
    if (key.name == "weights" && command.get_name() != "train") continue;  // there: instead of the checkpoint
    auto dot = key.name.find('.');
    std::string flags = "--" + key.name + (key.alias.empty() ? "" : ",--" + key.alias);
    auto store = [&given, name = key.name](const std::string& text) { given.settings.emplace_back(name, text); };
    CLI::Option* option =
        std::holds_alternative<bool*>(key.value)
            ? command.add_option_function<std::string>(flags, store, key.help)->expected(0, 1)->default_str("true")
            : command.add_option_function<std::string>(flags, store, key.help);
    std::string value = default_text(key);
    option->type_name(value.empty() ? "TEXT" : "(default: " + value + ")")
        ->group(dot == std::string::npos ? "Run" : "[" + key.name.substr(0, dot) + "]");
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->trigger_on_parse();
  }
}

/// CLI11 says which argument it did not expect; we add what was probably meant.
int refuse(const CLI::App& app, const std::vector<std::string>& extras) {
  Config config;
  for (std::string word : extras) {
    if (!word.starts_with("--")) {
      std::fprintf(stderr, "trireme: unexpected argument '%s'; see trireme %s --help\n", word.c_str(),
                   app.get_name().c_str());
      return 2;
    }
    word = word.substr(2, word.find('=') == std::string::npos ? std::string::npos : word.find('=') - 2);
    try {
      set(config, word, "");
    } catch (const ConfigError& e) {
      std::fprintf(stderr, "trireme: %s\n", e.what());
      return 2;
    }
  }
  return 2;
}

int dispatch(int argc, char** argv) {
  CLI::App app{"Trireme: deep learning with data parallelism, model parallelism and layer pipelining built in"};
  app.require_subcommand(1);
  app.set_version_flag("--version", version());
  Given given;
  std::string model, run, weights, import_from, import_to, packed;
  bool listing = false;
  PredictOptions predicting;
  ExportOptions exported;
  BenchOptions benched;

  CLI::App* training = app.add_subcommand("train", "train a model; under mpiexec or srun each process is a rank");
  training->add_option("model", model, model_names())->type_name("MODEL");
  CLI::App* evaluating = app.add_subcommand("eval", "accuracy and loss of a run's newest checkpoint on the test set");
  evaluating->add_option("run", run, "run directory")->required()->type_name("RUN");
  CLI::App* prediction =
      app.add_subcommand("predict", "classify image files (PNG, JPEG) by a run's model or a weights file");
  prediction->add_option("images", predicting.images, "image files")->required()->type_name("FILE");
  prediction->add_option("--run", predicting.run, "run directory")->type_name("RUN");
  prediction
      ->add_option("--model", predicting.model, "without a run: a model of ImageNet's, resnet50, and its --weights")
      ->type_name("MODEL");
  prediction->add_option("--labels", predicting.labels, "file with the name of one class per line")->type_name("FILE");
  prediction->add_option("--topk", predicting.top, "answers per image")->type_name("K");
  prediction->add_flag("--invert", predicting.invert, "dark ink on light paper: swap light and dark");
  CLI::App* importing =
      app.add_subcommand("import", "turn weights of other frameworks into safetensors, names and values kept");
  importing->add_option("file", import_from, ".npz, .pt, .pth, .bin or .safetensors")->required()->type_name("FILE");
  importing->add_option("--out", import_to, "safetensors file to write")->type_name("FILE");
  importing->add_flag("--list", listing, "print the tensors' names, types and shapes");
  CLI::App* exporting = app.add_subcommand("export", "write a run's model, or a weights file's, for other programs");
  exporting->add_option("run", exported.run, "run directory")->type_name("RUN");
  exporting->add_option("--model", exported.model, "without a run: resnet50, say, and its --weights")
      ->type_name("MODEL");
  exporting->add_option("--onnx", exported.onnx, "ONNX file to write (opset 17, for onnxruntime and its like)")
      ->required()
      ->type_name("FILE");
  CLI::App* packing =
      app.add_subcommand("pack", "decode a data set once, into one file for --data packed --data.root FILE");
  packing->add_option("file", packed, "file to write")->required()->type_name("FILE");
  CLI::App* benching = app.add_subcommand("bench", "images per second on synthetic images, and where the time goes");
  benching->add_option("model", model, model_names())->type_name("MODEL");
  benching->add_option("--steps", benched.steps, "steps to time, after two that prepare everything")->type_name("N");
  benching->add_flag("--infer", benched.infer, "evaluation instead of training, batch norms folded");
  CLI::App* informing = app.add_subcommand("info", "build, devices, MPI, threads, versions");
  for (CLI::App* command : {training, evaluating, packing, benching}) add_settings(*command, given);
  const std::pair<CLI::App*, std::string*> weighted[] = {
      {evaluating, &weights}, {prediction, &predicting.weights}, {exporting, &exported.weights}};
  for (auto& [command, file] : weighted)
    command->add_option("--weights", *file, "safetensors file to use instead of the newest checkpoint")
        ->type_name("FILE");
  for (CLI::App* command : {training, evaluating, prediction, exporting, packing, benching}) command->allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) { return app.exit(e); } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) { return app.exit(e); } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "trireme: %s\n", e.what());
    return 2;
  }
  for (CLI::App* command : app.get_subcommands())
    if (auto extras = command->remaining(); !extras.empty()) return refuse(*command, extras);

  if (!model.empty()) given.settings.insert(given.settings.begin(), {"model", model});
  if (informing->parsed()) return info();
  if (importing->parsed()) return import_command(import_from, import_to, listing);
  if (prediction->parsed()) return predict(predicting);
  if (exporting->parsed()) return export_command(exported);
  Config config = given.resolve(evaluating->parsed() ? run_config(run) : Config{});
  if (given.print_config) {
    fmt::print("{}", to_toml(config));
    return 0;
  }
  if (packing->parsed()) return pack_command(config, packed);
  if (benching->parsed()) return bench_command(argc, argv, config, benched);
  return training->parsed() ? train_command(argc, argv, config) : eval_command(argc, argv, config, run, weights);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit then is an error with a path, not a death
  try {
    return trireme::dispatch(argc, argv);
  } catch (const trireme::ConfigError& e) {
    std::fprintf(stderr, "trireme: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "trireme: %s\n", e.what());
    return 1;
  }
}
