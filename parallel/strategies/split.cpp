// Strategies that split layers. They rewrite the model (parallel/split/split.h). The plan keeps one program for all
// ranks and records the axes over which gradients are summed.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/core/suggest.h"

#include "parallel/strategies/rebuild.h"

namespace trireme {
namespace {
constexpr std::array context_modes = {"gather", "ulysses", "ring"};
constexpr std::array context_cuts = {"contiguous", "zigzag", "striped"};

/// Of a word. Throws Error for another.
template <class Words>
std::ptrdiff_t index_of(const Words& words, const std::string& text) {
  const auto at = std::ranges::find(words, text);
  check(at != words.end(), "context", "{}", [&] { return unknown_name(text, {words.begin(), words.end()}); });
  return at - words.begin();
}
}  // namespace

Strategy spatial(const std::vector<std::string>& axes) {
  const std::string joined = fmt::format("{}", fmt::join(axes, "+"));
  Strategy s(
      "spatial", Claim::exact, [joined](Plan plan) { return reduce_over(std::move(plan), {.axis = joined}); },
      "axes=" + joined, StrategyOrder::images);
  s.split.image = axes;
  return s;
}

std::string to_string(ContextMode mode) { return context_modes[static_cast<std::size_t>(mode)]; }
std::string to_string(ContextCut cut) { return context_cuts[static_cast<std::size_t>(cut)]; }
ContextMode context_mode_of(const std::string& text) { return static_cast<ContextMode>(index_of(context_modes, text)); }
ContextCut context_cut_of(const std::string& text) { return static_cast<ContextCut>(index_of(context_cuts, text)); }

Strategy context(ContextMode mode, const std::string& axis, ContextCut cut) {
  std::string options = fmt::format("mode={}, axis={}", to_string(mode), axis);
  if (cut != ContextCut::contiguous) options += ", cut=" + to_string(cut);
  Strategy s(
      "context", Claim::exact, [axis](Plan plan) { return reduce_over(std::move(plan), {.axis = axis}); },
      std::move(options), StrategyOrder::images);
  s.split.context = axis;
  s.split.context_mode = mode;
  s.split.context_cut = cut;
  return s;
}

Strategy tensor(const std::string& axis, bool sequence) {
  Strategy s(
      "tensor", Claim::exact,
      [axis, sequence](Plan plan) { return sequence ? reduce_over(std::move(plan), {.axis = axis}) : plan; },
      fmt::format("axis={}{}", axis, sequence ? ", sequence=true" : ""),
      sequence ? StrategyOrder::images : StrategyOrder::layers);  // sums come after the passes of stages
  s.split.tensor = axis;
  s.split.sequence = sequence;
  return s;
}

Strategy experts(const std::vector<std::string>& axes) {
  Strategy s(
      "experts", Claim::exact, [](Plan plan) { return plan; }, fmt::format("axes={}", fmt::join(axes, "+")),
      StrategyOrder::placements);
  s.split.experts = axes;
  return s;
}

Strategy place(const WeightPlacement& row) {
  Strategy s(
      "place", Claim::exact, [](Plan plan) { return plan; },
      fmt::format("weights={}, dim={}, whole={}, axis={}", fmt::join(row.weights, "+"), row.dim, row.whole, row.axis),
      StrategyOrder::placements);
  s.split.placements = {row};
  return s;
}

Strategy one_weird_trick(DataParallelOptions o) {
  Strategy s = reducing("one_weird_trick", o);
  s.split.one_weird_trick = o.axis;
  return s;
}

}  // namespace trireme
