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
ContextMode context_mode_of(const std::string& text) {
  const auto at = std::ranges::find(context_modes, text);
  check(at != context_modes.end(), "context", "{}", [&] {
    return unknown_name(text, {context_modes.begin(), context_modes.end()});
  });
  return static_cast<ContextMode>(at - context_modes.begin());
}

Strategy context(ContextMode mode, const std::string& axis) {
  Strategy s(
      "context", Claim::exact, [axis](Plan plan) { return reduce_over(std::move(plan), {.axis = axis}); },
      fmt::format("mode={}, axis={}", to_string(mode), axis), StrategyOrder::images);
  s.split.context = axis;
  s.split.context_mode = mode;
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
