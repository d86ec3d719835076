#include "tools/backtest/scaling_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "framework/io/file.h"
#include "kernels/core/error.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

constexpr std::size_t largest_file = std::size_t{64} << 20;

/// Reads the records of a CSV file in order, each with the number of its first line.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}
  /// False at the end of the file. Skips empty lines.
  bool next(std::vector<std::string>& fields) {
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) line_after_ += text_[at_++] == '\n';
    if (at_ == text_.size()) return false;
    line_ = line_after_;
    fields.assign(1, "");
    for (bool quoted = false; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      line_after_ += c == '\n';
      if (c == '"' && quoted && at_ + 1 < text_.size() && text_[at_ + 1] == '"')
        fields.back() += text_[++at_];
      else if (c == '"')
        quoted = !quoted;
      else if (!quoted && c == ',')
        fields.emplace_back();
      else if (!quoted && c == '\n') {
        ++at_;
        return true;
      } else if (quoted || c != '\r')
        fields.back() += c;
      check(at_ + 1 < text_.size() || !quoted, ErrorKind::data, "simulate --backtest", "{}", [&] {
        return place() + ": the quotation that starts in this row has no end; add the closing quotation mark";
      });
    }
    return true;
  }
  std::string place() const { return fmt::format("{}:{}", name_, line_); }
  int line() const { return line_; }

 private:
  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  int line_ = 1, line_after_ = 1;
};

struct Columns {
  int family = -1, nodes = -1, accels = -1, lbs = -1, step = -1, submitter = -1, dup = -1;
};

Columns columns_of(const std::vector<std::string>& header, const std::string& place) {
  Columns c;
  const std::tuple<std::string_view, int*, bool> known[] = {
      {"family", &c.family, true}, {"nodes", &c.nodes, true},         {"accels", &c.accels, true},
      {"lbs", &c.lbs, true},       {"step_ms_median", &c.step, true}, {"submitter", &c.submitter, false},
      {"dup_of", &c.dup, false}};
  for (const auto& each : known) {
    const std::string_view name = std::get<0>(each);
    const auto found = std::ranges::find(header, name);
    check(found != header.end() || !std::get<2>(each), ErrorKind::data, "simulate --backtest", "{}",
          [&] { return fmt::format("{}: there is no column {}; {}", place, name, scaling_columns()); });
    check(std::ranges::count(header, name) < 2, ErrorKind::data, "simulate --backtest", "{}",
          [&] { return fmt::format("{}: column {} is there twice; remove one of them", place, name); });
    if (found != header.end()) *std::get<1>(each) = static_cast<int>(found - header.begin());
  }
  return c;
}

/// Printable and shortened, for a message.
std::string shown(std::string_view text) {
  std::string part(text.substr(0, 40));
  for (char& c : part)
    if (c < ' ' || c > '~') c = '?';
  return part + (text.size() > 40 ? "..." : "");
}

double number(const std::string& text, std::string_view column, bool whole, const CsvReader& at) {
  double value = 0;
  const bool good = parse_number(text, value) && std::isfinite(value) && value > 0 && value < 1e9 &&
                    (!whole || value == std::floor(value));
  check(good, ErrorKind::data, "simulate --backtest", "{}", [&] {
    return fmt::format("{}: {} is '{}', expected a {} above 0; {}", at.place(), column, shown(text),
                       whole ? "whole number" : "number", scaling_columns());
  });
  return value;
}

/// Decides whether the family counts nodes or accelerators, and sorts its rows. Returns false if all rows have one
/// size.
bool finish(ScalingFamily& family) {
  const auto& first = family.rows.front();
  family.counts_nodes = std::ranges::all_of(family.rows, [&](const ScalingRow& r) {
    return static_cast<long>(r.accelerators) * first.nodes == static_cast<long>(first.accelerators) * r.nodes;
  });
  std::set<int> sizes;
  for (ScalingRow& r : family.rows) sizes.insert(r.size = family.counts_nodes ? r.nodes : r.accelerators);
  if (sizes.size() < 2) return false;
  std::ranges::sort(family.rows, [](const ScalingRow& a, const ScalingRow& b) {
    return std::tuple(a.size, -a.samples, a.milliseconds) < std::tuple(b.size, -b.samples, b.milliseconds);
  });
  const int second = *std::next(sizes.begin());
  family.calibration =
      static_cast<int>(std::ranges::count_if(family.rows, [&](const ScalingRow& r) { return r.size <= second; }));
  return true;
}

}  // namespace

std::string_view scaling_columns() {
  return "columns: family, nodes, accels (of the whole system), lbs (samples per accelerator and step), "
         "step_ms_median; optional: submitter, dup_of (rows that have it are left out)";
}

ScalingTable parse_scaling_table(std::string_view text, const std::string& name) {
  CsvReader csv(text, name);
  std::vector<std::string> header, row;
  check(csv.next(header), ErrorKind::data, "simulate --backtest", "{}",
        [&] { return fmt::format("{} is empty, expected a table; {}", name, scaling_columns()); });
  const Columns column = columns_of(header, csv.place());
  ScalingTable table;
  std::map<std::string, std::size_t> known;
  std::vector<ScalingFamily> families;
  while (csv.next(row)) {
    check(row.size() == header.size(), ErrorKind::data, "simulate --backtest", "{}", [&] {
      return fmt::format("{}: {} fields, and the first line has {}", csv.place(), row.size(), header.size());
    });
    const std::string& family = row[column.family];
    if (family.empty() || row[column.step].empty() || (column.dup >= 0 && !row[column.dup].empty())) {
      ++table.left_out;
      continue;
    }
    ScalingRow r;
    r.nodes = static_cast<int>(number(row[column.nodes], "nodes", true, csv));
    r.accelerators = static_cast<int>(number(row[column.accels], "accels", true, csv));
    r.samples = number(row[column.lbs], "lbs", false, csv);
    r.milliseconds = number(row[column.step], "step_ms_median", false, csv);
    r.line = csv.line();
    const auto [at, is_new] = known.try_emplace(family, families.size());
    if (is_new) families.emplace_back().name = family;
    if (column.submitter >= 0) families[at->second].submitter = row[column.submitter];
    families[at->second].rows.push_back(r);
  }
  for (ScalingFamily& family : families)
    if (finish(family))
      table.families.push_back(std::move(family));
    else
      table.left_out += static_cast<int>(family.rows.size());
  check(!table.families.empty(), ErrorKind::data, "simulate --backtest", "{}",
        [&] { return fmt::format("{} has no family of two or more sizes; {}", name, scaling_columns()); });
  return table;
}

ScalingTable read_scaling_table(const std::string& path) {
  return parse_scaling_table(read_text(path, largest_file), path);
}

}  // namespace trireme
