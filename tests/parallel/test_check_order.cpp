// The order of a program's actions and its races, next to those found by going through all paths and all pairs.
#include <random>

#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/check/order.h"
#include "parallel/plan/operands.h"
#include "tests/parallel/plans.h"

namespace test_check_order {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Actions on random slices, streams and micro-batches, each after some of those before it.
Program random_program(const Plan& plan, std::mt19937& random) {
  const auto below = [&](auto n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<ActionKind> kinds = {ActionKind::forward,    ActionKind::backward,   ActionKind::send,
                                         ActionKind::all_reduce, ActionKind::all_gather, ActionKind::update,
                                         ActionKind::drop};
  Program program{"random"};
  const int n = 2 + below(40), most = below(4);
  for (int i = 0; i < n; ++i) {
    Action a{kinds[below(kinds.size())], below(2) == 0 ? Stream::compute : Stream::comm};
    a.part = below(plan.parts.size());
    a.microbatch = below(3);
    if (a.kind == ActionKind::send) a.payload = OperandKind::activation;
    if (a.kind == ActionKind::all_gather || a.kind == ActionKind::drop) a.payload = OperandKind::weights;
    if (a.kind == ActionKind::all_reduce) a.payload = below(2) == 0 ? OperandKind::statistics : OperandKind::gradients;
    const Index begin = below(60);
    a.slice = {begin, begin + below(20)};  // some are empty
    for (int k = below(most + 1); k-- > 0 && i > 0;) a.after.push_back(below(i));
    program.actions.push_back(std::move(a));
  }
  return program;
}

/// By action: those that have finished before it may start.
std::vector<std::vector<bool>> closure(const Program& program) {
  const auto waits = dependencies(program);
  std::vector<std::vector<bool>> before(waits.size(), std::vector<bool>(waits.size()));
  for (std::size_t id = 0; id < waits.size(); ++id)
    for (const Dependency& d : waits[id]) {
      for (std::size_t i = 0; i < id; ++i)
        if (before[d.on][i]) before[id][i] = true;
      if (d.share > 0) before[id][d.on] = true;
    }
  return before;
}

bool meet(const std::vector<Operand>& a, const std::vector<Operand>& b) {
  return std::ranges::any_of(a, [&](const Operand& x) {
    return std::ranges::any_of(b, [&](const Operand& y) { return (x.written || y.written) && x.overlaps(y); });
  });
}

}  // namespace

TEST_CASE("the order and the races of random programs are those of all paths and pairs") {
  std::mt19937 random(5);
  Plan plan = serial({{"0", {0, 30}, {}, {0, 4}, 1}, {"1", {30, 30}}, {"2", {30, 80}, {}, {4, 9}, 1}}, 80, 9);
  int unordered = 0, races = 0;
  for (int trial = 0; trial < 300; ++trial) {
    INFO("program " << trial);
    plan.programs = {random_program(plan, random)};
    const Program& program = plan.programs[0];
    const auto before = closure(program);
    const std::vector<HappensBefore> orders = {HappensBefore(program)};
    REQUIRE(orders[0].cycle().empty());
    const auto operands = accesses(plan, program);
    std::vector<std::string> expected;
    bool same = true;
    for (ActionId a = 0; a < std::ssize(program.actions); ++a)
      for (ActionId b = 0; b < std::ssize(program.actions); ++b) {
        same = same && orders[0](a, b) == before[b][a];
        if (a >= b || before[b][a] || before[a][b]) continue;
        ++unordered;
        if (meet(operands[static_cast<std::size_t>(a)], operands[static_cast<std::size_t>(b)]))
          expected.push_back(place(program, a) + " and " + place(program, b));
      }
    CHECK(same);
    Diagnostics faults;
    check_races(plan, orders, faults);
    const auto found = faults.take();
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i].starts_with(expected[i]));
    races += static_cast<int>(found.size());
  }
  CHECK(unordered > 10000);
  CHECK(races > 1000);
}

}  // namespace test_check_order
