#include "tools/cli/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "tools/cli/settings_arguments.h"

namespace trireme {
namespace {

/// The commands without commands of their own.
std::vector<const CLI::App*> leaves(const CLI::App& app) {
  std::vector<const CLI::App*> found;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_subcommands({}).empty()) found.push_back(command);
    for (const CLI::App* inner : leaves(*command)) found.push_back(inner);
  }
  return found;
}

/// Text in which groff changes nothing.
std::string plain(const std::string& text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    constexpr std::string_view special = "\\-'`^~";
    constexpr const char* escapes[] = {"\\e", "\\-", "\\(aq", "\\(ga", "\\(ha", "\\(ti"};
    const auto at = special.find(c);
    out += at == special.npos ? std::string(1, c) : escapes[at];
  }
  return out;
}

std::vector<std::string> flags_of(const CLI::Option& option) {
  std::vector<std::string> flags;
  for (const std::string& name : option.get_snames()) flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flags.push_back("--" + name);
  return flags;
}

/// An entry for each option of these groups; none for positional words.
std::string entries(const CLI::App& command, bool settings) {
  std::string text;
  for (const CLI::Option* o : command.get_options()) {
    const std::vector<std::string> flags = flags_of(*o);
    if (flags.empty() || o->get_group().empty() || is_setting_group(o->get_group()) != settings) continue;
    std::string value = o->get_items_expected_max() == 0 ? "" : " " + o->get_type_name();
    value.resize(std::min(value.find(':'), value.size()));  // without the range
    text += fmt::format(".TP\n.B {}\n{} {}\n", plain(fmt::format("{}{}", fmt::join(flags, ", "), value)),
                        plain(o->get_description()), plain(o->get_option_text()));
  }
  return text;
}

}  // namespace

std::string man_page(const CLI::App& app) {
  std::string text = fmt::format(
      ".TH TRIREME 1\n.SH NAME\ntrireme \\- {}\n.SH SYNOPSIS\n.B trireme\n.I COMMAND\n[OPTIONS]\n.SH COMMANDS\n",
      plain("deep learning with data, model and pipeline parallelism built in"));
  std::string settings;
  for (const CLI::App* command : leaves(app)) {
    text += fmt::format(".SS {}\n{}.\n{}", plain("trireme " + full_name(*command)), plain(command->get_description()),
                        entries(*command, false));
    if (!command->get_footer().empty()) text += ".PP\n.nf\n" + plain(command->get_footer()) + "\n.fi\n";
    if (command->get_name() == "train") settings = entries(*command, true);
  }
  return text +
         ".SH SETTINGS\nA setting is an option of the commands that use it, or a line of a file for\n.BR \\-\\-config "
         ".\n" +
         settings + ".SH EXIT STATUS\n.nf\n" + plain(app.get_footer()) + "\n.fi\n";
}

std::string bash_completion(const CLI::App& app, const std::string& models) {
  std::string names, cases;
  for (const CLI::App* command : app.get_subcommands({})) {
    names += command->get_name() + " ";
    std::string inner;
    for (const CLI::App* each : command->get_subcommands({})) inner += each->get_name() + " ";
    if (!inner.empty()) cases += fmt::format("    \"{} \") words=\"{}\" ;;\n", command->get_name(), inner);
  }
  for (const CLI::App* command : leaves(app)) {
    std::string words;
    for (const CLI::Option* o : command->get_options())
      if (!o->get_group().empty())
        for (const std::string& flag : flags_of(*o)) words += flag + " ";
    if (command->get_option_no_throw("model")) words += models;
    if (command->get_option_no_throw("action")) words += "run report";
    cases += fmt::format("    \"{}\"*) words=\"{}\" ;;\n", full_name(*command) + " ", words);
  }
  return fmt::format(R"(# Completes words of trireme for Bash.
_trireme() {{
  local IFS=$' \t\n' words="{}" current="${{COMP_WORDS[COMP_CWORD]}}"
  local before="${{COMP_WORDS[*]:1:COMP_CWORD-1}} "
  [ "$COMP_CWORD" = 1 ] || case "$before" in
{}    *) words="" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _trireme trireme
)",
                     names, cases);
}

}  // namespace trireme
