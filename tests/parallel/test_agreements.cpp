// What a step's ranks agree on stands in the plan: of every strategy and pair, and faults planted in it are found.
#include "parallel/strategies/agreements.h"

#include "parallel/plan/check/diagnostics.h"
#include "parallel/strategies/on_call.h"
#include "parallel/strategies/rebuild.h"
#include "tests/parallel/pairs.h"
#include "tests/parallel/plans.h"
#include "tests/parallel/training.h"

namespace test_agreements {

using namespace trireme;
using namespace trireme::test;

namespace {

/// The plan of an arrangement for a model of four parts; none: the strategies do not go together.
std::optional<Plan> plan_of(const Arrangement& how) {
  try {
    Plan plan = chain(8);
    plan.parts[0].buffers = {0, 8};
    plan.axes = how.mesh;
    return parse_strategy(how.strategy)(std::move(plan));
  } catch (const Error&) { return {}; }
}

int count(const Program& program, const std::string& field) {
  return static_cast<int>(std::count_if(program.actions.begin(), program.actions.end(), [&](const Action& a) {
    return a.kind == ActionKind::agree && payload_of(a) == field;
  }));
}

}  // namespace

TEST_CASE("every strategy and pair agrees on loss, flag and norm before its updates, on counts before its losses") {
  int plans = 0;
  for (auto& [a, b] : strategy_pairs()) {
    const Arrangement how = smallest(a, b);
    const auto plain = plan_of(how);
    if (!plain) continue;
    const Strategy strategy = parse_strategy(how.strategy);
    const std::string batch = batch_axis(*plain, strategy.split);
    const int ranks = plain->size(plain->reduced_axis());
    INFO(how.text());
    const std::string before = faults(*plain, ranks);
    for (bool norm : {false, true})
      for (const auto& [every, tells] : std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 8}, {64, 8}}) {
        AgreementOptions o{
            .batch_axis = batch, .checks = {.every = every}, .norm = norm, .ratios = norm ? 5 : 0, .count = norm};
        if (tells > 0) {
          o.flags.names = {"stop", "save"};
          o.flags.every = tells;
        }
        const bool served = std::ranges::any_of(plain->programs, &Program::serves);
        if (served && norm) {
          CHECK_ERROR(with_agreements(*plain, o), usage, "plan", "clip_norm");
          continue;
        }
        const Plan plan = with_agreements(*plain, o);
        INFO(plan.to_string());
        CHECK(faults(plan, ranks) == before);
        ++plans;
        for (const Program& program : plan.programs) {
          const bool computes_loss = find(program, ActionKind::loss) >= 0, staged = plan.has_stages();
          CHECK(count(program, "count") == (norm && computes_loss));
          CHECK(count(program, "loss") == (computes_loss && plan.size(program, batch) > 1) + staged);
          const bool together = every > 0 && tells >= every;  // of servers' workers nobody is told
          CHECK(count(program, "finite") == (every > 0 && !together && !served));
          CHECK(count(program, "finite+stop+save") == (together && !served));
          CHECK(count(program, "stop+save") == (tells > 0 && !together && !served));
          const ActionId update = find(program, ActionKind::update);
          const bool shared = update >= 0 && plan.size(program.actions[update].peer.axis) > 1;
          CHECK(count(program, "norm") == (norm ? shared + staged : 0));
          CHECK(count(program, "ratios") == (norm ? std::max(1, shared + staged) : 0));
        }
      }
  }
  CHECK(plans > 600);
}

TEST_CASE("the first update waits for all gradients only if it wants their norm") {
  Plan start = chain();
  start.axes = {{"data", 2}};
  const Strategy buckets = data_parallel({.first_bucket = 10, .bucket = 200});
  Plan own = buckets(start);  // a strategy's updates of whole buckets, each after its sum
  Program& list = own.programs[0];
  list.actions.pop_back();
  for (int nth = 0; find(list, ActionKind::all_reduce, nth) >= 0; ++nth) {
    const ActionId sum = find(list, ActionKind::all_reduce, nth);
    list.actions.push_back({.kind = ActionKind::update, .slice = list.actions[sum].slice, .after = {sum}});
  }
  Plan read = buckets(start);  // the update is not the last action
  read.programs[0].actions.push_back(on_slice(ActionKind::broadcast, Stream::comm, {0, 450}, "data",
                                              {find(read.programs[0], ActionKind::update)}, OperandKind::weights));
  for (const Plan& plain : {own, read, buckets(start), (buckets | zero(1))(start), (buckets | zero(2))(start),
                            (buckets | zero(3))(start), (buckets | central_storage())(start)})
    for (const bool norm : {false, true}) {
      const Plan plan = with_agreements(plain, {.norm = norm, .ratios = norm ? 5 : 0});
      INFO(plan.to_string());
      CHECK(faults(plan) == "");
      const Program& program = plan.programs[0];
      const HappensBefore order(program);
      const ActionId update = find(program, ActionKind::update);
      int sums = 0, before = 0;
      for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
        sums += is_reduction(program.actions[id]);
        before += is_reduction(program.actions[id]) && order(id, update);
      }
      CHECK(sums > 2);
      CHECK((before == sums) == norm);
      CHECK(plan.updated(0) == plain.updated(0));
    }
}

TEST_CASE("check finds agreements that decide about nothing, or differ between stages") {
  const AgreementOptions all{.batch_axis = "data",
                             .checks = {.every = 64},
                             .flags = {.names = {"stop"}},
                             .norm = true,
                             .ratios = 5,
                             .count = true};
  Plan plan = chain();
  plan.axes = {{"pipe", 2}, {"data", 2}};
  plan = with_agreements((pipeline({.micro = 2, .partition = "even"}) | zero(1))(std::move(plan)), all);
  REQUIRE(faults(plan) == "");
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    for (int nth = 0; nth < std::ssize(plan.programs[r].actions); ++nth) {
      Plan bad = plan;
      Program& program = bad.programs[r];
      const ActionId id = find(program, ActionKind::agree, nth);
      if (id < 0) break;
      program.actions[id].names = {"mood"};
      check_finds(bad, "there is no number 'mood' to agree on");
      bad = plan;
      bad.programs[r].phases.push_back({"seldom", {.every = 7}});
      bad.programs[r].actions[id].phase = std::ssize(bad.programs[r].phases) - 1;
      const auto axes = names_in(bad.programs[r].actions[id].peer.axis);
      if (std::find(axes.begin(), axes.end(), "pipe") != axes.end()) check_finds(bad, "differs");
      bad.programs[r].phases.back().trigger.every = 0;
      check_finds(bad, "phase 'seldom' never runs, since its steps are not valid: every 0 steps");
      bad.programs[r].actions[id].phase = 9;
      check_finds(bad, "is of phase 9");
      bad = plan;
      bad.programs[r].actions[id].stream = Stream::comm;
      for (Action& a : bad.programs[r].actions) std::erase(a.after, id);
      check_finds(bad, "does not wait for");
    }
  }
}

TEST_CASE("phases on call stand beside the steps: they change nothing that is checked, and faults in them are found") {
  int plans = 0;
  for (auto& [a, b] : strategy_pairs()) {
    const Arrangement how = smallest(a, b);
    const auto plain = plan_of(how);
    if (!plain) continue;
    const Plan plan = with_phases_on_call(*plain, {});
    INFO(how.text());
    CHECK(faults(plan, plain->size(plain->reduced_axis())) == faults(*plain, plain->size(plain->reduced_axis())));
    CHECK(check(plan, 1) == check(*plain, 1));
    CHECK((plan.hash() == plain->hash()) == (how.ranks() == 1));
    if (how.ranks() == 1) continue;
    ++plans;
    for (std::size_t r = 0; r < plan.programs.size(); ++r) {
      CHECK(plan.programs[r].actions == plain->programs[r].actions);
      for (const ProgramPhase& phase : plan.programs[r].phases) {
        if (!phase.trigger.on_call) continue;
        CHECK(plan.summary().find("on call, " + phase.name + ":") != std::string::npos);
        for (const Action& action : phase.actions) CHECK(plan.to_string().find(to_string(action)) != std::string::npos);
      }
    }
  }
  CHECK(plans > 80);

  Plan plan = chain();
  plan.axes = {{"pipe", 2}, {"data", 2}};
  plan.parts[0].buffers = {0, 8};
  plan.buffers = 8;
  plan = with_phases_on_call((pipeline({.micro = 2, .partition = "even"}) | zero(3))(std::move(plan)), {});
  REQUIRE(faults(plan) == "");
  for (std::size_t r = 0; r < plan.programs.size(); ++r)
    for (std::size_t p = 0; p < plan.programs[r].phases.size(); ++p)
      for (std::size_t id = 0; id < plan.programs[r].phases[p].actions.size(); ++id) {
        const auto planted = [&](const std::function<void(Action&)>& plant, const std::string& found) {
          Plan bad = plan;
          plant(bad.programs[r].phases[p].actions[id]);
          check_finds(bad, found);
        };
        const Action& action = plan.programs[r].phases[p].actions[id];
        planted([&](Action& x) { x.after = {static_cast<ActionId>(id)}; },
                "waits for an action that does not come before it");
        planted([](Action& x) { x.peer.root = 7; }, "its root is rank 7, which the axis does not have");
        planted([](Action& x) { x.part = 99; }, "there are only 4 parts");
        if (action.payload == OperandKind::weights || action.payload == OperandKind::state ||
            action.payload == OperandKind::statistics)
          planted([](Action& x) { x.slice.end += 1000; }, "is outside of the block of");
        if (action.peer.axis.find("pipe") != action.peer.axis.npos)
          planted(
              [](Action& x) {
                x.payload = OperandKind::state;
                x.names = {"else"};
              },
              "whose ranks take part in the same collectives");
      }
}

TEST_CASE("flags have names of their own") {
  for (const char* name : {"", "count", "loss", "finite", "norm", "ratios", "a+b"})
    CHECK_ERROR(with_agreements(chain(), {.flags = {.names = {name}}}), usage, "plan");
  CHECK_ERROR(with_agreements(chain(), {.flags = {.names = {"stop"}, .every = 0}}), usage, "plan", 1);
}

TEST_CASE("gradients are clipped by the norm of all of them, whoever updates them when") {
  if (threads_only()) return;
  const Setup s{.model =
                    [] {
                      return Sequential{flatten, Linear(100, 12), relu, Linear(12, 12), relu, Linear(12, 12),
                                        relu,    Linear(12, 12),  relu, Linear(12, 5)};
                    },
                .samples = 100,
                .batch = 20,
                .steps = 6,
                .optimizer = {.clip_norm = 0.05}};
  const auto reference = serial_run(s, accumulate(4));
  for (const char* strategy :
       {"pipeline(micro=4, schedule=interleaved, chunks=2, partition=even) | data_parallel(bucket=64, first_bucket=16)",
        "pipeline(micro=4, partition=even) | data_parallel(bucket=64, first_bucket=16)",
        "pipeline(micro=4, schedule=interleaved, chunks=2, partition=even) | zero(2)",
        "pipeline(micro=4, schedule=interleaved, chunks=2, partition=even) | central_storage"}) {
    INFO(strategy);
    check_close(parallel_run(s, {{"pipe", 2}, {"data", 2}}, parse_strategy(strategy)), reference, 1e-11);
  }
}

}  // namespace test_agreements
