// trireme: train, eval, predict, pack, import, export, bench, plan, verify, info.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>

#include "framework/io/suggest.h"
#include "tools/cli/commands.h"
#include "tools/training/recipe.h"
#include "tools/training/resume.h"

namespace trireme {
namespace {

/// What the command line says, in the order it takes effect: defaults (or the settings of a run) < config file <
/// options.
struct Given {
  std::string config_file;
  std::vector<std::pair<std::string, std::string>> settings;
  bool print_config = false;

  Config resolve(Config config = {}) const {
    apply(config);
    validate(config);
    return config;
  }
  /// What a training begins with: the defaults, or the settings of the run that it goes on with.
  Config base_of_training() const {
    Config config;
    apply(config);
    return config.run.resume ? resume_config(config.run.dir) : Config{};
  }

 private:
  void apply(Config& config) const {
    if (!config_file.empty()) load_config(config, find_config(config_file));
    for (auto& [name, text] : settings) set(config, name, text);
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
      std::fprintf(stderr, "trireme: unexpected argument '%.200s'; see trireme %s --help\n", word.c_str(),
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

/// The verbs: each declares its options and what it does in one function below.
class CommandLine {
 public:
  CommandLine(int argc, char** argv) : argc_(argc), argv_(argv) {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", version());
    train(), eval(), predict_images(), pack(), import(), export_model(), bench(), plan(), verify();
    add("info", "build, devices, MPI, threads, versions", [] { return info(); });
  }
  int run();

 private:
  using Act = std::function<int()>;
  CLI::App& add(const std::string& name, const std::string& about, Act act) {
    CLI::App* verb = app_.add_subcommand(name, about)->allow_extras();
    acts_.emplace_back(verb, std::move(act));
    return *verb;
  }
  void train();
  void eval();
  void predict_images();
  void pack();
  void import();
  void export_model();
  void bench();
  void plan();
  void verify();
  void add_model(CLI::App& verb) { verb.add_option("model", model_, model_names())->type_name("MODEL"); }
  static void add_weights(CLI::App& verb, std::string& file) {
    verb.add_option("--weights", file, "safetensors file to use instead of the newest checkpoint")->type_name("FILE");
  }
  /// act with the settings that result from base, the settings file and the options; or these printed.
  int configured(const std::function<int(const Config&)>& act, const Config& base = {}) {
    if (!model_.empty()) given_.settings.insert(given_.settings.begin(), {"model", model_});
    const Config config = given_.resolve(base);
    check_model_name(config);
    if (!given_.print_config) return act(config);
    fmt::print("{}", to_toml(config));
    return 0;
  }

  /// What is wrong with the first word, if it names no verb; else "".
  std::string unknown_verb() const;

  int argc_;
  char** argv_;
  CLI::App app_{"Trireme: deep learning with data parallelism, model parallelism and layer pipelining built in"};
  std::vector<std::pair<CLI::App*, Act>> acts_;
  Given given_;
  std::string model_, run_, weights_, from_, to_;
  bool listing_ = false;
  PredictOptions predict_;
  ExportOptions export_;
  BenchOptions bench_;
  PlanOptions plan_;
  VerifyCommand verify_;
};

void CommandLine::train() {
  CLI::App& verb = add("train", "train a model; under mpiexec or srun each process is a rank", [this] {
    return configured([this](const Config& config) { return train_command(argc_, argv_, config); },
                      given_.base_of_training());
  });
  add_model(verb);
  add_settings(verb, given_);
}

void CommandLine::eval() {
  CLI::App& verb = add("eval", "accuracy and loss of a run's newest checkpoint on the test set", [this] {
    return configured([this](const Config& config) { return eval_command(argc_, argv_, config, run_, weights_); },
                      run_config(run_));
  });
  verb.add_option("run", run_, "run directory")->required()->type_name("RUN");
  add_settings(verb, given_);
  add_weights(verb, weights_);
}

void CommandLine::predict_images() {
  CLI::App& verb = add("predict", "classify image files (PNG, JPEG) by a run's model or a weights file",
                       [this] { return predict(predict_); });
  verb.add_option("images", predict_.images, "image files")->required()->type_name("FILE");
  verb.add_option("--run", predict_.run, "run directory")->type_name("RUN");
  verb.add_option("--model", predict_.model, "without a run: a model of ImageNet's, resnet50, and its --weights")
      ->type_name("MODEL");
  verb.add_option("--labels", predict_.labels, "file with the name of one class per line")->type_name("FILE");
  verb.add_option("--topk", predict_.top, "answers per image")->type_name("K");
  verb.add_flag("--invert", predict_.invert, "dark ink on light paper: swap light and dark");
  add_weights(verb, predict_.weights);
}

void CommandLine::pack() {
  CLI::App& verb = add("pack", "decode a data set once, into one file for --data packed --data.root FILE", [this] {
    return configured([this](const Config& config) { return pack_command(config, to_); });
  });
  verb.add_option("file", to_, "file to write")->required()->type_name("FILE");
  add_settings(verb, given_);
}

void CommandLine::import() {
  CLI::App& verb = add("import", "turn weights of other frameworks into safetensors, names and values kept",
                       [this] { return import_command(from_, to_, listing_); });
  verb.add_option("file", from_, ".npz, .pt, .pth, .bin or .safetensors")->required()->type_name("FILE");
  verb.add_option("--out", to_, "safetensors file to write")->type_name("FILE");
  verb.add_flag("--list", listing_, "print the tensors' names, types and shapes");
}

void CommandLine::export_model() {
  CLI::App& verb = add("export", "write a run's model, or a weights file's, for other programs",
                       [this] { return export_command(export_); });
  verb.add_option("run", export_.run, "run directory")->type_name("RUN");
  verb.add_option("--model", export_.model, "without a run: resnet50, say, and its --weights")->type_name("MODEL");
  verb.add_option("--onnx", export_.onnx, "ONNX file to write (opset 17, for onnxruntime and its like)")
      ->required()
      ->type_name("FILE");
  add_weights(verb, export_.weights);
}

void CommandLine::bench() {
  CLI::App& verb = add("bench", "images per second on synthetic images, and where the time goes", [this] {
    return configured([this](const Config& config) { return bench_command(argc_, argv_, config, bench_); });
  });
  add_model(verb);
  verb.add_option("--steps", bench_.steps, "steps to time, after two that prepare everything")->type_name("N");
  verb.add_flag("--infer", bench_.infer, "evaluation instead of training, batch norms folded");
  add_settings(verb, given_);
}

void CommandLine::plan() {
  CLI::App& verb = add("plan", "show what every rank does in a step under a strategy, what it costs, and when", [this] {
    return configured([this](const Config& config) { return plan_show(config, plan_); });
  });
  verb.add_option("what", to_, "show")->required()->check(CLI::IsMember({"show"}))->type_name("");
  verb.add_option("model,--model", model_, model_names())->type_name("MODEL");
  verb.add_option("--cost", plan_.cost, "of the model's parts: measured here, or all equal")
      ->check(CLI::IsMember({"measured", "equal"}))
      ->type_name("");
  verb.add_option("--latency", plan_.latency, "seconds before a message arrives")->type_name("SECONDS");
  verb.add_option("--bandwidth", plan_.bandwidth, "bytes per second that a rank sends; 0: any number")
      ->type_name("BYTES");
  verb.add_flag("--measure", plan_.measure, "also run the plan, ranks as threads, and draw what happened");
  verb.add_option("--trace", plan_.trace, "write the timeline for ui.perfetto.dev or chrome://tracing")
      ->type_name("FILE");
  verb.add_option("--svg", plan_.svg, "write it as a picture")->type_name("FILE");
  verb.add_option("--html", plan_.html, "write the picture and the table as a page")->type_name("FILE");
  add_settings(verb, given_);
}

void CommandLine::verify() {
  Config base;  // small and exact, unless the settings say otherwise
  base.dtype = "f64";
  base.data.name = "synthetic", base.data.batch = 16;
  base.optim.name = "sgd", base.optim.lr = 0.01, base.optim.schedule = "constant";
  CLI::App& verb = add(
      "verify", "train under a strategy and serially, side by side; name the first difference (status 1)",
      [this, base] {
        return configured([this](const Config& config) { return verify_command(argc_, argv_, config, verify_); }, base);
      });
  verb.add_option("model,--model", model_, model_names())->type_name("MODEL");
  verb.add_option("--steps", verify_.steps, "steps to compare")->type_name("N");
  verb.add_option("--tolerance", verify_.tolerance,
                  "relative difference that counts as equal; 0: 1e-11 in f64, else 1e-4")
      ->type_name("X");
  add_settings(verb, given_);
}

std::string CommandLine::unknown_verb() const {
  std::vector<std::string> names;
  for (auto& [verb, act] : acts_) names.push_back(verb->get_name());
  const std::string word = argc_ > 1 ? argv_[1] : "-";
  if (word.starts_with("-") || std::find(names.begin(), names.end(), word) != names.end()) return "";
  return fmt::format("unknown command '{:.200}'{}; there are {}", word, did_you_mean(word, names),
                     fmt::join(names, ", "));
}

int CommandLine::run() {
  try {
    app_.parse(argc_, argv_);
  } catch (const CLI::CallForHelp& e) { return app_.exit(e); } catch (const CLI::CallForAllHelp& e) {
    return app_.exit(e);
  } catch (const CLI::CallForVersion& e) { return app_.exit(e); } catch (const CLI::ParseError& e) {
    const std::string unknown = unknown_verb();
    std::fprintf(stderr, "trireme: %s\n", unknown.empty() ? e.what() : unknown.c_str());
    return 2;
  }
  for (auto& [verb, act] : acts_) {
    if (!verb->parsed()) continue;
    const auto extras = verb->remaining();
    return extras.empty() ? act() : refuse(*verb, extras);
  }
  return 2;
}

}  // namespace
}  // namespace trireme

namespace {

/// status, unless what was printed has not arrived.
int after_output(int status) {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return status;
  if (status == 0)
    std::fprintf(stderr, "trireme: standard output: what was printed could not be written: %s\n",
                 std::strerror(errno != 0 ? errno : EIO));
  return status == 0 ? 1 : status;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit then is an error with a path, not a death
  try {
    return after_output(trireme::CommandLine(argc, argv).run());
  } catch (const trireme::ConfigError& e) {
    std::fprintf(stderr, "trireme: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "trireme: %s\n", e.what());
    return 1;
  }
}
