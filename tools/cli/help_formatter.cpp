#include "tools/cli/help_formatter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "tools/cli/settings_arguments.h"
#include "tools/cli/wrapped_text.h"

namespace trireme {

namespace {

/// A row of a list: a name and its explanation.
std::string row(const std::string& name, const std::string& about, int columns, int place = 26) {
  const int left = columns < 60 ? 4 : place, width = static_cast<int>(name.size()) + 2;
  std::string out = "  " + name;
  if (about.empty()) return out + "\n";
  if (width + 2 > left)
    out += "\n" + std::string(static_cast<std::size_t>(left), ' ');
  else
    out += std::string(static_cast<std::size_t>(left - width), ' ');
  return out + wrapped(about, left, columns);
}

/// Names of the option, short names first. --help prints only the alias of a setting that has one.
std::string names_of(const CLI::Option& option, bool all) {
  std::vector<std::string> names, seen;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  std::vector<std::string> longs = option.get_lnames();
  if (!all && longs.size() > 1 && longs[0].find('.') != std::string::npos) longs.erase(longs.begin());
  for (const std::string& name : longs) {
    std::string plain = name;
    std::ranges::replace(plain, '-', '_');
    if (std::ranges::find(seen, plain) != seen.end()) continue;  // --dry-run means --dry_run
    seen.push_back(plain);
    names.push_back("--" + name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Replaces a space where lines must not break: "(default: auto)".
constexpr char kept_space = '\x1f';

/// Placeholder of the option's value: N, FILE; empty: the option is a flag.
std::string value_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  std::string type = option.get_type_name();
  type.resize(std::min(type.find(':'), type.size()));  // without the range, which error messages give
  return " " + (type.empty() || type == "INT" ? "N" : type);
}

std::string row_of(const CLI::Option& option, bool all, int columns) {
  std::string about = option.get_description();
  if (std::string value = option.get_option_text(); !value.empty()) {
    std::ranges::replace(value, ' ', kept_space);
    about += " " + value;
  }
  std::string text = row(names_of(option, all) + value_of(option), about, columns);
  std::ranges::replace(text, kept_space, ' ');
  return text;
}

std::string usage(const CLI::App& app) {
  std::string line = "trireme";
  if (!app.get_name().empty()) line += " " + full_name(app);
  for (const CLI::Option* o : app.get_options([](const CLI::Option* each) { return each->get_positional(); })) {
    const std::string type = value_of(*o), name = type.size() > 2 ? type.substr(1) : o->get_name();
    const std::string word = o->get_expected_max() > 1 ? name + "..." : name;
    line += o->get_required() ? " " + word : " [" + word + "]";
  }
  return line + (app.get_subcommands({}).empty() ? " [OPTIONS]" : " COMMAND [OPTIONS]");
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string, CLI::AppFormatMode mode) const {
  const int columns = help_columns();
  const bool all = mode == CLI::AppFormatMode::All;
  std::string about = app->get_description() + ".";
  about[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(about[0])));
  std::string out = wrapped(about, 0, columns);
  out += "\nUsage: " + wrapped(usage(*app), 7, columns);

  std::string list;
  for (const CLI::Option* o : app->get_options([](const CLI::Option* each) { return each->get_positional(); })) {
    const std::string type = value_of(*o);
    list += row(type.size() > 2 ? type.substr(1) : o->get_name(), o->get_description(), columns);
  }
  if (!list.empty()) out += "\nArguments:\n" + list;

  std::vector<std::pair<std::string, std::string>> commands;  // (group, its rows)
  for (const CLI::App* command : app->get_subcommands({})) {
    if (commands.empty() || commands.back().first != command->get_group())
      commands.emplace_back(command->get_group(), "");
    commands.back().second += row(command->get_name(), command->get_description(), columns, 14);
  }
  for (const auto& [group, rows] : commands) out += "\n" + (group.empty() ? "Commands" : group) + ":\n" + rows;

  int left_out = 0;
  std::string common;
  for (const std::string& group : app->get_groups()) {
    list.clear();
    for (const CLI::Option* o : app->get_options([&](const CLI::Option* each) { return each->get_group() == group; })) {
      if (o->get_positional() && o->get_lnames().empty()) continue;
      const bool setting = is_setting_group(group);
      if (setting && !all && !is_common(o->get_lnames()[0], app->get_name()))
        ++left_out;
      else
        (setting && !all ? common : list) += row_of(*o, all, columns);
    }
    if (!list.empty()) out += "\n" + group + ":\n" + list;
  }
  if (!common.empty()) out += "\nCommon settings:\n" + common;
  if (left_out > 0)
    out +=
        "\n" + wrapped(fmt::format("{} more settings: trireme {} --help-all", left_out, full_name(*app)), 0, columns);
  if (!app->get_footer().empty()) out += "\n" + app->get_footer() + "\n";
  return out;
}

}  // namespace trireme
