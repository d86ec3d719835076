#include "tools/study/space_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/core/suggest.h"
#include "kernels/core/text.h"
#include "tools/training/toml_file.h"

namespace trireme {
namespace {

/// A parameter as given in the file.
struct Entry {
  std::string name;
  const toml::table* table;
  std::string place;  // "space.toml:7: "
  toml::source_position at;
};

void collect(const toml::table& table, const std::string& prefix, const std::string& source,
             std::vector<Entry>& entries) {
  for (auto&& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const toml::table* inner = node.as_table();
    if (!inner)
      throw OptionError(
          fmt::format("{}{} must be a table: {{type = \"uniform\", low = 0, high = 1}}", place_in(source, node), name));
    const auto type = inner->find("type");
    if (type != inner->end() && type->second.is_string())
      entries.push_back({name, inner, fmt::format("{}:{}: ", source, key.source().begin.line), key.source().begin});
    else
      collect(*inner, name + ".", source, entries);
  }
}

/// A value in the notation of the command line; "" for another type.
std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  return "";
}

std::vector<std::string> texts_of(const toml::node& node) {
  if (const toml::array* list = node.as_array()) {
    std::vector<std::string> all;
    for (const toml::node& each : *list) all.push_back(text_of(each));
    return all;
  }
  return {text_of(node)};
}

double number_in(const Entry& e, const char* key, bool whole) {
  const auto at = e.table->find(key);
  if (at == e.table->end() || !at->second.is_number())
    throw OptionError(fmt::format("{}{} needs numbers low and high", e.place, e.name));
  const double value = at->second.value<double>().value_or(0);
  if (!std::isfinite(value) || (whole && std::floor(value) != value) || std::abs(value) > 1e15)
    throw OptionError(
        fmt::format("{}{}: {} is {}, expected a {}number", e.place, e.name, key, value, whole ? "whole " : ""));
  return value;
}

Parameter parameter_of(const Entry& e) {
  using Kind = Parameter::Kind;
  const std::vector<std::string> kinds{"uniform", "log", "integer", "log_integer", "choice"};
  const std::string type = (*e.table)["type"].value_or(std::string());
  const auto kind = std::ranges::find(kinds, type);
  if (kind == kinds.end()) throw OptionError(fmt::format("{}{}: type: {}", e.place, e.name, unknown_name(type, kinds)));
  Parameter p{.name = e.name, .kind = static_cast<Kind>(kind - kinds.begin())};
  std::set<std::string> known{"type", "only_if"};
  if (p.kind == Kind::choice) {
    known.insert("values");
    const auto at = e.table->find("values");
    if (at != e.table->end() && at->second.is_array()) {
      p.values = texts_of(at->second);
      for (const toml::node& value : *at->second.as_array())
        if (!value.is_string() && !value.is_boolean() && !value.is_number())
          throw OptionError(fmt::format("{}{}: values must be texts, numbers, true or false", e.place, e.name));
    }
    if (std::set<std::string>(p.values.begin(), p.values.end()).size() != p.values.size())
      throw OptionError(fmt::format("{}{} has a value twice; remove one", e.place, e.name));
    p.low = 0;
    p.high = static_cast<double>(p.values.size()) - 1;
    p.levels = static_cast<int>(p.values.size());
  } else {
    known.insert({"low", "high", "levels"});
    p.low = number_in(e, "low", p.is_whole());
    p.high = number_in(e, "high", p.is_whole());
    if (p.is_log() && p.low <= 0)
      throw OptionError(
          fmt::format("{}{}: low is {}, expected above 0 for a logarithmic range", e.place, e.name, p.low));
    const double room = p.is_whole() ? p.high - p.low + 1 : 1e9;
    const auto levels = e.table->find("levels");
    const bool given = levels != e.table->end();
    const std::int64_t count =
        given ? levels->second.value_exact<std::int64_t>().value_or(0) : static_cast<std::int64_t>(std::min(room, 5.0));
    const double most = std::min(room, 1e9);
    if (p.low < p.high && (count < 1 || static_cast<double>(count) > most))
      throw OptionError(fmt::format("{}{}: levels must be a whole number from 1 to {:.0f}", e.place, e.name, most));
    p.levels = static_cast<int>(count);
  }
  for (auto&& [key, node] : *e.table)
    if (!known.contains(std::string(key.str())))
      throw OptionError(
          fmt::format("{}{}: {}", e.place, e.name, unknown_name(std::string(key.str()), {known.begin(), known.end()})));
  if (!(p.low < p.high))
    throw OptionError(fmt::format("{}{} has no room: {}", e.place, e.name,
                                  p.kind == Kind::choice ? "it needs at least two values"
                                                         : fmt::format("low {} is not below high {}", p.low, p.high)));
  return p;
}

void flatten(const toml::table& table, const std::string& prefix,
             std::vector<std::pair<std::string, std::vector<std::string>>>& found) {
  for (auto&& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const toml::table* inner = node.as_table())
      flatten(*inner, name + ".", found);
    else
      found.emplace_back(name, texts_of(node));
  }
}

/// Adds the parameter's conditions. Returns false if a parameter on which it depends is not in `before` yet.
bool add_conditions(const Entry& e, Parameter& p, const std::vector<Parameter>& before, const std::vector<Entry>& all) {
  const auto at = e.table->find("only_if");
  if (at == e.table->end()) return true;
  std::vector<std::pair<std::string, std::vector<std::string>>> conditions;
  if (at->second.is_table()) flatten(*at->second.as_table(), "", conditions);
  if (conditions.empty())
    throw OptionError(
        fmt::format("{}{}: only_if needs a parameter and its value: {{\"optim.name\" = \"sgd\"}}", e.place, e.name));
  p.only_if.clear();
  for (const auto& [name, texts] : conditions) {
    if (std::ranges::find(all, name, &Entry::name) == all.end())
      throw OptionError(
          fmt::format("{}{}: only_if names {}, which is not a parameter of the space", e.place, e.name, name));
    const auto parent = std::ranges::find(before, name, &Parameter::name);
    if (parent == before.end()) return false;
    Condition c{.parameter = static_cast<std::size_t>(parent - before.begin())};
    for (const std::string& text : texts) {
      c.values.push_back(parent->number(text));
      if (std::isnan(c.values.back()) || !parent->is_whole())
        throw OptionError(fmt::format("{}{}: only_if: {} is never '{}'", e.place, e.name, name, shortened(text)));
    }
    p.only_if.push_back(std::move(c));
  }
  return true;
}

}  // namespace

Space parse_space(const toml::table& table, const std::string& source) {
  std::vector<Entry> entries;
  collect(table, "", source, entries);
  std::ranges::stable_sort(entries, {}, [](const Entry& e) { return std::pair(e.at.line, e.at.column); });
  if (entries.empty()) throw OptionError(fmt::format("{}: [space] is empty; add a parameter", source));
  std::vector<Parameter> parameters, left;
  std::vector<Entry> open = entries;
  while (!open.empty()) {
    const auto next = std::ranges::find_if(open, [&](const Entry& e) {
      Parameter p = parameter_of(e);
      if (!add_conditions(e, p, parameters, entries)) return false;
      parameters.push_back(std::move(p));
      return true;
    });
    if (next == open.end())
      throw OptionError(
          fmt::format("{}{}: only_if forms a circle; remove one of its conditions", open[0].place, open[0].name));
    open.erase(next);
  }
  return Space(std::move(parameters));
}

}  // namespace trireme
