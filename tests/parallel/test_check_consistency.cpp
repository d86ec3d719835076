// check(plan) on strategies whose ranks do not have the same weights after every step: each consistency's faults,
// planted in plans of many sizes.
#include "parallel/plan/action_kind.h"
#include "tests/parallel/plans.h"

namespace test_check_consistency {

using namespace trireme;
using namespace trireme::test;

namespace {

Plan made(const std::string& strategy, int ranks) {
  Plan plan = chain();
  plan.axes = {{"data", ranks}};
  return parse_strategy(strategy)(std::move(plan));
}
Action& action(Plan& plan, const std::string& kind, std::size_t program = 0) {
  for (Action& a : plan.programs[program].actions)
    if (a.kind->name == kind) return a;
  fail("test", "no {}", kind);
}
void set(Action& a, const std::string& name, double value) {
  for (auto& [key, number] : a.arguments)
    if (key == name) number = value;
}
State& state(Plan& plan, const std::string& name) { return *std::ranges::find(plan.state, name, &State::name); }

struct Fault {
  std::string strategy;
  std::function<void(Plan&)> plant;
  std::string words;
};

}  // namespace

TEST_CASE("a fault of each consistency is found, in plans for any number of ranks") {
  const auto argument = [](const char* kind, const char* name, double value) {
    return [=](Plan& p) { set(action(p, kind), name, value); };
  };
  const auto phase = [](const char* name, auto change) {
    return [=](Plan& p) { change(std::ranges::find(p.programs.back().phases, name, &ProgramPhase::name)->trigger); };
  };
  const auto phase_of = [](std::size_t program, const char* name, auto change) {
    return [=](Plan& p) { change(std::ranges::find(p.programs[program].phases, name, &ProgramPhase::name)->trigger); };
  };
  const auto undeclared = [](Plan& p) { p.state.pop_back(); };
  const std::vector<Fault> planted = {
      // gossip: rows and columns of the mixing matrix
      {"gossip(graph=ring)", argument("mix", "keep", 0.5), "mixing must be doubly stochastic"},
      {"gossip(graph=exponential)", argument("mix", "take", 0.4), "add up to 0.9"},
      {"gossip(graph=torus)", argument("mix", "take", 0), "mixing must be doubly stochastic"},
      {"gossip(graph=random)", argument("mix", "keep", -1), "mixing must be doubly stochastic"},
      // The columns add up to 1, each rank giving one half away, but not the rows.
      {"gossip(graph=exponential)", [](Plan& p) { action(p, "mix").peer.pairs = "random_target"; },
       "keeps and gets add up to"},
      {"gossip(graph=ring)", [](Plan& p) { action(p, "mix").peer.pairs = "moebius"; }, "there is no rule 'moebius'"},
      {"gossip(graph=ring)", [](Plan& p) { p.programs[0].actions.pop_back(); }, "no action makes them mix"},
      {"gossip(graph=ring)", [](Plan& p) { action(p, "mix").slice.end -= 1; }, "no action makes them mix"},
      // push-sum: columns
      {"gossip(mode=push_sum, graph=ring)", argument("push_sum", "give", 0.6), "must be column-stochastic"},
      {"gossip(mode=push_sum, graph=random)", argument("push_sum", "keep", 0.25), "must be column-stochastic"},
      {"gossip(mode=push_sum, graph=torus)",
       [](Plan& p) {
         set(action(p, "push_sum"), "keep", 0);
         set(action(p, "push_sum"), "give", 1);
       },
       "a rank keeps the share 0 of its weights"},
      {"gossip(mode=push_sum)", undeclared, "uses the state 'push_sum.w', which the plan does not declare"},
      // asynchronous pairs
      {"gossip(mode=async)", argument("exchange", "share", 1), "move by 1 of their difference"},
      {"gossip(mode=async)", [](Plan& p) { action(p, "exchange").peer.pairs = "ring"; },
       "with no odd rank, or with several"},
      {"gossip(mode=async)", [](Plan& p) { action(p, "exchange").slice.end -= 1; }, "no action makes them mix"},
      {"gossip(mode=async)", [](Plan& p) { std::swap(p.programs[0].actions[0], p.programs[0].actions[1]); },
       "compute before they answer"},
      {"gossip(mode=async)", [](Plan& p) { action(p, "answer").peer.seed = 7; }, "answer by another rule"},
      {"gossip(mode=async)", argument("answer", "place", 1), "answer by another rule"},
      {"gossip(mode=async)",
       [](Plan& p) { action(p, "exchange").phase = add_phase(p.programs[0], "seldom", {.every = 3}); },
       "exchanges are of every step"},
      {"gossip(mode=async)", [](Plan& p) { p.consistency["data"].bound = 0; },
       "is gossip, but ranks mix by asynchronous messages"},
      {"gossip(graph=ring)", [](Plan& p) { p.consistency["data"].bound = Consistency::unbounded; },
       "is gossip(unbounded), but ranks do not mix by asynchronous messages"},
      {"gossip(mode=async)", undeclared, "uses the state 'gossip.due', which the plan does not declare"},
      // periodic
      {"local_sgd(every=4)", phase("average over data", [](Trigger& t) { t.every = 0; }), "never runs"},
      {"local_sgd(every=4)", phase("average over data", [](Trigger& t) { t.every = 8; }), "alike every 4 steps"},
      {"local_sgd(every=4)", phase("average over data", [](Trigger& t) { t.until = 100; }), "alike every 4 steps"},
      {"local_sgd(every=4)", phase("average over data", [](Trigger& t) { t.offset = 4; }), "never runs"},
      {"local_sgd(every=4)", [](Plan& p) { p.consistency["data"].bound = 0; }, "its bound must be at least 1 step"},
      {"local_sgd(every=4)", [](Plan& p) { p.consistency.clear(); }, "is never reduced over"},
      {"local_sgd(every=2, outer_momentum=0.5)", undeclared,
       "uses the state 'outer.momentum', which the plan does not declare"},
      {"easgd", undeclared, "uses the state 'elastic.center', which the plan does not declare"},
      // stale, and servers
      {"parameter_server(mode=ssp, staleness=2)", phase("answer", [](Trigger& t) { t.staleness = 3; }),
       "lets ranks get 3 steps ahead"},
      {"parameter_server(mode=ssp, staleness=2)", [](Plan& p) { p.consistency["data"].bound = -1; }, "needs a bound"},
      {"parameter_server(mode=async)", [](Plan& p) { p.consistency["data"].bound = 4; }, "any number of steps ahead"},
      {"parameter_server(mode=async)", [](Plan& p) { action(p, "send").peer.channel = "nowhere"; },
       "takes no messages on 'nowhere'"},
      {"parameter_server(servers=2)",
       [](Plan& p) {
         for (Action& a : p.programs[2].actions) a.slice = p.programs[1].actions[0].slice;
       },
       "is updated by program server"},
      // servers in two levels: whoever sums for a group sums for all of it, and answers all of it
      {"parameter_server(groups=1)", phase_of(1, "sum", [](Trigger& t) { t.count = 1; }), "answers before all ranks"},
      {"parameter_server(groups=1)", [](Plan& p) { ++action(p, "send").peer.root; },
       "takes no messages on 'gradients'"},
      {"parameter_server(groups=1)", [](Plan& p) { p.programs[1].actions[3].peer.senders_of = "nowhere"; },
       "no rank sends to 'nowhere'"},
      {"parameter_server(groups=1)", [](Plan& p) { p.programs[1].actions.erase(p.programs[1].actions.begin() + 1); },
       "takes gradients that no update uses"},
      // compression
      {"compress(topk)", undeclared, "the codec keeps the state 'residual', which the plan does not declare"},
  };
  for (const Fault& fault : planted)
    for (const int ranks : {4, 6, 16, 90}) {
      Plan plan = made(fault.strategy, ranks);
      INFO(fault.strategy << " on " << ranks << " ranks: " << fault.words);
      CHECK(faults(plan, ranks) == "");
      fault.plant(plan);
      check_finds(plan, fault.words, ranks);
    }
}

TEST_CASE("what ranks have alike is written by one program") {
  Plan plan = two_stages();
  plan.axes = {{"pipe", 2}, {"data", 2}};
  plan = parse_strategy("local_sgd(every=2, outer_momentum=0.5)")(std::move(plan));
  REQUIRE(faults(plan, 2) == "");
  Plan twice = plan;
  action(twice, "outer_update", 1).slice = {8, 32};  // half of it is the other stage's
  check_finds(twice, "state outer.weights [8, 32), alike on all ranks, is written by program stage 0 and by program",
              2);
  state(twice, "outer.weights").replicated = state(twice, "outer.momentum").replicated = false;
  CHECK(faults(twice, 2).find("alike on all ranks") == std::string::npos);
}

}  // namespace test_check_consistency
