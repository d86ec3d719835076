#include "parallel/strategies/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "framework/io/suggest.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {
namespace {

constexpr std::array scopes = {"local", "group", "global"};

std::string trim(const std::string& text) {
  auto begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

/// What lies in double quotes is not cut.
std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  std::size_t begin = 0;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    if (quoted || text[at] != separator) continue;
    pieces.push_back(trim(text.substr(begin, at - begin)));
    begin = at + 1;
  }
  check(!quoted, "strategy", "'{}' opens a quotation and does not close it", text);
  pieces.push_back(trim(text.substr(begin)));
  return pieces;
}
std::string without_quotes(const std::string& text) {
  const bool quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

DataParallelOptions take_data_parallel(StrategyOptions& knobs) {
  DataParallelOptions o;
  knobs.take("axis", o.axis);
  knobs.take("first_bucket", o.first_bucket);
  knobs.take("bucket", o.bucket);
  knobs.take("overlap", o.overlap);
  knobs.take("norm_scope", o.norm_scope);
  knobs.take("norm_group", o.norm_group);
  return o;
}

/// A new strategy adds its row here.
const std::vector<StrategyRow> table = {
    {"serial", [](StrategyOptions&) { return Strategy(); }},
    {"accumulate",
     [](StrategyOptions& knobs) {
       int micro = 4;
       knobs.take("micro", micro);
       return accumulate(micro);
     }},
    {"pipeline",
     [](StrategyOptions& knobs) {
       PipelineOptions o;
       knobs.take("micro", o.micro);
       knobs.take("schedule", o.schedule);
       if (o.schedule == "interleaved") o.chunks = 2;
       knobs.take("chunks", o.chunks);
       knobs.take("partition", o.partition);
       knobs.take("axis", o.axis);
       knobs.take("memory", o.memory);
       knobs.take("bandwidth", o.bandwidth);
       return pipeline(o);
     },
     "pipe"},
    {"data_parallel", [](StrategyOptions& knobs) { return data_parallel(take_data_parallel(knobs)); }, "data"},
    {"spatial",
     [](StrategyOptions& knobs) {
       std::string axes = "h+w+d";
       knobs.take("axes", axes);
       return spatial(split_at(axes, '+'));
     },
     "h"},
    {"tensor",
     [](StrategyOptions& knobs) {
       std::string axis = "tensor";
       knobs.take("axis", axis);
       Strategy s = tensor(axis);
       std::pair<const char*, std::vector<std::string>*> lists[] = {
           {"columns", &s.split.columns}, {"rows", &s.split.rows}, {"whole", &s.split.whole}};
       for (auto& [name, layers] : lists) {
         std::string joined;
         knobs.take(name, joined);
         if (!joined.empty()) *layers = split_at(joined, '+');
       }
       return s;
     },
     "tensor"},
    {"one_weird", [](StrategyOptions& knobs) { return one_weird(take_data_parallel(knobs)); }, "data"},
    {"zero",
     [](StrategyOptions& knobs) {
       int stage = 1;
       knobs.positional("stage");
       knobs.take("stage", stage);
       return zero(stage);
     },
     "data"},
    {"central_storage", [](StrategyOptions&) { return central_storage(); }, "data"},
};

/// "name" or "name(knob=value, ...)".
Strategy parse_one(const std::string& text) {
  std::map<std::string, std::string> values;
  std::string name = text;
  if (auto open = text.find('('); open != std::string::npos) {
    check(text.back() == ')', "strategy", "'{}' opens a bracket and does not close it", text);
    name = trim(text.substr(0, open));
    std::string inside = trim(text.substr(open + 1, text.size() - open - 2));
    for (auto& item : inside.empty() ? std::vector<std::string>{} : split_at(inside, ',')) {
      const auto equals = item.find('=');
      const bool named = equals != std::string::npos;
      const std::string value = named ? item.substr(equals + 1) : item;
      bool added = values.emplace(named ? trim(item.substr(0, equals)) : "", without_quotes(trim(value))).second;
      check(added, "strategy", "'{}' gives a knob twice", text);
    }
  }
  for (auto& row : table) {
    if (row.name != name) continue;
    StrategyOptions knobs(name, std::move(values));
    Strategy strategy = row.parse(knobs);
    knobs.finish();
    return strategy;
  }
  std::vector<std::string> names;
  for (auto& row : table) names.push_back(row.name);
  std::string near = suggestion(name, names);
  fail("strategy", "there is no '{}'{}; there are: {}", name,
       near.empty() ? "" : fmt::format(", did you mean '{}'?", near), fmt::join(names, ", "));
}

}  // namespace

std::string batch_axis(const Plan& plan, const SplitOptions& split) {
  std::string batch;
  for (const std::string& name : names_in(plan.reduced_axis()))
    if (std::find(split.image.begin(), split.image.end(), name) == split.image.end())
      batch += (batch.empty() ? "" : "+") + name;
  return batch;
}

Plan Strategy::operator()(Plan plan) const {
  for (auto& step : steps_) {
    plan = step.rewrite(std::move(plan));
    plan.strategies.push_back(step.name);
  }
  if (scope() != NormScope::global) average_buffers(plan, batch_axis(plan, split));
  return plan;
}

Claim Strategy::claim(bool batch_norms) const {
  Claim weakest = batch_norms && scope() != NormScope::global ? Claim::statistical : Claim::exact;
  for (auto& step : steps_) weakest = std::max(weakest, step.claim);
  return weakest;
}

std::string Strategy::name() const {
  std::string text;
  for (auto& step : steps_) text += (text.empty() ? "" : " | ") + step.name;
  return text.empty() ? "serial" : text;
}

std::string Strategy::text() const {
  std::string text;
  for (auto& step : steps_)
    text += (text.empty() ? "" : " | ") + step.name + (step.options.empty() ? "" : "(" + step.options + ")");
  return text.empty() ? "serial" : text;
}

std::string Strategy::batch_norm(int ranks, int micros) const {
  const std::string one = micros > 1 ? "each micro-batch" : "";
  if (ranks == 1) return one.empty() ? "global" : one;
  if (scope() == NormScope::global) return one.empty() ? "global" : one + " over all ranks";
  const std::string whose = scope() == NormScope::local || norm_group == 1
                                ? "local: each rank's rows"
                                : fmt::format("group: the rows of every {} ranks", norm_group);
  return whose + (one.empty() ? "" : " of " + one);
}

std::string to_string(NormScope scope) { return scopes[static_cast<std::size_t>(scope)]; }
std::string to_string(const DataParallelOptions& o) {
  return fmt::format("axis={}, first_bucket={}, bucket={}, overlap={}, norm_scope={}, norm_group={}", o.axis,
                     o.first_bucket, o.bucket, o.overlap, to_string(o.norm_scope.value_or(NormScope::global)),
                     o.norm_group);
}

Strategy operator|(Strategy a, const Strategy& b) {
  a.steps_.insert(a.steps_.end(), b.steps_.begin(), b.steps_.end());
  a.wants_costs = a.wants_costs || b.wants_costs;
  a.split.add(b.split);
  if (b.norm_scope) a.norm_scope = b.norm_scope, a.norm_group = b.norm_group;
  return a;
}

const std::string* StrategyOptions::find(const std::string& name) {
  known_.push_back(name);
  auto at = values_.find(name), unnamed = name == positional_ ? values_.find("") : values_.end();
  check(at == values_.end() || unnamed == values_.end(), strategy_, "gives {} twice", name);
  if (at == values_.end()) at = unnamed;
  return at == values_.end() ? nullptr : &at->second;
}

void StrategyOptions::take(const std::string& name, Index& value) {
  const std::string* text = find(name);
  if (!text) return;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  check(error == std::errc{} && end == text->data() + text->size() && value > 0, strategy_,
        "{}={}: wants a whole number above 0", name, *text);
}

void StrategyOptions::take(const std::string& name, int& value) {
  Index wide = value;
  take(name, wide);
  check(wide <= 1 << 30, strategy_, "{}={} is too large", name, wide);
  value = static_cast<int>(wide);
}

void StrategyOptions::take(const std::string& name, double& value) {
  const std::string* text = find(name);
  if (!text) return;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  check(error == std::errc{} && end == text->data() + text->size() && value > 0, strategy_,
        "{}={}: wants a number above 0", name, *text);
}

void StrategyOptions::take(const std::string& name, bool& value) {
  const std::string* text = find(name);
  if (!text) return;
  check(*text == "true" || *text == "false", strategy_, "{}={}: wants true or false", name, *text);
  value = *text == "true";
}

void StrategyOptions::take(const std::string& name, std::string& value) {
  if (const std::string* text = find(name)) value = *text;
}

void StrategyOptions::take(const std::string& name, std::optional<NormScope>& value) {
  const std::string* text = find(name);
  if (!text) return;
  auto at = std::find(scopes.begin(), scopes.end(), *text);
  check(at != scopes.end(), strategy_, "{}={}: wants one of {}", name, *text, fmt::join(scopes, ", "));
  value = static_cast<NormScope>(at - scopes.begin());
}

void StrategyOptions::finish() const {
  for (auto& [name, value] : values_) {
    if (name.empty() && !positional_.empty()) continue;
    check(!name.empty(), strategy_, "'{}' is not of the form knob=value", value);
    check(std::find(known_.begin(), known_.end(), name) != known_.end(), strategy_, "has no knob '{}'; it has: {}",
          name, [&] { return known_.empty() ? "none" : fmt::format("{}", fmt::join(known_, ", ")); });
  }
}

Strategy StrategyRow::make() const {
  StrategyOptions none(name, {});
  return parse(none);
}

const std::vector<StrategyRow>& strategies() { return table; }

Strategy parse_strategy(const std::string& text) {
  Strategy whole;
  for (auto& piece : split_at(text, '|')) {
    check(!piece.empty(), "strategy", "'{}' has an empty place; write for example \"data_parallel\"", text);
    whole = std::move(whole) | parse_one(piece);
  }
  return whole;
}

}  // namespace trireme
