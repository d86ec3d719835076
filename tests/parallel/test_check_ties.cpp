// check() of plans in which weights have copies in several stages: every fault that is put into them is found.
#include "parallel/plan/action_kind.h"
#include "parallel/plan/ties.h"
#include "parallel/strategies/agreements.h"
#include "tests/parallel/plans.h"

namespace test_check_ties {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Parts of 64, 100, 0, 80 and 30 weights; the last uses [16, 48) of the first, and [70, 90) of the second as the third
/// does.
Plan tied_chain(std::vector<Axis> axes) {
  std::vector<PartInfo> parts = {
      {"0", {0, 64}}, {"1", {64, 164}}, {"2", {164, 164}}, {"3", {164, 244}}, {"4", {244, 274}}};
  const Slice wte{16, 48}, same{70, 90};
  parts[4].tied = {wte, same};
  parts[2].tied = {same};
  return serial(std::move(parts), 274, 0, std::move(axes));
}

struct Case {
  std::string text;
  Plan plan;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (int stages : {2, 3, 5})
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
      for (const char* after :
           {"", "data_parallel", "data_parallel(overlap=false)", "zero(1)", "zero(2)", "zero(3)", "central_storage",
            "local_sgd(every=2)", "local_sgd(every=2, outer_momentum=0.5)", "local_sgd(every=2, from_epoch=1)",
            "data_parallel | compress(codec=topk)", "easgd(every=2)", "gossip(graph=ring)"}) {
        Plan plan = tied_chain({{"pipe", stages}, {"data", after[0] == '\0' ? 1 : 2}});
        plan.epoch_steps = 3;
        Strategy strategy = pipeline({.micro = 2, .schedule = schedule, .partition = "even"});
        if (after[0] != '\0') strategy = strategy | parse_strategy(after);
        plan = strategy(std::move(plan));
        const bool apart = plan.consistency.contains("data");
        plan = with_agreements(std::move(plan), {.checks = {.every = 1}, .norm = !apart, .ratios = apart ? 0 : 3});
        all.push_back({fmt::format("{} {} {}", schedule, stages, after), std::move(plan)});
      }
  return all;
}
int data_ranks(const Plan& plan) { return plan.size("data"); }

/// The list without an action.
void erase(Program& program, ActionId at) {
  program.actions.erase(program.actions.begin() + at);
  for (Action& a : program.actions) {
    std::erase(a.after, at);
    for (ActionId& id : a.after) id -= id > at;
  }
}

}  // namespace

TEST_CASE("plans with copies of weights are sound, and say who sums what") {
  for (const auto& [text, plan] : cases()) {
    INFO(text << "\n" << plan.to_string());
    CHECK(faults(plan, data_ranks(plan)) == "");
    const auto ties = ties_of(plan);
    REQUIRE(!ties.empty());
    CHECK(ties[0].slice == Slice{16, 48});
    CHECK(ties[0].owner == 0);
    for (const Tie& tie : ties)
      for (const int r : tie.programs) {
        const Program& program = plan.programs[static_cast<std::size_t>(r)];
        const auto sums = tied_sums(program, tie.slice);
        REQUIRE(sums.size() == 1);
        const Action& sum = program.actions[static_cast<std::size_t>(sums[0])];
        CHECK(sum.peer.members == tie.programs);
        CHECK(to_string(sum).find("all_reduce gradients [") == 0);
        for (ActionId id = sums[0]; id < std::ssize(program.actions); ++id) {  // programs are the last that are summed
          const Action& later = program.actions[static_cast<std::size_t>(id)];
          CHECK_FALSE((is_reduction(later) && later.slice.overlaps(tie.slice)));
        }
      }
    CHECK(plan.to_string().find("tied to [16, 48)") != std::string::npos);
  }
}

TEST_CASE("hashes tell plans with other ties apart") {
  Plan a = pipeline({.micro = 2, .partition = "even"})(tied_chain({{"pipe", 3}})), b = a, c = a;
  b.parts[4].tied.pop_back();
  for (Action& action : c.programs[0].actions)
    if (is_tied_sum(action)) action.peer.members.pop_back();
  CHECK(a.hash() != b.hash());
  CHECK(a.hash() != c.hash());
}

TEST_CASE("a sum that is left out, comes twice, too early, too late, or with others is found") {
  for (const auto& [text, plan] : cases()) {
    INFO(text);
    for (const Tie& tie : ties_of(plan))
      for (const int r : tie.programs) {
        const auto broken = [&](const std::function<void(Program&, ActionId)>& change) {
          Plan other = plan;
          Program& program = other.programs[static_cast<std::size_t>(r)];
          change(program, tied_sums(program, tie.slice).at(0));
          return faults(other, data_ranks(plan));
        };
        CHECK_THAT(broken([](Program& p, ActionId sum) { erase(p, sum); }), contains("does not sum them over these"));
        CHECK_THAT(broken([](Program& p, ActionId sum) { insert(p, sum, p.actions[static_cast<std::size_t>(sum)]); }),
                   contains("sums 2 times"));
        CHECK_THAT(broken([](Program& p, ActionId sum) {
                     Action early = p.actions[static_cast<std::size_t>(sum)];
                     erase(p, sum);
                     early.after.clear();
                     insert(p, 0, early);
                   }),
                   contains("before the backward that completes them"));
        CHECK_THAT(broken([](Program& p, ActionId sum) {
                     for (Action& a : p.actions) std::erase(a.after, sum);
                   }),
                   contains("before they are summed over programs"));
        CHECK_THAT(broken([](Program& p, ActionId sum) {
                     Action late = p.actions[static_cast<std::size_t>(sum)];
                     erase(p, sum);
                     p.actions.push_back(late);
                   }),
                   contains("before they are summed over programs") || contains("never reduced"));
        CHECK_THAT(
            broken([](Program& p, ActionId sum) { p.actions[static_cast<std::size_t>(sum)].peer.members.pop_back(); }),
            contains("does not sum all of them over all programs"));
        CHECK_THAT(broken([](Program& p, ActionId sum) { --p.actions[static_cast<std::size_t>(sum)].slice.end; }),
                   contains("does not sum all of them"));
      }
  }
}

TEST_CASE("a sum over data ranks behind the sum over programs is found") {
  for (const auto& [text, plan] : cases()) {
    INFO(text);
    const Tie tie = ties_of(plan).at(0);
    Plan other = plan;
    for (const int r : tie.programs) {
      Program& program = other.programs[static_cast<std::size_t>(r)];
      const ActionId sum = tied_sums(program, tie.slice).at(0);
      for (ActionId id = 0; id < sum; ++id) {
        Action& a = program.actions[static_cast<std::size_t>(id)];
        if (!is_reduction(a) || a.slice != tie.slice) continue;
        std::swap(a.after, program.actions[static_cast<std::size_t>(sum)].after);
        a.after = {id};
        std::swap(a, program.actions[static_cast<std::size_t>(sum)]);
      }
    }
    if (other.hash() != plan.hash())
      CHECK_THAT(faults(other, data_ranks(plan)), contains("after they are summed over programs"));
  }
}

TEST_CASE("copies that programs would change in other ways are found") {
  for (const auto& [text, plan] : cases()) {
    INFO(text);
    const Tie tie = ties_of(plan).at(0);
    const auto at = static_cast<std::size_t>(tie.programs.back());
    // An update that is missing, or in two pieces; a reduction in two pieces.
    for (const auto& kind : {ActionKind::update, ActionKind::all_reduce, ActionKind::reduce_scatter})
      for (const bool halves : {false, true}) {
        Plan other = plan;
        Program& program = other.programs[at];
        const auto action = std::ranges::find_if(
            program.actions, [&](const Action& a) { return a.kind == kind && a.slice == tie.slice; });
        if (action == program.actions.end()) continue;
        const auto id = static_cast<ActionId>(action - program.actions.begin());
        if (halves) {
          Action half = *action;
          action->slice.end = half.slice.begin = half.slice.begin + 8;
          insert(program, id + 1, half);
          for (Action& a : program.actions)
            if (std::ranges::find(a.after, id) != a.after.end()) a.after.push_back(id + 1);
        } else {
          erase(program, id);
        }
        CHECK(faults(other, data_ranks(plan)) != "");
      }
  }
}

TEST_CASE("a plan by hand that knows nothing of ties is refused") {
  Plan plan = two_stages();
  CHECK(faults(plan, 1) == "");
  plan.parts[1].tied = {{0, 8}};
  check_finds(plan, "weights [0, 8) that parts '0', '1' share get gradients in programs 0, 1", 1);
  check_finds(plan, "use pipeline()", 1);
  plan = with_agreements(pipeline({.micro = 2})(serial({{"0", {0, 16}}, {"1", {16, 32}}}, 32, 0, {{"pipe", 2}})), {});
  Action sum{
      .kind = ActionKind::all_reduce, .stream = Stream::comm, .slice = {0, 8}, .payload = OperandKind::gradients};
  sum.peer = {.axis = "pipe", .members = {0, 1}};
  plan.programs[0].actions.push_back(sum);
  check_finds(plan, "sums gradients over programs, but no other program has a copy", 1);
  plan = chain();
  plan.parts[3].tied = {{0, 8}};  // one program
  CHECK(faults(plan, 1) == "");
}

}  // namespace test_check_ties
