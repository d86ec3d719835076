// Plans as data: the rewrites, and that check() finds each planted fault and names it.
#include <algorithm>

#include "parallel/plan.h"
#include "parallel/simulate.h"
#include "parallel/strategies/partition.h"
#include "parallel/strategies/schedules.h"
#include "parallel/strategy.h"
#include "tests/catch.h"

using namespace trireme;
using trireme::test::contains;

namespace {

/// Four parts of 100, 0, 300 and 50 parameters.
Plan chain(Index buffers = 0) {
  return serial({{"0-1", {0, 100}}, {"2", {100, 100}}, {"3", {100, 400}}, {"4", {400, 450}}}, 450, buffers);
}
Plan parallel_chain(bool overlap = true) {
  return data_parallel({.first_bucket = 10, .bucket = 200, .overlap = overlap})(chain());
}

ActionId find(const Role& role, Verb verb, int nth = 0) {
  for (ActionId id = 0; id < static_cast<int>(role.actions.size()); ++id)
    if (role.actions[id].verb == verb && nth-- == 0) return id;
  return -1;
}

/// The faults of a plan, in one text.
std::string faults(const Plan& plan, int ranks = 2) {
  std::string text;
  for (auto& line : check(plan, ranks)) text += line + "\n";
  return text;
}
void check_finds(const Plan& plan, const std::string& words, int ranks = 2) {
  std::string text = faults(plan, ranks);
  INFO(text << plan.to_string());
  CHECK(text.find(words) != std::string::npos);
}

Action message(Verb verb, int part, int micro, int offset, Lane lane = Lane::comm) {
  Action a{verb, lane, part, micro};
  a.peer.axis = "pipe";
  a.peer.offset = offset;
  return a;
}
/// After the action before it.
void append(Role& role, Action a) {
  a.after.push_back(static_cast<int>(role.actions.size()) - 1);
  role.actions.push_back(std::move(a));
}

/// Two stages, one part each; activations and their gradients cross once per micro-batch.
Plan two_stages(int micros = 2) {
  Plan plan = serial({{"0", {0, 16}}, {"1", {16, 32}}}, 32);
  plan.strategies.push_back("pipeline");
  plan.micros = micros;
  plan.roles.assign(2, Role());
  Role &a = plan.roles[0], &b = plan.roles[1];
  a.name = "stage 0", b.name = "stage 1";
  for (int m = 0; m < micros; ++m) {
    a.actions.push_back({.verb = Verb::forward, .part = 0, .micro = m});
    append(a, message(Verb::send, 0, m, 1));
    b.actions.push_back(message(Verb::recv, 0, m, -1));
    append(b, {.verb = Verb::forward, .part = 1, .micro = m});
    b.actions.push_back({.verb = Verb::loss, .micro = m});
    b.actions.push_back({.verb = Verb::backward, .part = 1, .micro = m});
    append(b, message(Verb::send, 0, m, -1));
  }
  for (int m = 0; m < micros; ++m) {
    a.actions.push_back(message(Verb::recv, 0, m, 1));
    append(a, {.verb = Verb::backward, .part = 0, .micro = m});
  }
  a.actions.push_back({.verb = Verb::update, .slice = {0, 16}});
  b.actions.push_back({.verb = Verb::update, .slice = {16, 32}});
  return plan;
}

}  // namespace

TEST_CASE("serial and data_parallel plans are sound") {
  CHECK(faults(chain(), 1) == "");
  for (bool overlap : {true, false})
    for (int ranks : {1, 2, 5, 100000}) CHECK(faults(parallel_chain(overlap), ranks) == "");
  for (Index first : {1, 16, 100, 1000})
    for (Index bucket : {1, 7, 50, 1000})
      CHECK(faults(data_parallel({.first_bucket = first, .bucket = bucket})(chain(12)), 3) == "");
  for (int micros : {1, 2, 4}) CHECK(faults(two_stages(micros), 1) == "");
  CHECK(faults(data_parallel({.bucket = 8})(two_stages()), 4) == "");
}

TEST_CASE("data_parallel cuts the block from its end and starts each bucket where its last gradient completes") {
  Plan plan = parallel_chain();
  auto& actions = plan.roles[0].actions;
  std::vector<Slice> reduced;
  for (auto& a : actions)
    if (a.verb == Verb::all_reduce) {
      reduced.push_back(a.slice);
      CHECK(a.on_ready);
      REQUIRE(a.after.size() == 1);
      const Action& completes = actions[a.after[0]];
      CHECK(completes.verb == Verb::backward);
      CHECK(plan.parts[completes.part].slice.begin <= a.slice.begin);
    }
  CHECK(reduced == std::vector<Slice>{{400, 450}, {100, 400}, {0, 100}});
  CHECK(actions.back().verb == Verb::update);
  CHECK(actions.back().after.size() == 3);
  CHECK(plan.strategies == std::vector<std::string>{"data_parallel"});
}

TEST_CASE("buckets cover the block once, last first, whatever their sizes") {
  std::vector<PartInfo> parts = {{"a", {0, 7}}, {"b", {7, 7}}, {"c", {7, 1000}}, {"d", {1000, 1003}}};
  for (Index first : {1, 5, 100, 5000})
    for (Index bucket : {1, 3, 64, 5000}) {
      Index end = 1003;
      for (auto& slice : cut_buckets(parts, {0, 1003}, {.first_bucket = first, .bucket = bucket})) {
        CHECK(slice.end == end);
        CHECK(slice.size() > 0);
        CHECK(slice.size() <= std::max(first + 993, 2 * bucket));
        end = slice.begin;
      }
      CHECK(end == 0);
    }
  CHECK_THROWS_WITH(cut_buckets(parts, {0, 1003}, {.bucket = 0}), contains("both must be above 0"));
}

TEST_CASE("equal plans have equal hashes, and any change changes them") {
  CHECK(parallel_chain().hash() == parallel_chain().hash());
  std::vector<Plan> all = {chain(), chain(8), parallel_chain(), parallel_chain(false), two_stages(1), two_stages(2)};
  auto changed = [&](auto change) {
    Plan plan = parallel_chain();
    change(plan);
    all.push_back(std::move(plan));
  };
  changed([](Plan& p) { p.parts[0].name += "x"; });
  changed([](Plan& p) { p.roles[0].actions[3].part = 1; });
  changed([](Plan& p) { p.roles[0].actions.back().after.pop_back(); });
  changed([](Plan& p) { p.roles[0].actions.back().lane = Lane::copy; });
  changed([](Plan& p) { p.roles[0].actions[find(p.roles[0], Verb::all_reduce)].peer.axis += "x"; });
  changed([](Plan& p) { p.roles[0].actions[find(p.roles[0], Verb::all_reduce)].slice.begin -= 1; });
  changed([](Plan& p) { p.strategies.clear(); });
  changed([](Plan& p) { p.role_axis = "stage"; });
  changed([](Plan& p) { p.micros = 2; });
  changed([](Plan& p) { p.roles[0].in_flight = 2; });
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) CHECK(all[i].hash() != all[j].hash());
  Plan profiled = chain();
  profiled.parts[0].cost.forward = 1;  // ranks measure different times, and still run one plan
  CHECK(profiled.hash() == chain().hash());
}

TEST_CASE("a plan prints as a table") {
  std::string text = parallel_chain().to_string();
  INFO(text);
  CHECK(text.find("all_reduce [400, 450) over data, on ready, after 5") != std::string::npos);
  CHECK(text.find("part   3  4") != std::string::npos);
}

TEST_CASE("insert keeps what ids mean") {
  Plan plan = parallel_chain();
  Plan more = plan;
  insert(more.roles[0], 2, {.verb = Verb::load});
  for (std::size_t i = 0, j = 0; i < plan.roles[0].actions.size(); ++i, ++j) {
    j += j == 2;
    auto expected = plan.roles[0].actions[i];
    for (auto& id : expected.after) id += id >= 2;
    CHECK(more.roles[0].actions[j] == expected);
  }
  CHECK(faults(more) == "");
}

TEST_CASE("check finds gradients that are not summed once") {
  check_finds(chain(), "is never reduced over the 2 ranks that share the batch: use data_parallel()");
  Plan plan = parallel_chain();
  Role& role = plan.roles[0];
  ActionId first = find(role, Verb::all_reduce);

  SECTION("one bucket is missing") {
    role.actions[first].slice.begin += 1;
    check_finds(plan, "gradient [400, 401) of part 3 ('4') is never reduced");
  }
  SECTION("two buckets overlap") {
    role.actions[first].slice.begin -= 30;
    check_finds(plan, "gradient [370, 400) of part 2 ('3') is reduced 2 times, by actions");
  }
  SECTION("the update does not wait for a bucket") {
    role.actions.back().after.pop_back();
    check_finds(plan, "before its reduction, action");
  }
  SECTION("a bucket starts before its gradient is complete") {
    role.actions[find(role, Verb::all_reduce, 2)].after = {5};
    check_finds(plan, "before the backward that completes it");
  }
  SECTION("the update comes before the backward") {
    Plan wrong = chain();
    std::swap(wrong.roles[0].actions[8], wrong.roles[0].actions[9]);
    check_finds(wrong, "before the backward that completes it, action 9", 1);
  }
}

TEST_CASE("check finds updates that overlap or leave something out") {
  Plan plan = chain();
  plan.roles[0].actions.back().slice = {0, 300};
  check_finds(plan, "gradient [300, 400) of part 2 ('3') updates nothing", 1);
  plan.roles[0].actions.push_back({.verb = Verb::update, .slice = {250, 450}});
  check_finds(plan, "gradient [250, 300) of part 2 ('3') is used by 2 updates, actions 9, 10", 1);
}

TEST_CASE("check finds passes out of order") {
  Plan plan = chain();
  auto& actions = plan.roles[0].actions;
  SECTION("backward before forward") {
    std::swap(actions[3], actions[5]);
    check_finds(plan, "(backward part 3) does not wait for role all, action 5 (forward part 3)", 1);
  }
  SECTION("a part's backward before that of the part behind it") {
    std::swap(actions[5], actions[6]);
    check_finds(plan, "(backward part 2) does not wait for role all, action 6 (backward part 3)", 1);
  }
  SECTION("a part is left out") {
    actions.erase(actions.begin() + 1);
    check_finds(plan, "part 1 ('2') micro 0 is never run forward", 1);
  }
  SECTION("a part is run twice") {
    insert(plan.roles[0], 2, actions[1]);
    check_finds(plan, "action 2 (forward part 1) repeats role all, action 1", 1);
  }
  SECTION("no loss") {
    actions.erase(actions.begin() + 4);
    check_finds(plan, "micro-batch 0 has no loss", 1);
  }
}

TEST_CASE("check finds dependencies on nothing, on itself, in a circle") {
  Plan plan = parallel_chain();
  auto& actions = plan.roles[0].actions;
  actions.back().after.push_back(99);
  check_finds(plan, "depends on action 99, which is not there");
  actions.back().after = {static_cast<int>(actions.size()) - 1};
  check_finds(plan, "which is itself");
  plan = parallel_chain(false);
  plan.roles[0].actions[5].after = {find(plan.roles[0], Verb::all_reduce)};
  check_finds(plan, "deadlock:");
}

TEST_CASE("check finds messages that do not meet") {
  Plan plan = two_stages();
  auto &first = plan.roles[0].actions, &second = plan.roles[1].actions;
  ActionId recv = find(plan.roles[1], Verb::recv, 1);
  SECTION("a send is missing") {
    ActionId id = find(plan.roles[0], Verb::send, 1);
    first[id] = {.verb = Verb::load};
    check_finds(plan, "(recv part 0 micro 1 from pipe -1): nobody sends it", 1);
  }
  SECTION("a recv is missing") {
    second[recv] = {.verb = Verb::load};
    check_finds(plan, "(send part 0 micro 1 to pipe +1): nobody receives it", 1);
  }
  SECTION("crossed") {
    std::swap(second[recv].micro, second[find(plan.roles[1], Verb::recv)].micro);
    check_finds(plan, "messages cross:", 1);
  }
  SECTION("off the end of the axis") {
    second[recv].peer.offset = 1;
    check_finds(plan, "there is no role there", 1);
  }
  SECTION("each waits for the other first") {
    insert(plan.roles[0], 0, message(Verb::recv, -1, 1, 1, Lane::compute));
    insert(plan.roles[0], 1, message(Verb::send, -1, 0, 1, Lane::compute));
    insert(plan.roles[1], 0, message(Verb::recv, -1, 0, -1, Lane::compute));
    insert(plan.roles[1], 1, message(Verb::send, -1, 1, -1, Lane::compute));
    check_finds(plan, "deadlock: these wait for partners that never start: role stage 0, action", 1);
  }
  SECTION("its own list waits in a circle") {
    first[find(plan.roles[0], Verb::send)].after.push_back(find(plan.roles[0], Verb::recv));
    check_finds(plan, "deadlock: role stage 0, action 1 (send part 0 to pipe +1) waits for itself", 1);
  }
  SECTION("a collective that only one role makes") {
    Action sum = message(Verb::all_reduce, -1, 0, 0);
    sum.slice = {0, 16};
    first.push_back(sum);
    check_finds(data_parallel()(plan), "role stage 0 makes 1 collectives along 'pipe', role stage 1 makes 0", 1);
  }
}

TEST_CASE("check finds what is wrong with a pipeline") {
  Plan start = serial({{"0", {0, 16}}, {"1", {16, 32}}, {"2", {32, 48}}, {"3", {48, 64}}}, 64, 0, {{"pipe", 2}});
  Plan plan = pipeline({.micro = 4, .schedule = "1f1b"})(start);
  REQUIRE(faults(plan, 1) == "");
  Role &first = plan.roles[0], &second = plan.roles[1];
  auto at = [](Role& role, Verb verb, int part, int micro) {
    auto is = [&](const Action& a) { return a.verb == verb && a.part == part && a.micro == micro; };
    return static_cast<ActionId>(std::find_if(role.actions.begin(), role.actions.end(), is) - role.actions.begin());
  };
  auto blank = [](Role& role, ActionId id) { role.actions[id] = {.verb = Verb::load}; };
  SECTION("a message is neither sent nor received") {
    blank(first, at(first, Verb::send, 1, 2));
    blank(second, at(second, Verb::recv, 1, 2));
    check_finds(plan, "(forward part 2 micro 2) has no input: no message brings it from role stage 0", 1);
  }
  SECTION("a gradient is not sent") {
    blank(second, at(second, Verb::send, 1, 3));
    check_finds(plan, "(recv part 1 micro 3 from pipe +1): nobody sends it", 1);
  }
  SECTION("a gradient is not received") {
    blank(first, at(first, Verb::recv, 1, 0));
    check_finds(plan, "(send part 1 to pipe -1): nobody receives it", 1);
  }
  SECTION("gradients are received in another order") {
    std::swap(first.actions[at(first, Verb::recv, 1, 0)].micro, first.actions[at(first, Verb::recv, 1, 1)].micro);
    check_finds(plan, "messages cross: role stage 0", 1);
  }
  SECTION("a forward does not wait for its message") {
    second.actions[at(second, Verb::forward, 2, 1)].after.clear();
    check_finds(plan, "(forward part 2 micro 1) does not wait for role stage 1", 1);
  }
  SECTION("a micro-batch is never run forward") {
    blank(second, at(second, Verb::forward, 3, 2));
    check_finds(plan, "part 3 ('3') micro 2 is never run forward", 1);
  }
  SECTION("what is freed is used") {
    const ActionId free = at(first, Verb::free, 1, 0);
    Action early = first.actions[free];
    blank(first, free);
    insert(first, at(first, Verb::backward, 1, 0), early);
    check_finds(plan, "(backward part 0) uses what action", 1);
  }
  SECTION("something is freed twice") {
    first.actions[at(first, Verb::free, 1, 1)].micro = 0;
    check_finds(plan, "frees what action", 1);
  }
  SECTION("too many in flight") {
    first.in_flight = 1;
    check_finds(plan, "makes 2 micro-batches in flight, where 1 are allowed", 1);
  }
  SECTION("two roles update one slice") {
    second.actions.back().slice.begin -= 8;
    check_finds(plan, "[24, 32) is updated by role stage 0 and by role stage 1", 1);
  }
  SECTION("a part changes its role between forward and backward") {
    ActionId id = at(first, Verb::backward, 0, 3);
    second.actions.insert(second.actions.end() - 1, first.actions[id]);
    blank(first, id);
    check_finds(plan, "(backward part 0 micro 3) needs what role stage 0", 1);
  }
  SECTION("each stage waits for the other") {
    first.actions[at(first, Verb::send, 1, 0)].after.push_back(at(first, Verb::recv, 1, 0));
    check_finds(plan, "deadlock:", 1);
  }
  SECTION("an update comes before a backward") {
    ActionId update = find(first, Verb::update);
    std::swap(first.actions[update], first.actions[at(first, Verb::backward, 0, 3)]);
    check_finds(plan, "before the backward that completes it", 1);
  }
  SECTION("the halves of a backward in the wrong order") {
    Plan halves = pipeline({.micro = 4, .schedule = "zb-h1"})(start);
    REQUIRE(faults(halves, 1) == "");
    Role& role = halves.roles[0];
    std::swap(role.actions[at(role, Verb::backward_input, 0, 1)], role.actions[at(role, Verb::backward_weight, 0, 1)]);
    check_finds(halves, "(backward_weight part 0 micro 1) does not wait for", 1);
  }
  SECTION("gradients of a stage are reduced twice, not at all, or too early") {
    start.axes = {{"pipe", 2}, {"data", 2}};
    check_finds(pipeline({})(start), "is never reduced over the 2 ranks", 2);
    Plan hybrid = data_parallel()(pipeline({.micro = 4})(start));
    REQUIRE(faults(hybrid, 2) == "");
    Role& role = hybrid.roles[1];
    ActionId reduce = find(role, Verb::all_reduce);
    Plan twice = hybrid;
    insert(twice.roles[1], reduce + 1, role.actions[reduce]);
    check_finds(twice, "is reduced 2 times", 2);
    role.actions[reduce].after = {at(role, Verb::backward, 2, 2)};
    check_finds(hybrid, "before the backward that completes it", 2);
  }
}

TEST_CASE("every schedule passes each micro-batch through each chunk, in plans that are sound") {
  std::vector<PartInfo> parts;
  for (Index p = 0; p < 16; ++p) parts.push_back({.name = std::to_string(p), .slice = {10 * p, 10 * p + 10}});
  for (auto& schedule : schedules())
    for (int roles : {2, 3, 4, 8})
      for (int micros : {1, 2, 8, 12})
        for (int chunks : {1, 2}) {
          if ((chunks > 1) != schedule.interleaves || (schedule.interleaves && micros % roles != 0)) continue;
          INFO(schedule.name << ", " << roles << " roles, " << micros << " micro-batches");
          const PipelineShape shape{roles, micros, chunks};
          const Plan plan = pipeline({.micro = micros, .schedule = schedule.name, .chunks = chunks})(
              serial(parts, 160, 0, {{"pipe", roles}}));
          CHECK(faults(plan, 1) == "");
          CHECK(faults(data_parallel({.first_bucket = 10, .bucket = 10})(plan), 2) == "");
          for (int r = 0; r < roles; ++r) {
            const auto cells = schedule.cells(shape, r);
            for (Verb verb : {Verb::forward, Verb::backward_weight}) {
              auto ends = [&](const Cell& c) {
                return c.verb == verb || (verb != Verb::forward && c.verb == Verb::backward);
              };
              CHECK(std::count_if(cells.begin(), cells.end(), ends) == micros * chunks);
            }
            CHECK(plan.roles[r].in_flight == peak_in_flight(plan.roles[r]));
            if (schedule.name == "1f1b" || schedule.name == "zb-h1") CHECK(plan.roles[r].in_flight <= roles);
          }
        }
}

TEST_CASE("stages are cut by cost, transfer and memory, evenly, or by name") {
  auto parts_of = [](const std::vector<double>& seconds) {
    std::vector<PartInfo> parts;
    for (double s : seconds)
      parts.push_back({std::to_string(parts.size()), {}, {.forward = s, .saved = 100, .output = 8}});
    return parts;
  };
  using Cuts = std::vector<int>;
  const auto parts = parts_of({1, 1, 1, 1, 4, 1, 1, 1, 1});
  CHECK(cut_by_cost(parts, {.stages = 1}) == Cuts{0});
  CHECK(cut_by_cost(parts, {.stages = 3}) == Cuts{0, 4, 5});
  CHECK(cut_by_cost(parts, {.stages = 9}) == Cuts{0, 1, 2, 3, 4, 5, 6, 7, 8});
  // Against every cut there is, transfer included.
  for (std::uint64_t salt = 0; salt < 20; ++salt) {
    std::vector<PartInfo> all = parts_of({1, 1, 1, 1, 1, 1, 1});
    for (std::size_t p = 0; p < all.size(); ++p)
      all[p].cost.forward = static_cast<double>((salt * 31 + p * p * 7) % 11), all[p].cost.output = (salt + p * 5) % 9;
    auto dearest = [&](const Cuts& cuts) {
      double most = 0;
      for (std::size_t s = 0; s < cuts.size(); ++s) {
        const int end = s + 1 < cuts.size() ? cuts[s + 1] : 7;
        double time = 0;
        for (int p = cuts[s]; p < end; ++p) time += all[p].cost.forward;
        most = std::max({most, time, end < 7 ? 2.0 * all[end - 1].cost.output : 0});
      }
      return most;
    };
    double least = 1e300;
    for (int a = 1; a < 6; ++a)
      for (int b = a + 1; b < 7; ++b) least = std::min(least, dearest({0, a, b}));
    CHECK(dearest(cut_by_cost(all, {.stages = 3, .bandwidth = 1})) == least);
  }
  // The first stages hold more micro-batches, so under a tight bound they get fewer parts.
  const auto alike = parts_of({1, 1, 1, 1, 1, 1});
  auto held = [](int stage) { return stage == 0 ? 3 : 1; };
  CHECK(cut_by_cost(alike, {.stages = 2, .memory = 900, .in_flight = held}) == Cuts{0, 3});
  CHECK(cut_by_cost(alike, {.stages = 2, .memory = 500, .in_flight = held}) == Cuts{0, 1});
  CHECK_THROWS_WITH(cut_by_cost(alike, {.stages = 2, .memory = 400, .in_flight = held}),
                    contains("no cut into 2 stages keeps each within 400 bytes; the best one needs 500"));

  CHECK(cut_evenly(7, 3) == Cuts{0, 3, 5});
  std::vector<PartInfo> named = parts_of({1, 1, 1, 1});
  named[1].name = "conv2-pool", named[2].name = "fc";
  CHECK(cut_by_name(named, 3, "conv2, fc") == Cuts{0, 1, 2});
  CHECK_THROWS_WITH(cut_by_name(named, 3, "fc,conv2"), contains("'conv2' does not come behind"));
  CHECK_THROWS_WITH(cut_by_name(named, 2, "conv"),
                    contains("no stage can begin at 'conv'; the parts are: 0, conv2-pool"));
  CHECK_THROWS_WITH(cut_by_name(named, 3, "fc"), contains("names 1 stages' beginnings, 3 stages want 2"));
  Plan plan = parse_strategy("pipeline(partition=\"conv2,fc\", micro=2)")(serial(named, 0, 0, {{"pipe", 3}}));
  CHECK(plan.role_of(0) == 0);
  CHECK(plan.role_of(1) == 1);
  CHECK(plan.role_of(3) == 2);
  CHECK_THROWS_WITH(parse_strategy("pipeline(partition=\"a)"), contains("does not close it"));
}

TEST_CASE("messages along the data axis go round") {
  Plan plan = chain();
  auto& actions = plan.roles[0].actions;
  actions.push_back(message(Verb::send, -1, 0, 1));
  actions.push_back(message(Verb::recv, -1, 0, -1));
  for (int i : {1, 2}) actions[actions.size() - i].peer.axis = "data";
  auto text = faults(plan, 3);
  CHECK(text.find("nobody") == std::string::npos);
  actions.back().peer.offset = 1;
  check_finds(plan, "nobody sends it", 3);
}

TEST_CASE("strategies compose and are read from text") {
  CHECK(parse_strategy("serial").name() == "serial");
  CHECK(parse_strategy("serial")(chain()) == chain());
  CHECK(parse_strategy("data_parallel")(chain()) == data_parallel()(chain()));
  CHECK(parse_strategy(" data_parallel( overlap = false , bucket=200, first_bucket=10 ) ")(chain()) ==
        parallel_chain(false));
  CHECK(parse_strategy("data_parallel(norm_scope=group, norm_group=4)").norm_group == 4);
  CHECK((Strategy() | data_parallel({.norm_scope = NormScope::global})).norm_scope == NormScope::global);
  CHECK((data_parallel({.norm_scope = NormScope::global}) | Strategy()).norm_scope == NormScope::global);
  CHECK(parse_strategy("serial | data_parallel").name() == "data_parallel");
  CHECK(data_parallel().claim() == Claim::exact);
  Strategy late("late", Claim::delayed, [](Plan p) { return p; });
  CHECK((data_parallel() | late).claim() == Claim::delayed);
  CHECK((data_parallel() | late).name() == "data_parallel | late");
  for (auto& row : strategies()) CHECK(faults(row.make()(chain()), row.axis == "data" ? 2 : 1) == "");

  CHECK_THROWS_WITH(parse_strategy("data_paralel"),
                    contains("there is no 'data_paralel'") && contains("serial, accumulate, pipeline, data_parallel"));
  CHECK_THROWS_WITH(parse_strategy("data_paralel"), contains("did you mean 'data_parallel'"));
  CHECK_THROWS_WITH(parse_strategy("data_parallel(buckets=3)"),
                    contains("has no knob 'buckets'; it has: axis, first_bucket, bucket"));
  CHECK_THROWS_WITH(parse_strategy("data_parallel(bucket=x)"), contains("wants a whole number"));
  CHECK_THROWS_WITH(parse_strategy("data_parallel(overlap=1)"), contains("wants true or false"));
  CHECK_THROWS_WITH(parse_strategy("data_parallel(bucket=1"), contains("does not close it"));
  CHECK_THROWS_WITH(parse_strategy("data_parallel |"), contains("empty place"));
  CHECK_THROWS_WITH(parse_strategy(""), contains("empty place"));
  CHECK_THROWS_WITH(parse_strategy("serial(x=1)"), contains("it has: none"));
}
