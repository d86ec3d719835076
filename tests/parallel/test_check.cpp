// check(plan) finds each planted fault and names it.
#include "parallel/analysis/simulate.h"
#include "parallel/strategies/agreements.h"
#include "tests/parallel/plans.h"

namespace test_check {

using namespace trireme;
using namespace trireme::test;

TEST_CASE("check finds gradients that are not summed once") {
  check_finds(chain(), "is never reduced over the 2 ranks that share the batch: use data_parallel()");
  Plan plan = parallel_chain();
  Program& program = plan.programs[0];
  ActionId first = find(program, ActionKind::all_reduce);

  SECTION("one bucket is missing") {
    program.actions[first].slice.begin += 1;
    check_finds(plan, "gradient [400, 401) of part 3 ('4') is never reduced");
  }
  SECTION("two buckets overlap") {
    program.actions[first].slice.begin -= 30;
    check_finds(plan, "gradient [370, 400) of part 2 ('3') is reduced 2 times, by actions");
  }
  SECTION("the update does not wait for a bucket") {
    program.actions.back().after.pop_back();
    check_finds(plan, "before its reduction, action");
  }
  SECTION("a bucket starts before its gradient is complete") {
    program.actions[find(program, ActionKind::all_reduce, 2)].after = {5};
    check_finds(plan, "before the backward that completes it");
  }
  SECTION("the update comes before the backward") {
    Plan wrong = chain();
    std::swap(wrong.programs[0].actions[8], wrong.programs[0].actions[9]);
    check_finds(wrong, "before the backward that completes it, action 9", 1);
  }
}

TEST_CASE("check finds a sum of gradients of different weights") {
  Plan plan = parallel_chain();
  plan.parts[2].divided = {{"data", {plan.parts[2].slice}}};
  check_finds(plan, "sums gradients of part 2 ('3'), of which each rank along 'data' has the whole already");
}

TEST_CASE("check finds a norm that counts gradients of several ranks") {
  std::vector<PartInfo> parts = chain().parts;
  parts[2].divided = {{"data", {{150, 400}}}};
  const Plan first = serial(parts, 450, 0, {{"data", 2}});
  for (const int stage : {1, 2, 3}) {
    Plan plan = with_agreements((data_parallel() | zero(stage))(first), {.norm = true, .ratios = 3});
    CHECK(faults(plan) == "");
    Program& program = plan.programs[0];
    Index divided = 0;
    for (const Action& a : program.actions)
      if (a.kind == ActionKind::update) {
        CHECK(a.peer.axis == (a.slice == Slice{150, 400} ? "" : "data"));
        divided += a.peer.axis.empty() ? 0 : a.slice.size();
      }
    CHECK(divided == 200);
    plan.parts[2].divided = {{"data", {{150, 300}}}};
    check_finds(plan, "sums the squares of gradients [300, 400), which each rank along 'data' updates");
  }
}

TEST_CASE("check finds updates that overlap or leave something out") {
  Plan plan = chain();
  plan.programs[0].actions.back().slice = {0, 300};
  check_finds(plan, "gradient [300, 400) of part 2 ('3') is used by no update", 1);
  plan.programs[0].actions.push_back({.kind = ActionKind::update, .slice = {250, 450}});
  check_finds(plan, "gradient [250, 300) of part 2 ('3') is used by 2 updates, actions 9, 10", 1);
}

TEST_CASE("check finds passes out of order") {
  Plan plan = chain();
  auto& actions = plan.programs[0].actions;
  SECTION("backward before forward") {
    std::swap(actions[3], actions[5]);
    check_finds(plan, "(backward part 3) does not wait for program all, action 5 (forward part 3)", 1);
  }
  SECTION("a part's backward before that of the part behind it") {
    std::swap(actions[5], actions[6]);
    check_finds(plan, "(backward part 2) does not wait for program all, action 6 (backward part 3)", 1);
  }
  SECTION("a part is left out") {
    actions.erase(actions.begin() + 1);
    check_finds(plan, "part 1 ('2') micro 0 is never run forward", 1);
  }
  SECTION("a part is run twice") {
    insert(plan.programs[0], 2, actions[1]);
    check_finds(plan, "action 2 (forward part 1) repeats program all, action 1", 1);
  }
  SECTION("no loss") {
    actions.erase(actions.begin() + 4);
    check_finds(plan, "micro-batch 0 has no loss", 1);
  }
}

TEST_CASE("check finds dependencies on nothing, on itself, in a circle") {
  Plan plan = parallel_chain();
  auto& actions = plan.programs[0].actions;
  actions.back().after.push_back(99);
  check_finds(plan, "depends on action 99, which is not there");
  actions.back().after = {static_cast<int>(actions.size()) - 1};
  check_finds(plan, "which is itself");
  plan = parallel_chain(false);
  plan.programs[0].actions[5].after = {find(plan.programs[0], ActionKind::all_reduce)};
  check_finds(plan, "deadlock:");
}

TEST_CASE("check finds messages that do not meet") {
  Plan plan = two_stages();
  auto &first = plan.programs[0].actions, &second = plan.programs[1].actions;
  ActionId recv = find(plan.programs[1], ActionKind::recv, 1);
  SECTION("a send is missing") {
    ActionId id = find(plan.programs[0], ActionKind::send, 1);
    first[id] = {.kind = ActionKind::drop, .payload = OperandKind::weights};
    check_finds(plan, "(recv activation part 0 micro 1 from pipe -1): nobody sends it", 1);
  }
  SECTION("a recv is missing") {
    second[recv] = {.kind = ActionKind::drop, .payload = OperandKind::weights};
    check_finds(plan, "(send activation part 0 micro 1 to pipe +1): nobody receives it", 1);
  }
  SECTION("crossed") {
    std::swap(second[recv].microbatch, second[find(plan.programs[1], ActionKind::recv)].microbatch);
    check_finds(plan, "messages cross:", 1);
  }
  SECTION("off the end of the axis") {
    second[recv].peer.offset = 1;
    check_finds(plan, "there is no program there", 1);
  }
  SECTION("each waits for the other first") {
    insert(plan.programs[0], 0, message(ActionKind::recv, -1, 1, 1, Stream::compute));
    insert(plan.programs[0], 1, message(ActionKind::send, -1, 0, 1, Stream::compute));
    insert(plan.programs[1], 0, message(ActionKind::recv, -1, 0, -1, Stream::compute));
    insert(plan.programs[1], 1, message(ActionKind::send, -1, 1, -1, Stream::compute));
    check_finds(plan, "deadlock: these wait for partners that never start: program stage 0, action", 1);
  }
  SECTION("its own list waits in a circle") {
    first[find(plan.programs[0], ActionKind::send)].after.push_back(find(plan.programs[0], ActionKind::recv));
    check_finds(plan, "deadlock: program stage 0, action 1 (send activation part 0 to pipe +1) waits for itself", 1);
  }
  SECTION("a collective that only one program makes") {
    Action sum = message(ActionKind::all_reduce, -1, 0, 0);
    sum.slice = {0, 16};
    sum.payload = OperandKind::gradients;
    first.push_back(sum);
    check_finds(data_parallel()(plan), "program stage 0 makes 1 collectives along 'pipe', program stage 1 makes 0", 1);
  }
  SECTION("no fault: statistics of one program's, averaged along one of the axes that gradients are summed over") {
    Action average = message(ActionKind::all_reduce, -1, 0, 0);
    average.payload = OperandKind::statistics;
    average.peer.axis = "data";
    first.push_back(average);
    plan.axes.push_back({"h", 2});
    CHECK(check((spatial({"h"}) | data_parallel())(plan), 4).empty());
  }
}

TEST_CASE("check finds what is wrong with a pipeline") {
  Plan start = serial({{"0", {0, 16}}, {"1", {16, 32}}, {"2", {32, 48}}, {"3", {48, 64}}}, 64, 0, {{"pipe", 2}});
  Plan plan = pipeline({.micro = 4, .schedule = "1f1b"})(start);
  REQUIRE(faults(plan, 1) == "");
  Program &first = plan.programs[0], &second = plan.programs[1];
  auto at = [](Program& program, ActionKind kind, int part, int microbatch) {
    auto is = [&](const Action& a) { return a.kind == kind && a.part == part && a.microbatch == microbatch; };
    return static_cast<ActionId>(std::find_if(program.actions.begin(), program.actions.end(), is) -
                                 program.actions.begin());
  };
  auto blank = [](Program& program, ActionId id) {
    program.actions[id] = {.kind = ActionKind::drop, .payload = OperandKind::weights};
  };
  SECTION("a message is neither sent nor received") {
    blank(first, at(first, ActionKind::send, 1, 2));
    blank(second, at(second, ActionKind::recv, 1, 2));
    check_finds(plan, "(forward part 2 micro 2) has no input: no message brings it from program stage 0", 1);
  }
  SECTION("a gradient is not sent") {
    blank(second, at(second, ActionKind::send, 1, 3));
    check_finds(plan, "(recv gradient of the activation part 1 micro 3 from pipe +1): nobody sends it", 1);
  }
  SECTION("a gradient is not received") {
    blank(first, at(first, ActionKind::recv, 1, 0));
    check_finds(plan, "(send gradient of the activation part 1 to pipe -1): nobody receives it", 1);
  }
  SECTION("gradients are received in another order") {
    std::swap(first.actions[at(first, ActionKind::recv, 1, 0)].microbatch,
              first.actions[at(first, ActionKind::recv, 1, 1)].microbatch);
    check_finds(plan, "messages cross: program stage 0", 1);
  }
  SECTION("a forward does not wait for its message") {
    second.actions[at(second, ActionKind::forward, 2, 1)].after.clear();
    check_finds(plan, "(forward part 2 micro 1) does not wait for program stage 1", 1);
  }
  SECTION("a micro-batch is never run forward") {
    blank(second, at(second, ActionKind::forward, 3, 2));
    check_finds(plan, "part 3 ('3') micro 2 is never run forward", 1);
  }
  SECTION("what is freed is used") {
    const ActionId free = at(first, ActionKind::free, 1, 0);
    Action early = first.actions[free];
    blank(first, free);
    insert(first, at(first, ActionKind::backward, 1, 0), early);
    check_finds(plan, "(backward part 0) uses activations that action", 1);
  }
  SECTION("something is freed twice") {
    first.actions[at(first, ActionKind::free, 1, 1)].microbatch = 0;
    check_finds(plan, "frees activations that action", 1);
  }
  SECTION("too many in flight") {
    first.in_flight = 1;
    check_finds(plan, "makes 2 micro-batches in flight, but Program::in_flight allows 1", 1);
  }
  SECTION("two programs update one slice") {
    second.actions.back().slice.begin -= 8;
    check_finds(plan, "[24, 32) is updated by program stage 0 and by program stage 1", 1);
  }
  SECTION("a part changes its program between forward and backward") {
    ActionId id = at(first, ActionKind::backward, 0, 3);
    second.actions.insert(second.actions.end() - 1, first.actions[id]);
    blank(first, id);
    check_finds(plan, "(backward part 0 micro 3) needs the result of program stage 0", 1);
  }
  SECTION("each stage waits for the other") {
    first.actions[at(first, ActionKind::send, 1, 0)].after.push_back(at(first, ActionKind::recv, 1, 0));
    check_finds(plan, "deadlock:", 1);
  }
  SECTION("an update comes before a backward") {
    ActionId update = find(first, ActionKind::update);
    std::swap(first.actions[update], first.actions[at(first, ActionKind::backward, 0, 3)]);
    check_finds(plan, "before the backward that completes it", 1);
  }
  SECTION("the halves of a backward in the wrong order") {
    Plan halves = pipeline({.micro = 4, .schedule = "zb-h1"})(start);
    REQUIRE(faults(halves, 1) == "");
    Program& program = halves.programs[0];
    std::swap(program.actions[at(program, ActionKind::backward_input, 0, 1)],
              program.actions[at(program, ActionKind::backward_weight, 0, 1)]);
    check_finds(halves, "(backward_weight part 0 micro 1) does not wait for", 1);
  }
  SECTION("gradients of a stage are reduced twice, not at all, or too early") {
    start.axes = {{"pipe", 2}, {"data", 2}};
    check_finds(pipeline({})(start), "is never reduced over the 2 ranks", 2);
    Plan hybrid = data_parallel()(pipeline({.micro = 4})(start));
    REQUIRE(faults(hybrid, 2) == "");
    Program& program = hybrid.programs[1];
    ActionId reduce = find(program, ActionKind::all_reduce);
    Plan twice = hybrid;
    insert(twice.programs[1], reduce + 1, program.actions[reduce]);
    check_finds(twice, "is reduced 2 times", 2);
    program.actions[reduce].after = {at(program, ActionKind::backward, 2, 2)};
    check_finds(hybrid, "before the backward that completes it", 2);
  }
}

TEST_CASE("collectives and drops name the block of their slice") {
  Plan plan = parallel_chain();
  plan.programs[0].actions[static_cast<std::size_t>(find(plan.programs[0], ActionKind::all_reduce))].payload = {};
  check_finds(plan, "all_reduce [400, 450) over data, on ready) does not name the block of its slice");
}

TEST_CASE("an action names its partners in one way") {
  Plan plan = parallel_chain();
  Peer& peer = plan.programs[0].actions[static_cast<std::size_t>(find(plan.programs[0], ActionKind::all_reduce))].peer;
  peer.root = 0;
  CHECK(faults(plan).find("mixes") == std::string::npos);
  peer.members = {0, 1};
  check_finds(plan, "mixes members, root");
  peer.root = -1;
  peer.pairs = "ring";
  check_finds(plan, "mixes members, root");
}

TEST_CASE("messages go between stages, and name their operand") {
  Plan plan = two_stages();
  Action& send = plan.programs[0].actions[static_cast<std::size_t>(find(plan.programs[0], ActionKind::send))];
  SECTION("along another axis") {
    send.peer.axis = "data";
    check_finds(plan, "goes along 'data'", 1);
  }
  SECTION("without an operand") {
    send.payload = OperandKind::none;
    check_finds(plan, "name its payload", 1);
  }
  SECTION("of another operand") {
    send.payload = OperandKind::cotangent;
    check_finds(plan, "nobody receives it", 1);
  }
}

}  // namespace test_check
