// The table of strategies and of their pairs, as it follows from strategies() and schedules(): a new row there is in
// it.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/world/mesh.h"
#include "parallel/strategies/schedules.h"
#include "parallel/strategies/strategy.h"

namespace trireme::test {

/// A strategy as text, the mesh axis that its ranks lie on ("": one rank), and its micro-batches.
struct StrategyText {
  std::string text, axis;
  int microbatches = 1;
};

/// A strategy with the options under which it trains the serial run's model.
inline std::string exact_text(const StrategyRow& row) {
  return row.name == "compress" ? "compress(codec=topk, ratio=1, residual=false)" : row.name;
}

/// Every strategy, with the options that make it another one.
inline std::vector<StrategyText> strategy_texts() {
  std::vector<StrategyText> all;
  for (auto& row : strategies()) {
    if (row.name == "accumulate") {
      all.push_back({"accumulate(micro=2)", "", 2});
    } else if (row.name == "spatial") {
      for (const char* axis : {"h", "w"}) all.push_back({"spatial(axes=" + std::string(axis) + ")", axis});
    } else if (row.name == "context" || row.name == "experts") {
      // They need texts: tests/parallel/matrix/test_transformers.cpp
    } else if (row.name == "compress") {
      all.push_back({exact_text(row), row.axis});
    } else if (row.name == "zero") {
      for (int stage : {1, 2, 3}) all.push_back({"zero(" + std::to_string(stage) + ")", row.axis});
    } else if (row.name == "pipeline") {
      for (auto& s : schedules())
        all.push_back({"pipeline(micro=2, partition=even, schedule=" + s.name + ")", row.axis, 2});
    } else if (parse_strategy(row.name).claim() == Claim::exact) {  // others have tests of their own
      all.push_back({row.name, row.axis});
    }
  }
  return all;
}

/// Every pair of strategies once: | sorts, so "b | a" is "a | b".
inline std::vector<std::pair<StrategyText, StrategyText>> strategy_pairs() {
  const std::vector<StrategyText> rows = strategy_texts();
  std::vector<std::pair<StrategyText, StrategyText>> all;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = i; j < rows.size(); ++j) all.emplace_back(rows[i], rows[j]);
  return all;
}

/// A strategy on a mesh.
struct Arrangement {
  std::vector<Axis> mesh;
  std::string strategy;
  int microbatches = 1;
  int ranks() const { return ranks_of(mesh); }
  std::string text() const {
    std::string axes;
    for (auto& a : mesh) axes += (axes.empty() ? "" : ",") + a.name + "=" + std::to_string(a.size);
    return "--mesh " + axes + " --strategy '" + strategy + "'";
  }
};

/// "a | b" on meshes of so many ranks: with two axes, every way to share them out.
inline std::vector<Arrangement> arrangements(const StrategyText& a, const StrategyText& b, int ranks) {
  const std::string strategy = a.text + " | " + b.text;
  const int microbatches = std::max(a.microbatches, b.microbatches);
  const std::string first = a.axis.empty() ? b.axis : a.axis, second = b.axis == first ? "" : b.axis;
  if (first.empty()) {
    if (ranks > 1) return {};
    return {{{{"data", 1}}, strategy, microbatches}};
  }
  if (second.empty()) return {{{{first, ranks}}, strategy, microbatches}};
  std::vector<Arrangement> all;
  for (int n = 1; n <= ranks; ++n)
    if (ranks % n == 0) all.push_back({{{first, n}, {second, ranks / n}}, strategy, microbatches});
  return all;
}
/// On two ranks along each of its axes.
inline Arrangement smallest(const StrategyText& a, const StrategyText& b) {
  Arrangement both = arrangements(a, b, 1).front();
  for (auto& axis : both.mesh)
    if (!a.axis.empty() || !b.axis.empty()) axis.size = 2;
  return both;
}

/// The op that refuses a pair, as its error names it: a strategy, or what puts strategies together; "" for another
/// error, such as a kernel's.
inline std::string known_refusal(const std::string& what) {
  std::size_t begin = 0, end = what.find(": ");
  for (; end != what.npos && what.substr(begin, 5) == "rank "; end = what.find(": ", begin)) begin = end + 2;
  const std::string op = what.substr(begin, end == what.npos ? 0 : end - begin);
  const auto tells = [&](const char* value) { return what.find(value) != what.npos; };
  if (op == "step") return tells("strategy '") || tells("one_weird_trick") ? op : "";
  if (op == "plan") return tells("clip_norm") ? op : "";
  const bool combines = op == "strategy" || op == "codec" || op == "split";
  return combines || std::ranges::find(strategies(), op, &StrategyRow::name) != strategies().end() ? op : "";
}

}  // namespace trireme::test
