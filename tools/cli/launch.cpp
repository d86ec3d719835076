#include "tools/launch/supervisor.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "tools/cli/commands.h"
#include "tools/cli/config_file.h"
#include "tools/cli/settings_arguments.h"
#include "tools/training/from_options.h"
#include "tools/training/resume.h"

namespace trireme {

TrainerOptions training_of(const std::string& command, const std::string& example, std::vector<std::string> words,
                           const TrainerOptions& base) {
  if (words.empty() || words[0] != "train")
    throw OptionError(fmt::format("{0}: the training is missing; write it after --: {1}", command, example));
  words = SettingsArguments::with_values({words.begin() + 1, words.end()});
  std::reverse(words.begin(), words.end());
  CLI::App app("", "train");
  app.allow_extras();
  std::string model;
  app.add_option("model", model);
  SettingsArguments settings;
  settings.add_to(app);
  try {
    app.parse(words);
  } catch (const CLI::ParseError& e) { throw OptionError(fmt::format("{}: train: {}", command, e.what())); }
  if (const auto extra = app.remaining(); !extra.empty()) throw OptionError(unexpected(app, extra.front()));
  if (!model.empty()) settings.set_first("model", model);
  const TrainerOptions options = settings.over(base);
  validate(options);
  check_model_name(options);
  return options;
}

int launch_command(LaunchCommand command) {
  const TrainerOptions training =
      training_of("launch", "trireme launch --ranks 2 -- train mnist_cnn --run.dir DIR", command.words);
  const auto refuse = [](bool wrong, const std::string& text) {
    if (wrong) throw OptionError("launch: " + text);
  };
  refuse(training.run.dir.empty(), "the run directory is missing; add it: train ... --run.dir DIR");
  refuse(training.parallel.virtual_ranks > 0,
         "ranks in virtual time are threads of one process; use trireme train --virtual N");
  refuse(!command.hosts.empty() && !command.host_file.empty(),
         "hosts and a host file are given; leave out one of them");
  LaunchOptions& options = command.launch;
  if (!command.hosts.empty()) options.hosts = parse_hosts(command.hosts);
  if (!command.host_file.empty()) options.hosts = read_host_file(command.host_file);
  const int slots = slots_of(options.hosts);
  const int asked = make_ranks(training);  // a mesh's, or --parallel.ranks
  const bool fixed = !training.parallel.mesh.empty();
  if (options.ranks == 0) options.ranks = slots > 0 && !fixed ? slots : asked;
  refuse(fixed && options.ranks != asked,
         fmt::format("parallel.mesh {} has {} ranks, but {} are to be started; use equal numbers",
                     training.parallel.mesh, asked, options.ranks));
  refuse(fixed && options.min_ranks > 0 && options.min_ranks < asked,
         "a mesh has a fixed number of ranks, so fewer cannot continue; leave out --parallel.mesh or --min-ranks");
  refuse(
      slots > 0 && options.ranks > slots,
      fmt::format("{} ranks do not fit on hosts with {} slots; start fewer ranks, or add hosts", options.ranks, slots));
  refuse(options.min_ranks > options.ranks,
         fmt::format("--min-ranks is {}, but there are {} ranks; use at most that many", options.min_ranks,
                     options.ranks));
  options.run_dir = training.run.dir;
  options.program = {std::filesystem::read_symlink("/proc/self/exe")};
  options.program.insert(options.program.end(), command.words.begin(), command.words.end());
  if (training.run.resume == "no") options.go_on = {"--run.resume", "auto"};
  return supervise(options);
}

}  // namespace trireme
