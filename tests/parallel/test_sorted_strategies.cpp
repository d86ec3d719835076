// | sorts strategies: both orders of a pair give the same plan or the same refusal, and what is sorted equals an order
// that a plan can be rewritten in.
#include <set>

#include "parallel/plan/action_kind.h"
#include "tests/parallel/pairs.h"
#include "tests/parallel/plans.h"

namespace test_sorted_strategies {

using namespace trireme;
using namespace trireme::test;

namespace {

const std::vector<Axis> mesh = {{"pipe", 2}, {"node", 2}, {"h", 2}, {"w", 2}, {"tensor", 2}, {"data", 4}};

/// What strategies make of a model of four parts, or "refused".
std::string plan_hash(const std::function<Plan(Plan)>& rewrite) {
  Plan plan = chain();
  plan.axes = mesh;
  plan.epoch_steps = 5;
  try {
    plan = rewrite(std::move(plan));
  } catch (const Error&) { return "refused"; }
  bool reduces = false, encodes = false;
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions) {
      reduces = reduces || is_reduction(a);
      encodes = encodes || a.codec != nullptr;
    }
  if (!check(plan, reduces ? 4 : 1).empty()) return "refused";
  // zero(3) after compress makes other reductions, and would lose the codec.
  if (!encodes && std::ranges::find(plan.strategies, "compress") != plan.strategies.end()) return "refused";
  return fmt::format("{:016x} {}", plan.hash(), fmt::join(plan.strategies, " | "));
}

/// The plan in short, or why there is none.
std::string outcome(const std::string& text) {
  try {
    Plan plan = chain(8);
    plan.parts[0].buffers = {0, 8};
    plan.axes = mesh;
    const Strategy s = parse_strategy(text);
    plan = s(std::move(plan));
    return fmt::format("{:016x} {} {} {}", plan.hash(), s.text(), to_string(s.scope()), s.norm_group);
  } catch (const Error& e) { return e.what(); }
}

/// All strategies that train the serial run's model, and others.
std::vector<std::string> texts() {
  std::vector<std::string> all;
  for (const StrategyText& row : strategy_texts()) all.push_back(row.text);
  for (const char* other :
       {"accumulate(micro=1)", "pipeline(schedule=2bw, micro=2, partition=even)",
        "data_parallel(bucket=90, first_bucket=20)", "data_parallel(axis=node, norm_scope=local)",
        "data_parallel(norm_scope=group, norm_group=2)", "one_weird_trick(axis=node)", "tensor(axis=node)",
        "parameter_server(mode=async)", "local_sgd(every=2, axis=node)", "local_sgd(axis=node, from_epoch=1)",
        "local_sgd(outer_momentum=0.5)", "easgd", "easgd(axis=node)", "gossip(axis=node)",
        "gossip(mode=push_sum, graph=ring, axis=node)", "gossip(mode=async)", "compress(codec=onebit)"})
    all.emplace_back(other);
  return all;
}

/// Strategies of equal order: their sums or averages nest in the order in which they are written.
bool keeps_order(const std::string& a, const std::string& b) {
  const auto group = [](const std::string& text) {
    const std::string name = text.substr(0, text.find('('));
    if (name == "local_sgd" || name == "easgd" || name == "gossip") return std::string("averages");
    if (name == "place") return std::string("tensor");
    return name == "one_weird_trick" ? std::string("data_parallel") : name;
  };
  return group(a) == group(b);
}

/// The strategies rewrite the plan in the order in which they are named, which | would sort.
std::string written(const std::vector<std::string>& order, NormScope scope) {
  return plan_hash([&](Plan plan) {
    for (const std::string& text : order) {
      Strategy s = parse_strategy(text);
      s.norm_scope = scope;
      plan = s(std::move(plan));
    }
    return plan;
  });
}

/// The sorted plan is that of an order in which the strategies can be written, if there is one.
void check_some_order(std::vector<std::string> all) {
  Strategy sorted;
  try {
    for (const std::string& text : all) sorted = std::move(sorted) | parse_strategy(text);
  } catch (const Error&) { return; }  // their splits of layers cannot be combined in any order
  const bool asynchronous = std::ranges::any_of(all, [](auto& s) { return s.find("2bw") != s.npos; });
  const NormScope scope = asynchronous ? NormScope::local : NormScope::global;
  sorted.norm_scope = scope;
  const std::string got = plan_hash(sorted);
  std::set<std::string> possible;
  std::ranges::sort(all);
  do {
    if (const std::string one = written(all, scope); one != "refused") possible.insert(one);
  } while (std::ranges::next_permutation(all).found);
  INFO(sorted.text());
  if (possible.empty()) {
    CHECK(got == "refused");
  } else {
    CHECK(possible.contains(got));
  }
}

}  // namespace

TEST_CASE("both orders of a pair give the same plan or the same refusal") {
  int plans = 0, refused = 0;
  for (const std::string& a : texts())
    for (const std::string& b : texts()) {
      const std::string one = outcome(a + " | " + b);
      INFO(a + " | " + b);
      if (!keeps_order(a, b)) CHECK(one == outcome(b + " | " + a));
      (one.find(": ") == one.npos ? plans : refused) += 1;
    }
  CHECK(plans > 300);
  CHECK(refused > 300);
}

TEST_CASE("pairs and triples that are sorted have the plan of an order that can be written") {
  const std::vector<std::string> all = texts();
  for (const std::string& a : all)
    for (const std::string& b : all) check_some_order({a, b});
  std::uint64_t state = 42;
  const auto any = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return all[static_cast<std::size_t>(state >> 33) % all.size()];
  };
  for (int i = 0; i < 200; ++i) check_some_order({any(), any(), any()});
}

TEST_CASE("the order of writing is kept where it means something, and around custom strategies") {
  const auto name = [](const std::string& text) { return parse_strategy(text).text(); };
  CHECK(name("compress(bf16) | zero(2) | data_parallel | tensor | accumulate(micro=3)")
            .starts_with("tensor(axis=tensor) | accumulate(micro=3) | data_parallel(axis=data"));
  CHECK(parse_strategy("compress(bf16) | zero(2) | data_parallel | accumulate").name() ==
        "accumulate | data_parallel | zero(2) | compress");
  CHECK(name("data_parallel | spatial(axes=h)").starts_with("spatial(axes=h) | data_parallel"));
  CHECK(name("local_sgd(axis=a, every=2) | local_sgd(axis=b)") !=
        name("local_sgd(axis=b) | local_sgd(axis=a, every=2)"));
  CHECK(name("data_parallel(axis=a) | data_parallel(axis=b)") != name("data_parallel(axis=b) | data_parallel(axis=a)"));
  CHECK(parse_strategy("gossip(axis=a) | local_sgd(axis=b)").name() == "gossip | local_sgd");
  const Strategy custom("custom", Claim::exact, [](Plan plan) { return plan; });
  CHECK((zero(1) | accumulate(2) | custom | data_parallel() | tensor()).name() ==
        "accumulate | zero(1) | custom | tensor | data_parallel");
  CHECK((zero(1) | (accumulate(2) | custom)).name() == "accumulate | zero(1) | custom");
  CHECK(((zero(1) | accumulate(2)) | data_parallel()).text() == (zero(1) | (accumulate(2) | data_parallel())).text());
}

TEST_CASE("the buckets that data_parallel asks for hold with and without spatial") {
  const auto reductions = [](const std::string& text) {
    Plan plan = chain();
    plan.axes = mesh;
    plan = parse_strategy(text)(std::move(plan));
    CHECK(faults(plan, 4) == "");
    return std::ranges::count(plan.programs[0].actions, ActionKind::all_reduce, &Action::kind);
  };
  CHECK(reductions("spatial(axes=h) | data_parallel") == 1);
  CHECK(reductions("data_parallel(bucket=60, first_bucket=60)") > 2);
  for (const char* both : {"spatial(axes=h) | data_parallel(bucket=60, first_bucket=60)",
                           "data_parallel(bucket=60, first_bucket=60) | spatial(axes=h)"})
    CHECK(reductions(both) == reductions("data_parallel(bucket=60, first_bucket=60)"));
}

TEST_CASE("an axis of one rank is as no axis") {
  const auto refused = [](const std::string& text, const std::vector<Axis>& axes) {
    Plan plan = chain(8);
    plan.parts[0].buffers = {0, 8};
    plan.axes = axes;
    plan.epoch_steps = 5;
    try {
      plan = parse_strategy(text)(std::move(plan));
    } catch (const Error&) { return true; }
    const bool reduces = std::ranges::any_of(
        plan.programs, [](const Program& p) { return std::ranges::any_of(p.actions, sums_gradients); });
    return !check(plan, reduces ? plan.size(plan.reduced_axis()) : 1).empty();
  };
  std::vector<std::string> all = texts();
  for (const char* axis : {"pipe", "node", "data"})
    all.push_back(fmt::format("data_parallel(axis={}, first_bucket=25, bucket=42)", axis));
  for (const std::string& a : all)
    for (const std::string& b : all) {
      std::vector<std::string> strategies = {a + " | " + b};
      if (a.starts_with("data_parallel(axis"))  // sums over two axes, one of which may have one rank
        strategies.push_back(a + " | data_parallel | " + b);
      for (const std::string& text : strategies) {
        INFO(text);
        if (refused(text, {{"data", 2}})) continue;  // some strategies refuse an axis that the mesh does not have
        CHECK_FALSE(refused(text, {{"data", 2}, {"pipe", 1}, {"node", 1}, {"h", 1}, {"w", 1}, {"tensor", 1}}));
      }
    }
  for (const char* axis : {"pipe", "node"})
    for (const char* updates : {"zero(1)", "zero(2)", "zero(3)", "central_storage"})
      for (const int size : {1, 2})
        CHECK_FALSE(refused(
            fmt::format("data_parallel(axis={}, first_bucket=25, bucket=42) | data_parallel | {}", axis, updates),
            {{"data", 2}, {axis, size}}));
  Plan staged = chain();
  staged.axes = mesh;
  staged = parse_strategy("pipeline(micro=2, partition=even)")(std::move(staged));
  CHECK_ERROR(data_parallel({.axis = "pipe"})(staged), usage, "mesh axis 'pipe'");
}

}  // namespace test_sorted_strategies
