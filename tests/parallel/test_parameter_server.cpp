// The claims of parameter_server: synchronous servers equal the serial run, ssp(0) equals them; shares of servers;
// options that contradict each other, and plans that cannot be.
#include "parallel/async/inbox.h"
#include "parallel/runtime/step.h"
#include "tests/parallel/plans.h"
#include "tests/parallel/training.h"

namespace test_parameter_server {

using namespace trireme;
using namespace trireme::test;

namespace {

Setup small(DType dtype = DType::f64) {
  return {
      .model =
          [] { return Sequential{flatten, Linear(100, 12), relu, Dropout(0.25), Linear(12, 8), relu, Linear(8, 5)}; },
      .dtype = dtype,
      .samples = 400,
      .batch = 150,  // the last of three has 100 rows
      .steps = 4};
}

}  // namespace

TEST_CASE("synchronous servers equal the serial run: both shares, workers with more and fewer rows") {
  const Outcome want = serial_run(small());
  for (const int ranks : rank_counts({2, 4, 7}))
    for (const std::string shard : {"bytes", "layer"})
      for (int servers = 1; servers <= std::min(3, ranks - 1); ++servers) {
        CAPTURE(ranks, servers, shard);
        check_close(parallel_run(small(), {{"data", ranks}}, parameter_server({.servers = servers, .shard = shard})),
                    want, 1e-12);
      }
}

TEST_CASE("64 workers and their synchronous servers equal the serial run in virtual time") {
  if (threads_only()) return;
  const Outcome want = serial_run(small());
  for (const std::string shard : {"bytes", "layer"})
    for (int servers = 1; servers <= 4; ++servers) {
      if (shard == "layer" && servers > 3) continue;
      CAPTURE(servers, shard);
      check_close(
          parallel_run(small(), {{"data", 64 + servers}}, parameter_server({.servers = servers, .shard = shard}), true),
          want, 1e-12);
    }
}

TEST_CASE("synchronous servers keep the state of other optimizers, and batch norms see all rows") {
  const int ranks = rank_counts({4})[0];
  Setup adam = small(), normed = small();
  adam.optimizer_config = Adam{.lr = 0.01};
  normed.model = [] { return Sequential{flatten, Linear(100, 12), BatchNorm(12), relu, Linear(12, 5)}; };
  for (const Setup& s : {adam, normed})
    check_close(parallel_run(s, {{"data", ranks}}, parameter_server({.servers = ranks > 2 ? 2 : 1})), serial_run(s),
                1e-11);
}

TEST_CASE("ssp(0) equals sync for plain SGD") {
  // W updates by a W-th of a mean each, where sync has one by their sum: other last bits, unless there is one worker.
  if (threads_only()) return;
  for (const bool virtual_time : {false, true})
    for (const int workers : {1, 2, 4, 6})
      for (const int servers : {1, 2}) {
        CAPTURE(virtual_time, workers, servers);
        Setup s = small();
        s.optimizer_config = Sgd{.lr = 0.1};
        s.samples = 144;
        s.batch = 24;
        s.steps = 9;  // as many rows for each
        const auto run = [&](const ParameterServerOptions& o) {
          return parallel_run(s, {{"data", workers + servers}}, parameter_server(o), virtual_time);
        };
        const Outcome sync = run({.servers = servers});
        const Outcome ssp = run({.servers = servers, .mode = "ssp", .staleness = 0});
        CHECK(distance(ssp.first, sync.first, sync.weight_ends) < 1e-12);
        CHECK(distance(ssp.weights, sync.weights, sync.weight_ends) < 1e-12);
        if (workers == 1) check_same_bits(ssp, sync);
      }
}

TEST_CASE("the shares of servers cover the weights, by bytes evenly, by layers in whole parts") {
  if (threads_only()) return;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::vector<PartInfo> parts;
    Index at = 0, weighted = 0, largest = 0;
    const int count = 1 + static_cast<int>(mix(seed) % 12);
    for (int p = 0; p < count; ++p) {
      const Index size = mix(seed * 50 + p) % 3 == 0 ? 0 : 1 + static_cast<Index>(mix(seed * 70 + p) % 1000);
      parts.push_back({.name = std::to_string(p), .slice = {at, at + size}});
      at += size;
      weighted += size > 0;
      largest = std::max(largest, size);
    }
    if (weighted == 0) continue;
    const int servers = 1 + static_cast<int>(mix(seed + 9) % static_cast<std::uint64_t>(weighted));
    for (const std::string shard : {"bytes", "layer"}) {
      if (shard == "bytes" && servers > at) continue;
      CAPTURE(seed, servers, shard);
      const Plan plan =
          parameter_server({.servers = servers, .shard = shard})(serial(parts, at, 0, {{"data", 9 + servers}}));
      REQUIRE(std::ssize(plan.programs) == 1 + servers);
      Index end = 0;
      for (int s = 0; s < servers; ++s) {
        const auto slices = plan.updated(static_cast<std::size_t>(1 + s));
        REQUIRE(slices.size() == 1);
        CHECK(slices[0].begin == end);
        CHECK(slices[0].size() > 0);
        end = slices[0].end;
        CHECK(slices[0].size() <= (shard == "bytes" ? (at + servers - 1) / servers : at / servers + largest));
        const bool whole = std::ranges::any_of(parts, [&](const PartInfo& p) { return p.slice.end == end; });
        if (shard == "layer") CHECK(whole);
      }
      CHECK(end == at);
      CHECK(faults(plan, 9 + servers) == "");
    }
  }
}

TEST_CASE("options of parameter_server that contradict each other are refused in one line") {
  if (threads_only()) return;
  const auto refusal = [](const std::string& options, int ranks, const std::string& before = "",
                          const std::vector<Axis>& more = {}) -> std::string {
    Plan plan = chain();
    plan.axes = more;
    plan.axes.push_back({"data", ranks});
    try {
      (void)parse_strategy(before + "parameter_server(" + options + ")")(plan);
    } catch (const Error& e) { return e.what(); }
    return "taken";
  };
  CHECK(refusal("", 2) == "taken");
  CHECK(refusal("servers=2, mode=ssp, staleness=3, shard=layer", 4) == "taken");
  CHECK(refusal("backup=2", 4) == "taken");
  struct Case {
    std::string options, words;
    int ranks = 4;
    std::string before = {};
    std::vector<Axis> more = {};
  };
  const std::vector<Case> cases = {
      {"staleness=1", "staleness=1 needs mode=ssp"},
      {"mode=async, staleness=1", "but mode is async"},
      {"mode=ssp", "staleness=-1"},
      {"mode=ssp, staleness=-1", "staleness"},
      {"mode=async, backup=1", "backup=1 needs mode=sync"},
      {"mode=ssp, staleness=1, backup=1", "with mode=ssp"},
      {"servers=0", "servers"},
      {"servers=4", "servers=4 leave none of the 4 ranks along 'data'"},
      {"servers=9", "servers=9 leave none of the 4 ranks"},
      {"", "servers=1 leave none of the 1 ranks", 1},
      {"backup=3", "backup=3, but of 3 workers"},
      {"shard=layer, servers=4", "4 servers a layer, but only 3 layers", 8},
      {"groups=2, backup=1", "groups=2, backup=1"},
      {"groups=2", "groups=2, but 3 workers (of 6 ranks along 'data')", 6},
      {"groups=3", "servers=1 and groups=3 leave none of the 4 ranks"},
      {"mode=late", "there is no 'late'; there are: sync, async, ssp"},
      {"shard=rows", "there is no 'rows'; there are: bytes, layer"},
      {"axis=replica", "servers=1 leave none of the 1 ranks along 'replica'"},
      {"", "mesh axis 'data' already", 4, "data_parallel | "},
      {"", "over 'data'", 4, "zero(2) | "},
      {"", "mesh axis 'h' already", 4, "spatial(axes=h) | ", {{"h", 2}}},
      {"", "2 (worker, server 3)", 4, "parameter_server | "},
      {"", "2 (stage 0, stage 1)", 4, "pipeline(micro=2, partition=even) | ", {{"pipe", 2}}},
  };
  for (const Case& c : cases) {
    const std::string said = refusal(c.options, c.ranks, c.before, c.more);
    CAPTURE(c.options, c.before, said);
    CHECK(said.find(c.words) != std::string::npos);
    CHECK(said.find('\n') == std::string::npos);
  }
  Plan apart = chain();
  apart.axes = {{"data", 4}};
  apart.consistency["data"] = {Consistency::Kind::periodic, 2};
  CHECK_ERROR(parameter_server()(apart), usage, "parameter_server");
  CHECK_ERROR(parameter_server({.mode = "late"}), usage, "parameter_server", "late");
  CHECK_ERROR(parameter_server({.shard = "rows"}), usage, "parameter_server", "rows");
  CHECK_ERROR(parameter_server({.servers = 0}), usage, 0, 1);
  CHECK(parameter_server().claim() == Claim::exact);
  CHECK(parameter_server({.backup = 1}).claim(false) == Claim::statistical);
  CHECK(parameter_server({.mode = "async"}).claim(false) == Claim::delayed);
}

TEST_CASE("check() finds what is wrong with backup workers and with a bound that nobody keeps") {
  if (threads_only()) return;
  const auto base = [](const ParameterServerOptions& o) {
    Plan plan = chain();
    plan.axes = {{"data", 5}};
    return parameter_server(o)(std::move(plan));
  };
  const ParameterServerOptions backed{.backup = 1}, ssp{.mode = "ssp", .staleness = 2};
  const std::vector<ParameterServerOptions> sound = {backed, ssp, {.servers = 2, .backup = 2}, {.mode = "async"}};
  for (const ParameterServerOptions& o : sound) CHECK(faults(base(o), 5) == "");
  struct Fault {
    ParameterServerOptions options;
    std::function<void(Plan&)> plant;
    std::string words;
  };
  const auto trigger = [](Plan& p, std::size_t phase) -> Trigger& { return p.programs[1].phases[phase].trigger; };
  const auto first = [](Program& p, ActionKind kind, const char* field) -> Action& {
    return *std::ranges::find_if(p.actions, [&](const Action& a) { return a.kind == kind && payload_of(a) == field; });
  };
  const std::vector<Fault> planted = {
      {backed, [&](Plan& p) { trigger(p, 1).late = false; }, "takes 3 messages of 4 ranks: the others would wait"},
      {backed, [&](Plan& p) { trigger(p, 0).count = 0; }, "late messages are taken one at a time"},
      {backed, [&](Plan& p) { trigger(p, 0).count = 4; }, "late messages are taken one at a time"},
      {backed, [&](Plan& p) { trigger(p, 1).count = 2; }, "late messages are taken one at a time"},
      {backed, [&](Plan& p) { trigger(p, 0).late = true; }, "late messages are taken one at a time"},
      {backed, [&](Plan& p) { trigger(p, 0).guard = "gradients"; }, "both without a guard"},
      {backed, [&](Plan& p) { p.consistency.clear(); }, "answers before all ranks' gradients are in the weights"},
      {backed, [&](Plan& p) { first(p.programs[1], ActionKind::recv, "loss").payload = OperandKind::clock; },
       "takes none"},
      {backed, [&](Plan& p) { first(p.programs[0], ActionKind::send, "loss").payload = OperandKind::clock; },
       "takes none"},
      {backed, [&](Plan& p) { first(p.programs[1], ActionKind::send, "clock").payload = OperandKind::loss; },
       "waits for another operand than is sent"},
      {backed, [&](Plan& p) { p.consistency["data"].bound = 3; }, "any number of steps ahead, but the plan promises"},
      {{.mode = "async"}, [&](Plan& p) { p.consistency["data"].bound = 0; }, "any number of steps ahead"},
      {ssp, [&](Plan& p) { trigger(p, 1).staleness = 3; }, "lets ranks get 3 steps ahead, but the plan promises"},
      {ssp, [&](Plan& p) { trigger(p, 1).guard = ""; }, "any number of steps ahead, but the plan promises stale(2)"},
  };
  for (const Fault& f : planted) {
    Plan plan = base(f.options);
    f.plant(plan);
    const std::string text = faults(plan, 5);
    CAPTURE(f.words, text);
    CHECK(text.find(f.words) != std::string::npos);
  }
}

TEST_CASE("an inbox takes the first messages of each clock once, and those that are late one by one") {
  if (threads_only()) return;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const int workers = 2 + static_cast<int>(mix(seed) % 7), steps = 20;
    const int count = 1 + static_cast<int>(mix(seed + 500) % static_cast<std::uint64_t>(workers - 1));
    Plan plan = chain();
    plan.axes = {{"data", workers + 1}};
    plan = parameter_server({.backup = workers - count})(std::move(plan));
    Inbox inbox(plan, plan.programs[1], workers);
    std::vector<std::int64_t> next(static_cast<std::size_t>(workers));  // clock of each worker's next message
    std::vector<std::pair<int, std::size_t>> come;                      // of the open clock: sender and number
    std::int64_t open = 0;
    std::uint64_t dice = mix(seed) * 17;
    bool good = true;
    std::vector<bool> waits(next.size());
    for (std::size_t number = 0; open < steps; ++number) {
      auto sender = static_cast<std::size_t>(mix(dice++) % next.size());
      while (waits[sender]) sender = (sender + 1) % next.size();
      const std::int64_t clock = next[sender];
      inbox.add(number, "gradients", static_cast<int>(sender), clock);
      const auto start = inbox.next();
      if (clock < open) {
        good = good && start && start->phase == 1 && start->messages == std::vector{number};
        next[sender] = open;
        continue;
      }
      come.emplace_back(static_cast<int>(sender), number);
      waits[sender] = true;
      if (std::ssize(come) < count) {
        good = good && !start;
        continue;
      }
      std::ranges::sort(come);
      good = good && start && start->phase == 0 && std::ssize(start->messages) == count;
      ++open;
      for (std::size_t i = 0; good && i < come.size(); ++i) {
        good = start->messages[i] == come[i].second;
        waits[static_cast<std::size_t>(come[i].first)] = false;
        next[static_cast<std::size_t>(come[i].first)] = open;
      }
      come.clear();
    }
    CAPTURE(seed, workers, count);
    CHECK(good);
    CHECK(!inbox.next());
    CHECK(inbox.waiting() == 0);
  }
}

}  // namespace test_parameter_server
