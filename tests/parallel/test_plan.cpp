// Plans as data: the rewrites, schedules and cuts, and strategies as text.
#include <set>

#include "parallel/plan/codec.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/peers.h"
#include "parallel/strategies/partition.h"
#include "parallel/strategies/schedules.h"
#include "tests/parallel/plans.h"

namespace test_plan {

using namespace trireme;
using namespace trireme::test;

TEST_CASE("serial and data_parallel plans are sound") {
  CHECK(faults(chain(), 1) == "");
  for (bool overlap : {true, false})
    for (int ranks : {1, 2, 5, 100000}) CHECK(faults(parallel_chain(overlap), ranks) == "");
  for (Index first : {1, 16, 100, 1000})
    for (Index bucket : {1, 7, 50, 1000})
      CHECK(faults(data_parallel({.first_bucket = first, .bucket = bucket})(chain(12)), 3) == "");
  for (int microbatches : {1, 2, 4}) CHECK(faults(two_stages(microbatches), 1) == "");
  CHECK(faults(data_parallel({.bucket = 8})(two_stages()), 4) == "");
}

TEST_CASE("data_parallel cuts the block from its end and starts each bucket where its last gradient completes") {
  Plan plan = parallel_chain();
  auto& actions = plan.programs[0].actions;
  std::vector<Slice> reduced;
  for (auto& a : actions)
    if (a.kind == ActionKind::all_reduce) {
      reduced.push_back(a.slice);
      CHECK(a.on_ready);
      REQUIRE(a.after.size() == 1);
      const Action& completes = actions[a.after[0]];
      CHECK(completes.kind == ActionKind::backward);
      CHECK(plan.parts[completes.part].slice.begin <= a.slice.begin);
    }
  CHECK(reduced == std::vector<Slice>{{400, 450}, {100, 400}, {0, 100}});
  CHECK(actions.back().kind == ActionKind::update);
  CHECK(actions.back().after.size() == 3);
  CHECK(plan.strategies == std::vector<std::string>{"data_parallel"});
}

TEST_CASE("buckets cover the block once, last first, whatever their sizes") {
  std::vector<PartInfo> parts = {{"a", {0, 7}}, {"b", {7, 7}}, {"c", {7, 1000}}, {"d", {1000, 1003}}};
  for (Index first : {1, 5, 100, 5000})
    for (Index bucket : {1, 3, 64, 5000}) {
      Index end = 1003;
      for (const auto& [slice, axis] : cut_buckets(parts, {0, 1003}, {.first_bucket = first, .bucket = bucket})) {
        CHECK(axis == "data");
        CHECK(slice.end == end);
        CHECK(slice.size() > 0);
        CHECK(slice.size() <= std::max(first + 993, 2 * bucket));
        end = slice.begin;
      }
      CHECK(end == 0);
    }
  CHECK_ERROR(cut_buckets(parts, {0, 1003}, {.bucket = 0}), usage, "data_parallel", 0);
}

TEST_CASE("a further axis keeps the buckets, and cuts them between weights that are summed over other axes") {
  std::vector<PartInfo> parts = {{"a", {0, 430}}, {"b", {430, 800}}};
  parts[1].divided = {{"data", {{430, 800}}}};
  const Plan first = serial(parts, 800, 0, {{"replica", 2}, {"data", 2}});
  for (const bool overlap : {false, true}) {
    const Plan plan = (data_parallel({.axis = "replica", .first_bucket = 90, .bucket = 90, .overlap = overlap}) |
                       data_parallel())(first);
    Index end = 800;
    for (const Action& a : plan.programs[0].actions) {
      if (a.kind != ActionKind::all_reduce) continue;
      CHECK(a.slice.end == end);
      CHECK(a.slice.size() <= 180);
      CHECK(a.peer.axis == (a.slice.begin < 430 ? "data+replica" : "replica"));
      CHECK((a.slice.begin >= 430 || a.slice.end <= 430));
      CHECK(a.on_ready == overlap);
      end = a.slice.begin;
    }
    CHECK(end == 0);
    CHECK(check(plan, 4).empty());
  }
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
  changed([](Plan& p) { p.programs[0].actions[3].part = 1; });
  changed([](Plan& p) { p.programs[0].actions.back().after.pop_back(); });
  changed([](Plan& p) { p.programs[0].actions.back().stream = Stream::comm; });
  changed([](Plan& p) { p.programs[0].actions[find(p.programs[0], ActionKind::all_reduce)].peer.axis += "x"; });
  changed([](Plan& p) { p.programs[0].actions[find(p.programs[0], ActionKind::all_reduce)].slice.begin -= 1; });
  changed([](Plan& p) { p.strategies.clear(); });
  changed([](Plan& p) { p.stage_axis = "stage"; });
  changed([](Plan& p) { p.microbatches = 2; });
  changed([](Plan& p) { p.programs[0].in_flight = 2; });
  static const Codec codec{.name = "half"};
  changed([](Plan& p) { p.programs[0].actions[find(p.programs[0], ActionKind::all_reduce)].codec = &codec; });
  changed([](Plan& p) { p.programs[0].actions[0].arguments = {{"weight", 0.5}}; });
  changed([](Plan& p) { p.programs[0].actions[0].arguments = {{"weight", 0.25}}; });
  changed([](Plan& p) { p.programs[0].actions[0].peer.pairs = "ring"; });
  changed([](Plan& p) { p.programs[0].actions[0].peer.seed = 1; });
  changed([](Plan& p) { p.programs[0].actions[0].payload = OperandKind::loss; });
  changed([](Plan& p) {
    p.programs[0].actions[0].payload = OperandKind::state;
    p.programs[0].actions[0].names = {"loss"};
  });
  changed([](Plan& p) { p.programs[0].phases[0].trigger.every = 2; });
  changed([](Plan& p) { add_phase(p.programs[0], "later", {.from = 5}); });
  changed([](Plan& p) { p.programs[0].actions[0].phase = add_phase(p.programs[0], "later", {.from = 5}); });
  changed([](Plan& p) { p.state = {{.name = "residual"}}; });
  changed([](Plan& p) { p.state = {{.name = "residual", .initial = 1}}; });
  changed([](Plan& p) { p.consistency["data"] = {Consistency::Kind::periodic, 4}; });
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      CHECK(all[i].hash() != all[j].hash());  // and the text that ranks compare then shows where
      const auto body = [](const std::string& text) { return text.substr(text.find('\n')); };
      INFO(i << " and " << j);
      CHECK((body(all[i].to_string()) != body(all[j].to_string()) || all[i].strategies != all[j].strategies));
    }
  Plan profiled = chain();
  profiled.parts[0].cost.forward = 1;  // ranks measure different times, and still run one plan
  CHECK(profiled.hash() == chain().hash());
}

TEST_CASE("a plan prints as a table") {
  std::string text = parallel_chain().to_string();
  INFO(text);
  CHECK(text.find("all_reduce gradients [400, 450) over data, on ready, after 5") != std::string::npos);
  CHECK(text.find("part   3  4") != std::string::npos);
}

TEST_CASE("insert keeps what ids mean") {
  Plan plan = parallel_chain();
  Plan more = plan;
  insert(more.programs[0], 2, {.kind = ActionKind::drop, .payload = OperandKind::weights});
  for (std::size_t i = 0, j = 0; i < plan.programs[0].actions.size(); ++i, ++j) {
    j += j == 2;
    auto expected = plan.programs[0].actions[i];
    for (auto& id : expected.after) id += id >= 2;
    CHECK(more.programs[0].actions[j] == expected);
  }
  CHECK(faults(more) == "");
}

/// The segments of a program, "0-1 2"; empty unless each kind of pass and micro-batch starts each segment once.
std::string segments_of(const Program& program) {
  const Liveness live(program);
  std::map<std::pair<ActionKind, MicroBatch>, std::size_t> starts;
  for (const Action& a : program.actions)
    if (is_pass(a) && a.kind != ActionKind::loss) starts[{a.kind, a.microbatch}] += live.starts_segment(a);
  std::string text;
  for (const Segment& s : live.segments)
    text += (text.empty() ? "" : " ") + std::to_string(s.first) + "-" + std::to_string(s.end - 1);
  const bool once = std::ranges::all_of(starts, [&](const auto& s) { return s.second == live.segments.size(); });
  return once ? text : "";
}

TEST_CASE("passes that follow each other are one segment, and any action but a reduction cuts them") {
  const auto segments = [](const Plan& plan, int program = 0) {
    return segments_of(plan.programs[static_cast<std::size_t>(program)]);
  };
  const Plan plain = serial({{"0", {0, 9}}, {"1", {9, 18}}, {"2", {18, 27}}, {"3", {27, 36}}}, 36, 0, {{"data", 2}});
  const DataParallelOptions small{.first_bucket = 9, .bucket = 9};
  CHECK(segments(plain) == "0-3");
  CHECK(segments(accumulate(3)(plain)) == "0-3");
  CHECK(segments(data_parallel(small)(plain)) == "0-3");                          // reductions between the backwards
  CHECK(segments((data_parallel(small) | zero(1))(plain)) == "0-0 1-1 2-2 3-3");  // gathers
  CHECK(segments((data_parallel(small) | zero(2))(plain)) == "0-0 1-1 2-2 3-3");
  CHECK(segments((data_parallel(small) | zero(3))(plain)) == "0-0 1-1 2-2 3-3");  // gathers
  const Plan staged =
      pipeline({.micro = 4, .schedule = "zb-h1", .partition = "even"})(serial(plain.parts, 36, 0, {{"pipe", 2}}));
  CHECK(segments(staged, 0) == "0-1");
  CHECK(segments(staged, 1) == "2-3");
  for (const ActionKind& kind : {ActionKind::forward, ActionKind::backward}) {  // an action before part 2 cuts there
    Plan cut = plain;
    auto& actions = cut.programs[0].actions;
    const auto at = std::ranges::find_if(actions, [&](const Action& a) { return a.kind == kind && a.part == 2; });
    insert(cut.programs[0], static_cast<ActionId>(at - actions.begin()), {.kind = ActionKind::agree});
    CHECK(segments(cut) == (kind == ActionKind::forward ? "0-1 2-3" : "0-2 3-3"));
  }
}

TEST_CASE("every schedule passes each micro-batch through each chunk, in plans that are sound") {
  std::vector<PartInfo> parts;
  for (Index p = 0; p < 16; ++p) parts.push_back({.name = std::to_string(p), .slice = {10 * p, 10 * p + 10}});
  for (auto& schedule : schedules())
    for (int programs : {2, 3, 4, 8})
      for (int microbatches : {1, 2, 8, 12})
        for (int chunks : {1, 2}) {
          if ((chunks > 1) != (schedule.interleaves || schedule.folds)) continue;
          if (schedule.interleaves && microbatches % programs != 0) continue;
          INFO(schedule.name << ", " << programs << " programs, " << microbatches << " micro-batches");
          const PipelineShape shape{programs, microbatches, chunks};
          const Plan plan = pipeline({.micro = microbatches, .schedule = schedule.name, .chunks = chunks})(
              serial(parts, 160, 0, {{"pipe", programs}}));
          CHECK(faults(plan, 1) == "");
          CHECK(faults(data_parallel({.first_bucket = 10, .bucket = 10})(plan), 2) == "");
          for (int r = 0; r < programs; ++r) {
            const auto cells = schedule.cells(shape, r);
            for (ActionKind kind : {ActionKind::forward, ActionKind::backward_weight}) {
              auto ends = [&](const Cell& c) {
                return c.kind == kind || (kind != ActionKind::forward && c.kind == ActionKind::backward);
              };
              const bool turns = schedule.folds && r + 1 == programs;  // its two chunks are one
              CHECK(std::count_if(cells.begin(), cells.end(), ends) == microbatches * (turns ? 1 : chunks));
            }
            CHECK(plan.programs[r].in_flight == peak_in_flight(plan.programs[r]));
            if (schedule.name == "1f1b" || schedule.name == "zb-h1") CHECK(plan.programs[r].in_flight <= programs);
          }
        }
}

TEST_CASE("a limit of memory holds for the activations of every rank of a V") {
  std::vector<PartInfo> parts;
  for (int i = 0; i < 24; ++i)
    parts.push_back({std::to_string(i), {}, {.forward = 1, .saved = i < 8 ? 400 : 100, .output = 8}});
  int cut = 0;
  double before = 0;
  for (Index memory = 100'000; memory > 3'000; memory -= 500) {
    Plan plan;
    try {
      plan =
          pipeline({.micro = 8, .schedule = "zb-v", .chunks = 2, .memory = memory})(serial(parts, 0, 0, {{"pipe", 3}}));
    } catch (const Error&) { continue; }
    ++cut;
    INFO("memory " << memory);
    double most = 0;
    for (const Program& program : plan.programs) {
      double held = 0;
      for (const Action& a : program.actions) {
        if (a.part < 0 || a.kind == ActionKind::free || is_message(a)) continue;
        const auto saved = static_cast<double>(parts[static_cast<std::size_t>(a.part)].cost.saved);
        held += saved * ((a.kind == ActionKind::forward) - (a.kind == ActionKind::backward_weight));
        most = std::max(most, held);
      }
    }
    CHECK(most <= static_cast<double>(memory));
    before = most;
  }
  CHECK(cut > 10);
  CHECK(before < 60'000);
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
    for (std::size_t p = 0; p < all.size(); ++p) {
      all[p].cost.forward = static_cast<double>((salt * 31 + p * p * 7) % 11);
      all[p].cost.output = (salt + p * 5) % 9;
    }
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
  CHECK_ERROR(cut_by_cost(alike, {.stages = 2, .memory = 400, .in_flight = held}), out_of_memory, 2, 400, 500);

  CHECK(cut_evenly(7, 3) == Cuts{0, 3, 5});
  std::vector<PartInfo> named = parts_of({1, 1, 1, 1});
  named[1].name = "conv2-pool";
  named[2].name = "fc";
  CHECK(cut_by_name(named, 3, "conv2, fc") == Cuts{0, 1, 2});
  CHECK_ERROR(cut_by_name(named, 3, "fc,conv2"), usage, "pipeline", "conv2");
  CHECK_ERROR(cut_by_name(named, 2, "conv"), usage, "conv", "conv2-pool");
  CHECK_ERROR(cut_by_name(named, 3, "fc"), usage, 1, 3, 2);
  Plan plan = parse_strategy("pipeline(partition=\"conv2,fc\", micro=2)")(serial(named, 0, 0, {{"pipe", 3}}));
  CHECK(plan.program_of(0) == 0);
  CHECK(plan.program_of(1) == 1);
  CHECK(plan.program_of(3) == 2);
  CHECK_ERROR(parse_strategy("pipeline(partition=\"a)"), usage, "strategy", "pipeline(partition=\"a)");
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
  CHECK((data_parallel({.norm_scope = NormScope::local}) | zero(2)).scope() == NormScope::local);
  CHECK(parse_strategy("data_parallel(norm_scope=local) | spatial").scope() == NormScope::local);
  for (auto& row : strategies()) {
    const Strategy strategy = parse_strategy(row.name);
    if (strategy.claim() == Claim::exact) CHECK(strategy.scope() == NormScope::global);
  }
  CHECK_ERROR(parse_strategy("data_parallel(norm_scope=micro)"), usage, "data_parallel", "micro");
  CHECK(parse_strategy("serial | data_parallel").name() == "data_parallel");
  CHECK(data_parallel().claim() == Claim::exact);
  for (const char* local : {"data_parallel(norm_scope=local)", "one_weird_trick(norm_scope=group, norm_group=2)",
                            "data_parallel(norm_scope=local) | zero(1)"}) {
    CHECK(parse_strategy(local).claim() == Claim::statistical);
    CHECK(parse_strategy(local).claim(false) == Claim::exact);
  }
  Strategy late("late", Claim::delayed, [](Plan p) { return p; });
  CHECK((data_parallel() | late).claim() == Claim::delayed);
  CHECK((data_parallel() | late).name() == "data_parallel | late");
  for (auto& row : strategies()) {
    Plan plan = chain();
    if (row.least > 1) plan.axes = {{row.axis, row.least}};
    const std::string sums = row.name == std::string("experts") ? " | data_parallel" : "";  // it divides weights alone
    CHECK(faults(parse_strategy(row.name + sums)(plan), row.axis == "data" ? 2 : 1) == "");
  }

  CHECK_ERROR(parse_strategy("data_paralel"), usage, "data_paralel", "data_parallel");
  CHECK_ERROR(parse_strategy("one_weird"), usage, "strategy", "one_weird_trick");
  CHECK_ERROR(parse_strategy("data_paralel"), usage, "strategy", "data_parallel");
  CHECK_ERROR(parse_strategy("data_parallel(buckets=3)"), usage, "buckets", "bucket", "first_bucket");
  CHECK_ERROR(parse_strategy("data_parallel(bucket=x)"), usage, "bucket", "x");
  CHECK_ERROR(parse_strategy("data_parallel(overlap=1)"), usage, "overlap", 1);
  CHECK_ERROR(parse_strategy("data_parallel(bucket=1"), usage, "strategy", "data_parallel(bucket=1");
  CHECK_ERROR(parse_strategy("data_parallel |"), usage, "strategy", "data_parallel");
  CHECK_ERROR(parse_strategy(""), usage, "strategy");
  CHECK_ERROR(parse_strategy("serial(x=1)"), usage, "serial", "x");
}

TEST_CASE("phases run at the steps that their triggers say") {
  for (std::int64_t every : {1, 2, 3, 7})
    for (std::int64_t offset = 0; offset < every; ++offset)
      for (std::int64_t from : {0, 1, 5, 8})
        for (std::int64_t until : {9, 20}) {
          const Trigger t{every, offset, from, until};
          int runs = 0;
          for (std::int64_t step = 0; step < 30; ++step) {
            const bool expected = step >= from && step < until && (step - offset) % every == 0;
            CHECK(t.runs_at(step) == expected);
            runs += expected;
          }
          CHECK(runs > 0 - (until - from < every));
        }
  Program program;
  const int phase = add_phase(program, "average", {.every = 4});
  CHECK(phase == 1);
  CHECK(add_phase(program, "average", {.every = 4}) == phase);
  CHECK_ERROR(add_phase(program, "average", {.every = 5}), usage, "plan", "average");
  CHECK(to_string(Trigger{.every = 4, .from = 100}) == "every 4 steps from 100 on");
}

TEST_CASE("ranks that exchange something by rule match, whatever their number and the step") {
  for (const std::string rule : {"ring", "torus", "exponential", "matching", "directed_ring"})
    for (int ranks : {1, 2, 3, 4, 5, 7, 8, 16, 33, 100})
      for (std::int64_t step = 0; step < 12; ++step) {
        const Peer peer{.axis = "data", .pairs = rule, .seed = 9};
        std::vector<std::pair<int, int>> sent, received;  // sender and receiver
        std::set<std::size_t> numbers;                    // of exchanges
        int idle = 0;
        for (int r = 0; r < ranks; ++r) {
          INFO(rule << ", rank " << r << " of " << ranks << ", step " << step);
          const auto pairs = peers_at(peer, r, ranks, step);
          idle += pairs.empty();
          numbers.insert(pairs.size());
          for (const auto& [to, from] : pairs) {
            REQUIRE((to >= 0 && to < ranks && to != r && from != r));
            sent.emplace_back(r, to);
            received.emplace_back(from, r);
            if (rule != "exponential" && rule != "directed_ring") CHECK(to == from);
          }
        }
        std::ranges::sort(sent);
        std::ranges::sort(received);
        CHECK(sent == received);
        CHECK(std::ranges::adjacent_find(sent) == sent.end());
        if (rule == "matching") CHECK(idle == ranks % 2);
        if (rule != "matching") CHECK(numbers.size() == 1);  // as many for all
        if (rule == "ring" && ranks > 2) CHECK(sent.size() == 2 * static_cast<std::size_t>(ranks));
      }
  CHECK(peers_at({.axis = "data", .pairs = "torus"}, 5, 16, 0) ==
        std::vector<RankPair>{{6, 6}, {4, 4}, {9, 9}, {1, 1}});
  const Peer drawn{.axis = "data", .pairs = "matching", .seed = 1},
      other{.axis = "data", .pairs = "matching", .seed = 2};
  int changes = 0, differs = 0;
  for (int r = 0; r < 1000; ++r) {
    changes += peers_at(drawn, r, 1000, 0) != peers_at(drawn, r, 1000, 1);
    differs += peers_at(drawn, r, 1000, 0) != peers_at(other, r, 1000, 0);
  }
  CHECK(changes > 950);
  CHECK(differs > 950);
  const auto far = peers_at(drawn, 99'999, 100'000, 5);  // needs no table
  CHECK(peers_at(drawn, far.at(0).to, 100'000, 5).at(0).to == 99'999);
  CHECK_ERROR(peers_at({.axis = "data", .pairs = "star"}, 0, 4, 0), usage, "random_target", "bipartite_ring");
}

TEST_CASE("what ranks draw at random does not depend on what others draw, nor on the step before") {
  constexpr int steps = 4000;
  for (const std::uint64_t seed : {0, 1, 7})
    for (const int ranks : {3, 4, 5}) {
      CAPTURE(seed, ranks);
      const Peer drawn{.axis = "data", .pairs = "random_target", .seed = seed};
      std::map<std::pair<int, int>, int> together, behind;
      for (int s = 0; s < steps; ++s) {
        const auto target = [&](int rank, int step) { return peers_at(drawn, rank, ranks, step).front().to; };
        ++together[{target(0, s), target(1, s)}];
        ++behind[{target(0, s), target(0, s + 1)}];
      }
      const double each = steps / std::pow(ranks - 1, 2);
      for (const auto& counts : {together, behind}) {
        CHECK(std::ssize(counts) == (ranks - 1) * (ranks - 1));
        for (const auto& [who, count] : counts) CHECK(std::abs(count - each) < 6 * std::sqrt(each));
      }
    }
}

TEST_CASE("random matchings are all equally likely, whatever the number of ranks") {
  // Of an even number n there are (n - 1)(n - 3)...; of an odd one as many as of n + 1, whose partner is left out.
  for (const auto& [ranks, matchings] : {std::pair{3, 3}, {4, 3}, {5, 15}, {6, 15}, {8, 105}})
    for (const std::uint64_t seed : {0, 5}) {
      CAPTURE(ranks, seed);
      const int steps = 100 * matchings;
      std::map<std::vector<int>, int> counts;
      for (int s = 0; s < steps; ++s) {
        std::vector<int> partners;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto drawn = peers_at({.axis = "data", .pairs = "matching", .seed = seed}, rank, ranks, s);
          partners.push_back(drawn.empty() ? -1 : drawn.front().to);
        }
        ++counts[partners];
      }
      CHECK(std::ssize(counts) == matchings);
      double chi_square = 0;  // of as many degrees of freedom as there are matchings, less one
      for (const auto& [partners, count] : counts) chi_square += (count - 100.0) * (count - 100.0) / 100;
      CHECK(chi_square < matchings - 1 + 4 * std::sqrt(2.0 * (matchings - 1)));
    }
}

TEST_CASE("ranks that draw one to send to are all received from") {
  for (int ranks : {1, 2, 3, 5, 16, 33})
    for (std::int64_t step = 0; step < 12; ++step) {
      std::vector<std::pair<int, int>> sent, received;
      for (int r = 0; r < ranks; ++r)
        for (const auto& [to, from] : peers_at({.axis = "data", .pairs = "random_target", .seed = 3}, r, ranks, step)) {
          if (to != r) sent.emplace_back(r, to);
          if (from != r) received.emplace_back(from, r);
        }
      std::ranges::sort(sent);
      std::ranges::sort(received);
      CHECK(sent == received);
      REQUIRE(std::ssize(sent) == (ranks > 1 ? ranks : 0));
      for (int r = 0; r < std::ssize(sent); ++r) CHECK(sent[static_cast<std::size_t>(r)].first == r);  // one each
    }
}

}  // namespace test_plan
