#include "tools/cli/simulate_measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <source_location>
#include <utility>

#include "framework/io/json.h"
#include "kernels/core/error.h"
#include "kernels/core/suggest.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

using Values = std::map<std::string, std::string>;  // by column

/// Throws Error for invalid content. message: with source and line.
[[noreturn]] void bad_measurement(std::string message, std::source_location where = std::source_location::current()) {
  throw Error(std::move(message), where, ErrorKind::data);
}

std::string bare(std::string_view text) { return std::string(trimmed(text, " \t\r\"")); }

StepMeasurement measurement_of(const Values& fields, const std::string& place) {
  StepMeasurement m;
  const auto number = [&](const char* name, auto& value, auto least, bool needed) {
    const auto at = fields.find(name);
    if (at == fields.end() && needed) bad_measurement(fmt::format("{}: {} is missing", place, name));
    if (at == fields.end() || (at->second.empty() && !needed)) return;
    if (!parse_number(at->second, value) || !(value >= least) || !std::isfinite(static_cast<double>(value)))
      bad_measurement(
          fmt::format("{}: {} is '{}', it must be a number, at least {}", place, name, shortened(at->second), least));
  };
  number("ranks", m.ranks, 1, true);
  number("seconds", m.seconds, 1e-9, true);
  number("batch", m.batch, Index{1}, false);
  if (const auto at = fields.find("scaling"); at != fields.end()) m.scaling = at->second;
  if (!m.scaling.empty() && m.scaling != "weak" && m.scaling != "strong")
    bad_measurement(fmt::format("{}: scaling is '{}': weak or strong", place, shortened(m.scaling)));
  const auto at = fields.find("evidence");
  const std::string evidence = at == fields.end() ? "" : at->second;
  if (!evidence.empty() && evidence != "real" && evidence != "emulated")
    bad_measurement(fmt::format("{}: evidence is '{}': real or emulated", place, shortened(evidence)));
  if (evidence == "emulated") m.evidence = Evidence::emulated;
  return m;
}

Values values_of(const Json& object) {
  Values fields;
  for (const auto& [name, value] : object.items())
    // Text on a single line stays as it is, for messages.
    fields[name] = value.is_string() && std::ranges::none_of(value.get<std::string>(), [](char c) { return c == '\n'; })
                       ? value.get<std::string>()
                       : json_text(value, NotUtf8::replaced);
  return fields;
}

}  // namespace

std::vector<StepMeasurement> parse_measurements(std::string_view text, const std::string& source) {
  std::vector<StepMeasurement> all;
  std::vector<std::string> names;
  int number = 0;
  for (const std::string& raw : split_text(text, '\n')) {
    const std::string line = bare(raw), place = fmt::format("{}:{}", source, ++number);
    if (line.empty() || line.starts_with('#')) continue;
    if (line.starts_with('{')) {
      const Json object = parse_json(line);
      if (!object.is_object()) bad_measurement(place + ": this is no JSON object");
      all.push_back(measurement_of(values_of(object), place));
      continue;
    }
    std::vector<std::string> cells = split_text(line, ',');
    for (std::string& cell : cells) cell = bare(cell);
    if (names.empty()) {
      names = cells;
      if (std::ranges::find(names, "ranks") == names.end() || std::ranges::find(names, "seconds") == names.end())
        bad_measurement(fmt::format("{}: the first row must name the columns, ranks and seconds among them", place));
      continue;
    }
    if (cells.size() != names.size())
      bad_measurement(fmt::format("{}: {} fields, where the first row names {}", place, cells.size(), names.size()));
    Values fields;
    for (std::size_t i = 0; i < cells.size(); ++i) fields[names[i]] = cells[i];
    all.push_back(measurement_of(fields, place));
  }
  if (all.empty()) bad_measurement(fmt::format("{} holds no measurements", source));
  return all;
}

}  // namespace trireme
