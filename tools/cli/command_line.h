// CommandLine: the subcommands and options of `trireme`.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/cli/commands.h"
#include "tools/cli/settings_arguments.h"

namespace trireme {

/// The subcommands. One member function below declares a subcommand's options and its action.
class CommandLine {
 public:
  CommandLine(int argc, char** argv);
  int run();

 private:
  using Action = std::function<int()>;
  /// Groups of subcommands in --help.
  static constexpr const char *training = "Train", *using_models = "Use models and data",
                              *planning = "Plan and predict", *machine = "Inspect";
  CLI::App& add(const std::string& name, const char* group, const std::string& about, Action action) {
    return add(app_, name, group, about, std::move(action));
  }
  CLI::App& add(CLI::App& parent, const std::string& name, const char* group, const std::string& about, Action action) {
    CLI::App* command = parent.add_subcommand(name, about)->allow_extras()->group(group);
    actions_.emplace_back(command, std::move(action));
    return *command;
  }
  /// Makes options and arguments that are files or folders reject "", which an unset shell variable gives.
  static void refuse_empty_paths(CLI::App& command);
  void train();
  static void add_launch(CLI::App&, LaunchCommand&);
  void doctor();
  void report();
  void eval();
  void predict_images();
  void generate_text();
  void infer();
  void pack();
  void import();
  void export_model();
  void bench();
  void plan();
  void add_drawings(CLI::App& command);
  static void add_cost(CLI::App& command, std::string& cost);
  void show(CLI::App& plan);
  void search(CLI::App& plan);
  void simulate(CLI::App& plan);
  void verify(CLI::App& plan);
  void study();
  void add_model(CLI::App& command);
  static void add_weights(CLI::App& command, std::string& file) {
    command.add_option("--weights", file, "safetensors file to use instead of the newest checkpoint")
        ->type_name("FILE");
  }
  /// Calls `act` with the settings that result from base, the settings file and the options; or prints these settings.
  int configured(const std::function<int(const TrainerOptions&)>& act, const TrainerOptions& base = {});

  /// The error message if the first word is no subcommand; else "".
  std::string unknown_subcommand() const;

  int argc_;
  char** argv_;
  CLI::App app_{"Trireme: deep learning with data, model and pipeline parallelism built in"};
  std::vector<std::pair<CLI::App*, Action>> actions_;
  SettingsArguments settings_;
  CLI::App* train_ = nullptr;
  std::string model_, run_, weights_, from_, to_;
  bool listing_ = false, environment_ = false, manual_ = false, completion_ = false;
  PredictOptions predict_;
  GenerateCommand generate_;
  InferCommand infer_;
  ExportOptions export_;
  BenchOptions bench_;
  ProfileOptions profile_;
  PlanOptions plan_;
  SearchCommand search_;
  VerifyCommand verify_;
  LaunchCommand launch_;
  DoctorOptions doctor_;
  StudyCommand study_;
  std::vector<std::string> runs_;
  std::string page_ = "report.html";
  bool compare_ = false;
};

}  // namespace trireme
