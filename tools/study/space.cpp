#include "tools/study/space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/io/json.h"
#include "framework/io/options.h"
#include "kernels/core/text.h"
#include "tools/training/trainer_options.h"

namespace trireme {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

double six_digits(double value) {
  double rounded = value;
  parse_number(fmt::format("{:.6g}", value), rounded);
  return rounded;
}

std::string quoted(std::string text) { return toml_value({.name = "", .value = &text}); }

const char* name_of(Parameter::Kind kind) {
  constexpr const char* names[] = {"uniform", "log", "integer", "log_integer", "choice"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace

double Parameter::clamped(double value) const { return std::clamp(is_whole() ? std::round(value) : value, low, high); }

double Parameter::at(double place) const {
  const double u = std::clamp(place, 0.0, 1.0);
  switch (kind) {
    case Kind::uniform: return clamped(six_digits(low + u * (high - low)));
    case Kind::log: return clamped(six_digits(std::exp(std::log(low) + u * std::log(high / low))));
    case Kind::log_integer: return clamped(std::floor(std::exp(std::log(low) + u * std::log((high + 1) / low))));
    case Kind::integer:
    case Kind::choice: break;
  }
  return clamped(std::floor(low + u * (high - low + 1)));
}

double Parameter::place(double value) const {
  if (std::isnan(value)) return 0.5;
  switch (kind) {
    case Kind::uniform: return (value - low) / (high - low);
    case Kind::log: return std::log(value / low) / std::log(high / low);
    case Kind::log_integer:
      return (std::log(value / low) + std::log((value + 1) / low)) / 2 / std::log((high + 1) / low);
    case Kind::integer:
    case Kind::choice: break;
  }
  return (value - low + 0.5) / (high - low + 1);
}

std::string Parameter::text(double value) const {
  if (kind == Kind::choice) return values[static_cast<std::size_t>(value)];
  return is_whole() ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

double Parameter::number(const std::string& text) const {
  double value = none;
  if (kind == Kind::choice) {
    const auto at = std::ranges::find(values, text);
    return at == values.end() ? none : static_cast<double>(at - values.begin());
  }
  return parse_number(text, value) && value >= low && value <= high && clamped(value) == value ? value : none;
}

bool Space::applies(const Point& point, std::size_t i) const {
  return std::ranges::all_of(parameters_[i].only_if, [&](const Condition& c) {
    return std::ranges::find(c.values, point[c.parameter]) != c.values.end();
  });
}

Point Space::at(const std::vector<double>& places) const {
  Point point(size(), none);
  for (std::size_t i = 0; i < size(); ++i)
    if (applies(point, i)) point[i] = parameters_[i].at(places[i]);
  return point;
}

std::vector<double> Space::places(const Point& point) const {
  std::vector<double> places(size());
  for (std::size_t i = 0; i < size(); ++i) places[i] = parameters_[i].place(point[i]);
  return places;
}

std::vector<std::pair<std::string, std::string>> Space::settings(const Point& point) const {
  std::vector<std::pair<std::string, std::string>> found;
  for (std::size_t i = 0; i < size(); ++i)
    if (!std::isnan(point[i])) found.emplace_back(parameters_[i].name, parameters_[i].text(point[i]));
  return found;
}

std::string Space::text(const Point& point) const {
  std::string text;
  for (const auto& [name, value] : settings(point))
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

std::string Space::to_json(const Point& point) const {
  Json json = Json::object();
  for (const auto& [name, value] : settings(point)) json[name] = value;
  return json_text(json);
}

Point Space::from_json(const std::string& text) const {
  const Json json = parse_json(text);
  Point point(size(), none);
  check(json.is_object(), ErrorKind::data, "study", "'{:.100}' is no point of the space", text);
  for (std::size_t i = 0; i < size(); ++i) {
    const auto at = json.find(parameters_[i].name);
    if (at == json.end()) continue;
    if (at->is_string()) point[i] = parameters_[i].number(at->get<std::string>());
    check(!std::isnan(point[i]), ErrorKind::data, "study", "{} cannot be what '{:.100}' says", parameters_[i].name,
          text);
  }
  return point;
}

std::string Space::to_toml() const {
  std::string out = "[space]\n";
  for (const Parameter& p : parameters_) {
    out += fmt::format("{} = {{type = \"{}\", ", quoted(p.name), name_of(p.kind));
    if (p.kind == Parameter::Kind::choice) {
      std::vector<std::string> values;
      for (const std::string& v : p.values) values.push_back(quoted(v));
      out += fmt::format("values = [{}]", fmt::join(values, ", "));
    } else {
      out += fmt::format("low = {}, high = {}, levels = {}", p.text(p.low), p.text(p.high), p.levels);
    }
    std::string conditions;
    for (const Condition& c : p.only_if) {
      std::vector<std::string> values;
      for (const double v : c.values) values.push_back(quoted(parameters_[c.parameter].text(v)));
      conditions += fmt::format("{}{} = [{}]", conditions.empty() ? "" : ", ", quoted(parameters_[c.parameter].name),
                                fmt::join(values, ", "));
    }
    out += conditions.empty() ? "}\n" : fmt::format(", only_if = {{{}}}}}\n", conditions);
  }
  return out;
}

}  // namespace trireme
