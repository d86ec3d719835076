// Plans of ZeRO: shards, the order of gathers and drops, and what check() says of plans that are wrong.
#include <numeric>

#include "parallel/plan/action_kind.h"
#include "parallel/plan/operands.h"
#include "parallel/plan/shards.h"
#include "parallel/strategies/rebuild.h"
#include "tests/parallel/training.h"

namespace test_zero_plans {

using namespace trireme;
using namespace trireme::test;

TEST_CASE("shards cover a slice once, whatever its length") {
  for (int ranks : {1, 2, 3, 8})
    for (Index length : {0, 1, 2, 7, 8, 100, 1001}) {
      Index at = 5;
      for (int r = 0; r < ranks; ++r) {
        const Slice s = shard_of({5, 5 + length}, r, ranks);
        CHECK(s.begin == at);
        CHECK(s.size() >= length / ranks);
        at = s.end;
      }
      CHECK(at == 5 + length);
    }
}

TEST_CASE("zero gathers weights ahead, and not again if the next pass needs them") {
  std::vector<PartInfo> parts;
  for (int p = 0; p < 4; ++p) parts.push_back({.name = std::to_string(p), .slice = {100 * p, 100 * p + 100}});
  const Plan start = serial(parts, 400, 0, {{"data", 2}});
  // Passes by their part (F, B), gathers (g) and drops (d) by their first hundred.
  const auto order_of = [&](const Strategy& strategy) {
    const Plan plan = strategy(start);
    REQUIRE(check(plan, 2).empty());
    std::string text;
    for (const Action& a : plan.programs[0].actions) {
      if (a.kind == ActionKind::forward || a.kind == ActionKind::backward)
        text += (a.kind == ActionKind::forward ? " F" : " B") + std::to_string(a.part);
      if (a.payload == OperandKind::weights)
        text += (a.kind == ActionKind::all_gather ? " g" : " d") + std::to_string(a.slice.begin / 100);
    }
    return text.substr(1);
  };
  const auto order = [&](const ZeroOptions& o, int micro = 1) {
    return order_of((micro > 1 ? accumulate(micro) : Strategy()) | zero(3, o));
  };
  for (const int stage : {1, 2}) {
    CHECK(order_of(data_parallel({.first_bucket = 100, .bucket = 100}) | zero(stage)) ==
          "g0 g1 F0 g2 F1 g3 F2 F3 B3 B2 B1 B0");
    CHECK(order_of(data_parallel({.first_bucket = 100, .bucket = 300}) | zero(stage)) ==
          "g0 g3 F0 F1 F2 F3 B3 B2 B1 B0");
    CHECK(order_of(accumulate(2) | data_parallel() | zero(stage)) ==
          "g0 F0 F1 F2 F3 B3 B2 B1 B0 F0 F1 F2 F3 B3 B2 B1 B0");
  }
  CHECK(order({.prefetch = 0}) == "g0 F0 d0 g1 F1 d1 g2 F2 d2 g3 F3 B3 d3 g2 B2 d2 g1 B1 d1 g0 B0 d0");
  CHECK(order({}) == "g0 g1 F0 d0 g2 F1 d1 g3 F2 d2 F3 g2 B3 d3 g1 B2 d2 g0 B1 d1 B0 d0");
  CHECK(order({.prefetch = 2}) == "g0 g1 g2 F0 d0 g3 F1 d1 F2 d2 g2 F3 g1 B3 d3 g0 B2 d2 B1 d1 B0 d0");
  CHECK(order({.reshard = false}) == "g0 g1 F0 g2 F1 g3 F2 F3 B3 d3 B2 d2 B1 d1 B0 d0");
  // From one micro-batch to the next the first part stays.
  const std::string twice = order({}, 2);
  CHECK(std::ranges::count(twice, 'g') == 13);
  CHECK(std::ranges::count(order({.reshard = false}, 2), 'g') == 4);
}

TEST_CASE("a plan with replicas sums each gradient over all ranks, and sends what it should") {
  std::vector<PartInfo> parts;
  for (int p = 0; p < 2; ++p) parts.push_back({.name = std::to_string(p), .slice = {101 * p, 101 * p + 101}});
  const Plan start = serial(parts, 202, 0, {{"data", 3}, {"shard", 4}});
  Plan plan = (data_parallel() | zero(3, {.axis = "shard"}))(start);
  CHECK(plan.reduced_axis() == "data+shard");
  REQUIRE(check(plan, 12).empty());
  std::map<std::string, Index> bytes;
  for (const Action& a : plan.programs[0].actions)
    for (const PlannedCall& call : calls_of(plan, a, plan.size(a.peer.axis), 8)) bytes[a.peer.axis] += call.bytes;
  // Three gathers and two reductions to shards of 101 numbers; two sums of 25 numbers and a rest of one.
  CHECK(bytes == std::map<std::string, Index>{{"data", 2 * 26 * 8}, {"shard", 5 * 101 * 8}});
  plan = (data_parallel() | zero(1, {.axis = "shard"}))(start);
  std::vector<Action>& actions = plan.programs[0].actions;
  const auto sum = std::ranges::find_if(actions, is_replica_sum);
  REQUIRE(sum != actions.end());
  REQUIRE(check(plan, 12).empty());
  const std::vector<Action> kept = actions;
  sum->after.clear();
  CHECK_THAT(check(plan, 12).front(), contains("is summed over replicas by action"));
  actions = kept;
  for (Action& a : actions) std::erase(a.after, static_cast<ActionId>(sum - actions.begin()));
  CHECK_THAT(check(plan, 12).front(), contains("is used by the update"));
  actions = kept;
  sum->peer.axis = "spare";  // of one rank
  CHECK_THAT(check(plan, 12).front(), contains("is summed over 4 of the 12 ranks"));
}

TEST_CASE("actions after the updates of zero(1) need gathers after the updates") {
  std::vector<PartInfo> parts;
  for (int p = 0; p < 3; ++p) parts.push_back({.name = std::to_string(p), .slice = {100 * p, 100 * p + 100}});
  static const ActionRow reader{.name = "reader",
                                .access = [](const Plan&, const Program&, const Liveness&, const Action& a) {
                                  return std::vector{Operand{.kind = OperandKind::weights, .slice = a.slice}};
                                }};
  const Strategy zero_1 = data_parallel({.first_bucket = 100, .bucket = 100}) | zero(1);
  const Plan divided = zero_1(serial(parts, 300, 0, {{"data", 2}}));
  const auto faults = [](Plan plan, bool first) {
    Program& program = plan.programs[0];
    const auto end = static_cast<ActionId>(program.actions.size());
    std::vector<ActionId> all(static_cast<std::size_t>(end));
    std::iota(all.begin(), all.end(), 0);
    Action reads{.kind = reader, .slice = {0, 300}};
    if (!first) reads.after = all;
    insert(program, first ? 0 : end, reads);
    std::string text;
    for (const std::string& line : check(plan, 2)) text += line + "\n";
    return text;
  };
  CHECK(check(divided, 2).empty());
  CHECK_THAT(faults(divided, true), contains("uses old weights of other ranks"));
  CHECK_THAT(faults(divided, false), contains("call gather_after_updates()"));
  const Plan whole = gather_after_updates(divided);
  CHECK(check(whole, 2).empty());
  CHECK(faults(whole, true).empty());
  CHECK(faults(whole, false).empty());
  for (const Plan& plan : {divided, whole})
    CHECK(std::ranges::count(plan.programs[0].actions, ActionKind::all_gather, &Action::kind) == 3);
  const Plan dropping = zero(3)(serial(parts, 300, 0, {{"data", 2}}));
  for (const bool first : {true, false})
    CHECK_THAT(faults(dropping, first), contains("zero(3) keeps no whole weights"));
  // Gathers of a part start together, one part ahead; a part without weights waits for none.
  std::vector<PartInfo> wide = parts;
  wide[1].slice = {100, 400};
  wide[2].slice = {400, 500};
  wide.insert(wide.begin(), {.name = "flatten", .slice = {}});
  std::string order;
  const Plan early = zero_1(serial(wide, 500, 0, {{"data", 2}}));
  for (const Action& a : early.programs[0].actions) {
    if (a.kind == ActionKind::forward) order += " F" + std::to_string(a.part);
    if (a.kind == ActionKind::all_gather) order += " g" + std::to_string(a.slice.begin / 100);
  }
  CHECK(order == " g0 F0 g3 g1 F1 g4 F2 F3");
  // Other plans have whole weights between steps, or drop them.
  const auto text = [](const Plan& plan) { return plan.to_string(); };
  for (const Strategy& other : {zero(3), central_storage(), data_parallel()}) {
    const Plan plan = other(serial(parts, 300, 0, {{"data", 2}}));
    CHECK(text(gather_after_updates(plan)) == text(plan));
  }
}

TEST_CASE("zero as text, and what it refuses") {
  CHECK(parse_strategy("zero(3, axis=a+b, prefetch=2, reshard=false)").name() ==
        "zero(3, axis=a+b, prefetch=2, reshard=false)");
  CHECK_ERROR(zero(2, {.prefetch = 2}), usage, "prefetch", 3);
  CHECK_ERROR(zero(1, {.reshard = false}), usage, "reshard", 3);
  CHECK_ERROR(zero(3, {.prefetch = -1}), usage, "prefetch", -1);
  CHECK(parse_strategy("zero(2)").name() == "zero(2)");
  CHECK(parse_strategy("data_parallel | zero(stage=3)").name() == "data_parallel | zero(3)");
  CHECK(parse_strategy("zero").name() == "zero(1)");
  CHECK_ERROR(parse_strategy("zero(4)"), usage, 1, 2, 3);
  CHECK_ERROR(parse_strategy("zero(1, stage=2)"), usage, "zero", "stage");
  CHECK_ERROR(parse_strategy("data_parallel(4)"), usage, "data_parallel", 4);
  const Plan plan = serial({{.name = "0", .slice = {0, 100}}}, 100);
  CHECK_ERROR(zero(3, {.axis = "dta"})(serial({{.name = "0", .slice = {0, 100}}}, 100, 0, {{"data", 2}})), usage, "dta",
              "data=2");
  CHECK_ERROR((zero(1) | zero(1))(plan), usage, "zero");
  CHECK_ERROR((central_storage() | zero(1))(plan), usage, "zero", "central_storage");
  for (int stage : {1, 2, 3})
    for (int ranks : {1, 2, 100000}) CHECK(check(zero(stage)(plan), ranks).empty());
}

TEST_CASE("check finds what is wrong with shards") {
  const Plan serial_plan = serial({{.name = "0", .slice = {0, 100}}, {.name = "1", .slice = {100, 200}}}, 200);
  auto spoilt = [&](int stage, auto&& spoil) {
    const Strategy buckets = data_parallel({.first_bucket = 100, .bucket = 100});
    Plan plan = (buckets | (stage > 0 ? zero(stage) : central_storage()))(serial_plan);
    REQUIRE(check(plan, 2).empty());
    spoil(plan.programs[0].actions);
    std::string text;
    for (auto& line : check(plan, 2)) text += line + "\n";
    return text;
  };
  auto first = [](std::vector<Action>& actions, ActionKind kind) -> Action& {
    return *std::find_if(actions.begin(), actions.end(), [&](const Action& a) { return a.kind == kind; });
  };
  using Actions = std::vector<Action>;
  CHECK_THAT(spoilt(1, [&](Actions& a) { first(a, ActionKind::all_gather).slice.end -= 1; }),
             contains("no all_gather after it brings the shards"));
  CHECK_THAT(spoilt(1, [&](Actions& a) { first(a, ActionKind::forward).after.clear(); }),
             contains("does not wait for"));
  CHECK_THAT(spoilt(1, [&](Actions& a) { first(a, ActionKind::update).peer.axis.clear(); }),
             contains("updates a whole slice that is reduced to shards: name their axis, data"));
  CHECK_THAT(spoilt(1, [&](Actions& a) { first(a, ActionKind::reduce_scatter).kind = ActionKind::all_reduce; }),
             contains("no reduce_scatter makes them: add a reduce_scatter"));
  CHECK_THAT(spoilt(2, [&](Actions& a) { first(a, ActionKind::drop).after.clear(); }),
             contains("drops gradients before they are reduced"));
  CHECK_THAT(spoilt(3, [&](Actions& a) { first(a, ActionKind::all_gather).kind = ActionKind::drop; }),
             contains("uses weights that action 0 dropped"));
  CHECK_THAT(spoilt(3, [&](Actions& a) { first(a, ActionKind::forward).after.clear(); }),
             contains("does not wait for"));
  // Central storage.
  CHECK_THAT(spoilt(0, [&](Actions& a) { first(a, ActionKind::broadcast).peer.root = 1; }),
             contains("no action brings the updated weights to the other ranks"));
  CHECK_THAT(spoilt(0, [&](Actions& a) { first(a, ActionKind::broadcast).after.clear(); }),
             contains("no action brings the updated weights"));
  CHECK_THAT(spoilt(0, [&](Actions& a) { first(a, ActionKind::all_reduce).slice.begin += 1; }),
             contains("gradients are not summed: add an all_reduce"));
}

}  // namespace test_zero_plans
