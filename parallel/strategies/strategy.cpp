#include "parallel/strategies/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/core/suggest.h"
#include "parallel/plan/action_kind.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {
namespace {

constexpr std::array scopes = {"local", "group", "global"};

/// The steps in which ranks along an axis make their weights equal, if they train separately in between.
Trigger meetings_along(const Plan& plan, const std::string& axis) {
  const std::int64_t every = plan.consistency_along(axis).bound;
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions) {
      const Trigger& t = program.trigger(a);
      if (a.peer.axis == axis && a.kind->is_collective && t.every == every && t.until == Trigger::forever) return t;
    }
  return {.every = every, .offset = every - 1};
}

}  // namespace

std::string batch_axis(const Plan& plan, const SplitOptions& split) {
  std::string batch;
  if (const auto summed = names_in(plan.reduced_axis());  // lacks that axis if it divides all weights
      std::ranges::find(summed, split.one_weird_trick) == summed.end())
    batch = split.one_weird_trick;
  const std::vector<std::string> same_rows = split.sample_axes();
  for (const std::string& name : names_in(plan.reduced_axis()))
    if (!(split.sequence && name == split.tensor) && std::ranges::find(same_rows, name) == same_rows.end())
      batch += (batch.empty() ? "" : "+") + name;
  for (auto& [axis, promised] : plan.consistency) {  // ranks that train separately have separate rows
    if (axis == plan.stage_axis && plan.has_stages()) continue;
    const auto names = names_in(batch);
    if (std::ranges::find(names, axis) == names.end()) batch = axis + (batch.empty() ? "" : "+") + batch;
  }
  return batch;
}

Plan Strategy::operator()(Plan plan) const {
  for (auto& step : steps_) {
    plan = step.rewrite(std::move(plan));
    plan.strategies.push_back(step.name);
  }
  check(scope() == NormScope::local || !is_asynchronous(plan), "pipeline",
        "schedules pipedream and 2bw need norm_scope=local, because batch norm takes each rank's rows: leave "
        "norm_scope={} out",
        [&] { return to_string(scope()); });
  if (scope() == NormScope::global) return plan;
  const std::string batch = batch_axis(plan, split);
  average_buffers(plan, plan.synchronous_axes(batch));
  for (const std::string& axis : names_in(batch))
    if (plan.consistency_along(axis).kind == Consistency::Kind::periodic)
      average_buffers(plan, axis, meetings_along(plan, axis));
  return plan;
}

bool Strategy::acts_on_updates() const {
  return std::ranges::any_of(steps_, [](const Rewrite& step) { return step.order > StrategyOrder::rows; });
}

Claim Strategy::claim(bool batch_norms) const {
  Claim weakest = batch_norms && scope() != NormScope::global ? Claim::statistical : Claim::exact;
  for (auto& step : steps_) weakest = std::max(weakest, step.claim);
  return weakest;
}

std::string Strategy::in_words(bool with_options) const {
  std::string text;
  for (auto& step : steps_)
    text += (text.empty() ? "" : " | ") + step.name +
            (with_options && !step.options.empty() ? "(" + step.options + ")" : "");
  return text.empty() ? "serial" : text;
}

std::string Strategy::batch_norm(int ranks, int microbatches) const {
  const std::string one = microbatches > 1 ? "each micro-batch" : "";
  if (ranks == 1) return one.empty() ? "global" : one;
  if (scope() == NormScope::global) return one.empty() ? "global" : one + " over all ranks";
  const std::string whose = scope() == NormScope::local || norm_group == 1
                                ? "local: each rank's rows"
                                : fmt::format("group: the rows of every {} ranks", norm_group);
  return whose + (one.empty() ? "" : " of " + one);
}

std::string to_string(NormScope scope) { return scopes[static_cast<std::size_t>(scope)]; }
NormScope norm_scope_of(const std::string& text) {
  const auto at = std::ranges::find(scopes, text);
  check(at != scopes.end(), "norm_scope", "{}", [&] { return unknown_name(text, {scopes.begin(), scopes.end()}); });
  return static_cast<NormScope>(at - scopes.begin());
}
std::string to_string(const DataParallelOptions& o) {
  return fmt::format("axis={}, first_bucket={}, bucket={}, overlap={}, norm_scope={}, norm_group={}", o.axis,
                     o.first_bucket, o.bucket, o.overlap, to_string(o.norm_scope.value_or(NormScope::global)),
                     o.norm_group);
}

Strategy operator|(Strategy a, const Strategy& b) {
  for (const Strategy::Rewrite& step : b.steps_) {
    auto at = a.steps_.end();
    const auto precedes = [&](const Strategy::Rewrite& other) {
      return other.order != StrategyOrder::as_written && step.order < other.order;
    };
    while (at != a.steps_.begin() && precedes(at[-1])) --at;
    a.steps_.insert(at, step);
  }
  a.wants_costs = a.wants_costs || b.wants_costs;
  a.split.add(b.split);
  if (b.norm_scope &&
      (!a.norm_scope || std::pair(*a.norm_scope, a.norm_group) < std::pair(*b.norm_scope, b.norm_group))) {
    a.norm_scope = b.norm_scope;
    a.norm_group = b.norm_group;
  }
  return a;
}

}  // namespace trireme
