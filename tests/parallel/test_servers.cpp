// Programs at ranges of ranks that messages drive: parameter servers through Step, and which phase an Inbox starts.
#include "framework/io/checkpoint.h"
#include "parallel/async/inbox.h"
#include "parallel/model/memory.h"
#include "parallel/runtime/step.h"
#include "parallel/runtime/step_flags.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/plans.h"
#include "tests/parallel/training.h"
#include "tests/support/temporary.h"

namespace test_servers {

using namespace trireme;
using namespace trireme::test;

namespace {

Setup small() {
  return {.model =
              [] {
                return Sequential{flatten, Linear(100, 12), relu, Linear(12, 10)};
              },
          .dtype = DType::f32,
          .samples = 160,
          .batch = 24,
          .steps = 9};
}

}  // namespace

TEST_CASE("synchronous servers train as one rank does", "[device]") {
  const Setup s = integer_conv();
  const Outcome want = serial_run(s);
  for (const int ranks : rank_counts({2, 3, 5, 7}))
    for (int count = 1; count < std::min(ranks, 4); ++count) {
      CAPTURE(ranks, count);
      const Outcome got = parallel_run(s, {{"data", ranks}}, parameter_server({.servers = count}));
      check_same_bits(got, want);
      for (const int groups : {1, 2}) {
        const int workers = ranks - count - groups;
        if (workers <= 0 || workers % groups != 0) continue;
        CAPTURE(groups);
        check_same_bits(parallel_run(s, {{"data", ranks}}, parameter_server({.servers = count, .groups = groups})),
                        want);
      }
    }
}

TEST_CASE("synchronous servers give the bits of data_parallel among the workers") {
  if (threads_only()) return;
  for (const bool virtual_time : {false, true})
    for (int workers = 1; workers <= 4; ++workers)
      for (int count = 1; count <= 3; ++count) {
        CAPTURE(virtual_time, workers, count);
        const Outcome want = parallel_run(small(), {{"data", workers}}, data_parallel());
        const Outcome got =
            parallel_run(small(), {{"data", workers + count}}, parameter_server({.servers = count}), virtual_time);
        CHECK(got.losses == want.losses);
        CHECK(got.weights == want.weights);
      }
}

namespace {

/// A server program of phases, each with one push to its senders, and so many ranks that push to all its channels.
Plan inbox_plan(int workers, std::vector<ProgramPhase> phases) {
  Plan plan;
  plan.axes = {{"data", workers + 1}};
  plan.parameters = 10;
  Program worker{.name = "worker"}, server{.name = "server"};
  worker.where = {{"data", 0, workers}};
  server.where = {{"data", workers, workers + 1}};
  for (const ProgramPhase& p : phases) {
    Action push{.kind = ActionKind::send, .stream = Stream::comm, .slice = {0, 10}, .payload = OperandKind::gradients};
    push.peer.axis = "data";
    push.peer.root = workers;
    push.peer.channel = p.trigger.channel;
    worker.actions.push_back(push);
  }
  server.phases = std::move(phases);
  plan.programs = {worker, server};
  return plan;
}

}  // namespace

TEST_CASE("an inbox starts phases by their triggers, whatever comes when") {
  if (threads_only()) return;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const int workers = 1 + static_cast<int>(mix(seed) % 6), steps = 12;
    const auto staleness = static_cast<std::int64_t>(mix(seed + 1000) % 3);
    const int count = static_cast<int>(mix(seed + 2000) % static_cast<std::uint64_t>(workers + 1));
    const Plan plan =
        inbox_plan(workers, {{"sum", {.channel = "gradients", .count = count}},
                             {"answer", {.channel = "ready", .guard = "gradients", .staleness = staleness}}});
    CAPTURE(seed, workers, staleness, count);
    Inbox inbox(plan, plan.programs[1], workers);
    struct Sent {
      int sender;
      std::int64_t clock;
      bool ready;
    };
    std::vector<Sent> sent;
    std::vector<std::int64_t> next(2 * static_cast<std::size_t>(workers)), taken(static_cast<std::size_t>(workers), -1),
        answered(static_cast<std::size_t>(workers), -1);
    std::uint64_t dice = mix(seed) * 31;
    bool good = true, blocked = false;
    for (int left = 2 * workers * steps; left > 0;) {
      const auto which = static_cast<std::size_t>(mix(dice++) % next.size());
      if (next[which] == steps) continue;
      --left;
      const Sent s{static_cast<int>(which) / 2, next[which]++, which % 2 == 1};
      inbox.add(sent.size(), s.ready ? "ready" : "gradients", s.sender, s.clock);
      sent.push_back(s);
      while (const auto start = inbox.next()) {
        int before = -1;
        for (std::size_t m : start->messages) {
          const Sent& x = sent[m];
          good = good && x.sender > before && x.ready == (start->phase == 1);
          before = x.sender;
          std::int64_t& last = (x.ready ? answered : taken)[static_cast<std::size_t>(x.sender)];
          good = good && x.clock == last + 1;  // each sender's in order, each once
          last = x.clock;
          if (x.ready) good = good && *std::ranges::min_element(taken) >= x.clock - staleness;
        }
        const std::size_t want = start->phase == 1 ? 1 : count == 0 ? sent.size() : static_cast<std::size_t>(count);
        if (count > 0 || start->phase == 1) good = good && start->messages.size() == want;
        if (count == 0 && start->phase == 0) good = good && std::ssize(start->messages) == workers;
      }
      blocked = blocked || inbox.waiting() > 0;
    }
    CHECK(good);
    if (count <= 1) CHECK(inbox.waiting() == 0);  // all are met in the end
    if (workers > 2 && staleness == 0) CHECK(blocked);
  }
}

TEST_CASE("check() says in one line why a program by messages cannot be") {
  if (threads_only()) return;
  const auto base = [](ParameterServerOptions o = {}) {
    Plan plan = chain();
    plan.axes = {{"data", 3}};
    return parameter_server(o)(std::move(plan));
  };
  const auto find_in = [](Program& program, ActionKind kind) -> Action& {
    return program.actions[static_cast<std::size_t>(find(program, kind))];
  };
  CHECK(check(base(), 3).empty());
  CHECK(check(base({.servers = 2}), 3).empty());
  CHECK(check(base({.mode = "async"}), 3).empty());
  CHECK(check(base({.mode = "ssp", .staleness = 0}), 3).empty());
  struct Fault {
    ParameterServerOptions options;
    std::function<void(Plan&)> plant;
    std::string words;
  };
  const std::vector<Fault> faults = {
      {{},
       [](Plan& p) {
         p.programs[1].where = {{"data", 1, 3}};
       },
       "programs worker and server 2 have a rank in common"},
      {{},
       [](Plan& p) {
         p.programs[0].where = {{"data", 0, 1}};
       },
       "the programs run on 2 of 3 ranks"},
      {{},
       [](Plan& p) {
         p.programs[1].where = {{"data", 2, 4}};
       },
       "has the ranks 2 to 3 along 'data', but that axis has 3"},
      {{},
       [](Plan& p) {
         p.programs[1].where = {{"date", 2, 3}};
       },
       "along 'date', but that axis has 1"},
      {{}, [](Plan& p) { p.programs[0].where.clear(); }, "some programs say on which ranks they run, and some do not"},
      {{}, [](Plan& p) { p.programs[1].phases[0].trigger.count = 3; }, "waits for messages of 3 different ranks"},
      {{}, [](Plan& p) { p.programs[1].phases[0].trigger.count = -1; }, "waits for messages of -1 different ranks"},
      {{}, [](Plan& p) { p.programs[1].phases[0].trigger.channel = "nowhere"; }, "to which no rank sends"},
      {{.mode = "ssp", .staleness = 0},
       [](Plan& p) { p.programs[1].phases[1].trigger.staleness = -1; },
       "has the staleness -1: expected at least 0"},
      {{.mode = "ssp", .staleness = 0},
       [](Plan& p) { p.programs[1].phases[1].trigger.guard = "weights"; },
       "can never start: it waits for every rank's messages on 'weights', which no phase of the program takes"},
      {{}, [&](Plan& p) { find_in(p.programs[0], ActionKind::send).peer.root = 7; }, "there is no rank 7 along 'data'"},
      {{},
       [&](Plan& p) {
         find_in(p.programs[0], ActionKind::send).payload = OperandKind::state;
         find_in(p.programs[0], ActionKind::send).names = {"luck"};
       },
       "there are no 'luck' to send"},
      {{}, [&](Plan& p) { find_in(p.programs[0], ActionKind::send).peer.channel = "x"; }, "takes no messages on 'x'"},
      {{}, [&](Plan& p) { find_in(p.programs[0], ActionKind::send).peer.channel.clear(); }, "or Peer::channel"},
      {{}, [&](Plan& p) { find_in(p.programs[0], ActionKind::send).peer.offset = 1; }, "mixes"},
      {{}, [&](Plan& p) { find_in(p.programs[0], ActionKind::recv).peer.root = -1; }, "on 'weights' start it"},
      {{}, [&](Plan& p) { find_in(p.programs[1], ActionKind::recv).peer.channel = "x"; }, "on 'x' start it"},
      {{}, [&](Plan& p) { find_in(p.programs[1], ActionKind::recv).peer.root = 0; }, "such a phase must not wait"},
      {{}, [&](Plan& p) { find_in(p.programs[0], ActionKind::recv).peer.root = 1; }, "deadlock:"},
      {{}, [&](Plan& p) { find_in(p.programs[1], ActionKind::send).peer.channel = "x"; }, "no phase takes them"},
      {{}, [](Plan& p) { p.programs[1].phases[1].last = false; }, "one of them must be the last of a step"},
      {{},
       [](Plan& p) {
         p.programs[1].phases[1].trigger.count = 2;
         p.programs[0].phases.push_back({"late", {.every = 2}});
         for (Action& a : p.programs[0].actions)
           if (a.payload == OperandKind::loss) a.phase = 1;
       },
       "a step of it never ends"},
      {{},
       [](Plan& p) {
         p.programs[1].actions[0].phase = 2;
         p.programs[1].phases.push_back({"step"});
       },
       "is of no phase that messages start"},
      {{},
       [&](Plan& p) {
         find_in(p.programs[0], ActionKind::recv).slice = {0, 1 << 20};
       },
       "of a block of"},
      {{},
       [&](Plan& p) {
         std::erase_if(p.programs[1].actions, [](const Action& a) { return a.kind == ActionKind::update; });
       },
       "is used by no update"},
      {{},
       [&](Plan& p) { find_in(p.programs[0], ActionKind::send).after.clear(); },
       "before the backward that completes it"},
      // The server's step ends before it has taken the last message.
      {{.mode = "ssp", .staleness = 1},
       [&](Plan& p) {
         auto& list = p.programs[0].actions;
         std::swap(list[static_cast<std::size_t>(find(p.programs[0], ActionKind::send, 1))],
                   list[static_cast<std::size_t>(find(p.programs[0], ActionKind::send, 2))]);
       },
       "deadlock: program worker"},
      // A worker that pulls before it pushes, where the answer waits for all pushes of the step.
      {{},
       [&](Plan& p) {
         auto& list = p.programs[0].actions;
         std::stable_partition(list.begin() + find(p.programs[0], ActionKind::send), list.end(),
                               [](const Action& a) { return a.kind == ActionKind::recv; });
       },
       "deadlock: program worker"},
  };
  for (const Fault& f : faults) {
    Plan plan = base(f.options);
    f.plant(plan);
    const auto found = check(plan, 3);
    std::string text;
    for (const std::string& line : found) text += line + "\n";
    CAPTURE(f.words, text);
    CHECK(text.find(f.words) != std::string::npos);
  }
}

TEST_CASE("asynchronous servers apply each gradient once, and are the same in each run of virtual time") {
  for (const Index staleness : {-1, 0, 2})
    for (const int workers : {1, 2, 3, 5}) {
      CAPTURE(workers, staleness);
      const ParameterServerOptions o{.mode = staleness < 0 ? "async" : "ssp", .staleness = staleness};
      const Setup s = small();
      std::atomic<std::int64_t> updates = 0;
      if (other_ranks(workers + 1)) continue;
      const auto body = [&](World& world) {
        Module model = s.model();
        initialize(model, 1);
        Mesh mesh(world, {{"data", world.size()}});
        Step step(model, cross_entropy, Sgd{.lr = 0.05}, mesh, parameter_server(o));
        const Tensor x = Tensor::full({4, 10, 10, 1}, 0.1 * (world.rank() + 1)), y = Tensor::zeros({4}, DType::i64);
        for (int i = 0; i < 7; ++i) check(std::isfinite(step(x, y).item()), "test", "the loss is not finite");
        if (world.rank() == workers) updates = step.optimizer().steps();
        return 0;
      };
      (void)on_ranks(workers + 1, body);
      CHECK(updates == (under_mpi() && processes().rank() < workers ? 0 : 7 * workers));
      if (under_mpi()) continue;
      const auto run = [&] { return parallel_run(s, {{"data", workers + 1}}, parameter_server(o), true); };
      const Outcome once = run(), again = run();
      CHECK(once.losses == again.losses);
      CHECK(once.weights == again.weights);
    }
}

TEST_CASE("workers and servers send what their programs say") {
  if (threads_only()) return;
  for (const int servers : {1, 2})
    for (const ParameterServerOptions& options :
         {ParameterServerOptions{}, ParameterServerOptions{.backup = 1}, ParameterServerOptions{.mode = "async"},
          ParameterServerOptions{.mode = "ssp", .staleness = 1}, ParameterServerOptions{.groups = 1},
          ParameterServerOptions{.mode = "async", .groups = servers == 1 ? 2 : 1}}) {
      ParameterServerOptions o = options;
      o.servers = servers;
      std::array<StepTraffic, 5> traffic;
      World::threads(5, [&](World& world) {
        const Setup s = small();
        Module model = s.model();
        initialize(model, 1);
        Mesh mesh(world, {{"data", world.size()}});
        const Loss ignoring = cross_entropy_with({.ignore_index = 1});  // workers that train apart count their own
        Step step(model, ignoring, Sgd{.lr = 0.05}, mesh, parameter_server(o));
        const Tensor x = Tensor::full({4, 10, 10, 1}, 0.5), y = Tensor::zeros({4}, DType::i64);
        for (int i = 0; i < 3; ++i) {
          // In steps of its own: a server may take, and answer, what belongs to the next.
          (void)step(x, y).item();
          world.comm().barrier();
        }
        traffic[static_cast<std::size_t>(world.rank())] = StepProbe(step).traffic();
      });
      for (const StepTraffic& t : traffic) {
        const auto text = [](const Traffic& all) {
          std::string lines;
          for (auto& [axis, n] : all) lines += fmt::format("{}: {} calls, {} bytes; ", axis, n.calls, n.bytes);
          return lines;
        };
        CAPTURE(servers, o.mode, o.backup, &t - traffic.data(), text(t.counted), text(t.planned));
        CHECK(t.counted == t.planned);
        CHECK(t.counted.at("data").bytes > 0);
      }
    }
}

TEST_CASE("where ranks meet by messages alone no flag is told, and raising one says so") {
  if (threads_only()) return;
  std::atomic<int> refused = 0;
  World::threads(3, [&](World& world) {
    Step step(small().model(), cross_entropy, Sgd{}, world, parameter_server({}), {.flags = {.names = {"stop"}}});
    try {
      StepFlags(step).raise("stop");
    } catch (const Error& e) {
      refused +=
          std::string(e.what()).find("with servers and asynchronous gossip there are no flags") != std::string::npos;
    }
  });
  CHECK(refused == 3);
}

TEST_CASE("runs with servers go on from a checkpoint as if they had not been saved") {
  if (threads_only()) return;
  const ParameterServerOptions synchronous{.servers = 2}, asynchronous{.servers = 2, .mode = "async"},
      bounded{.mode = "ssp", .staleness = 1}, backed{.servers = 2, .backup = 1},
      two_levels{.mode = "async", .groups = 2}, two_bounded{.servers = 2, .mode = "ssp", .staleness = 1, .groups = 1};
  for (const ParameterServerOptions& o : {synchronous, asynchronous, bounded, backed, two_levels, two_bounded}) {
    const int ranks = 5;
    const bool virtual_time =
        o.mode != "sync" || o.backup > 0;  // where threads decide whose gradient comes first, no two runs are alike
    CAPTURE(o.servers, o.mode, o.backup);
    Cluster machines = two_nodes(4);  // the first worker is so slow that it leaves steps out where others go on
    machines.nodes = {{.speed = 0.2}, {.devices = 4}};
    machines.flops = 1e9;
    const Temporary folder;
    std::vector<VirtualState> clocks(static_cast<std::size_t>(ranks));
    const auto run = [&](const std::string& from, int begin, int end, const std::string& to, int then = 0) {
      std::vector<std::vector<double>> found(static_cast<std::size_t>(ranks));
      const auto body = [&](World& world) {
        const Setup s = small();
        Module model = s.model();
        initialize(model, from.empty() ? 1 : 99 + static_cast<std::uint64_t>(world.rank()));
        Mesh mesh(world, {{"data", world.size()}});
        Step step(model, cross_entropy, Adam{.lr = 0.01}, mesh, parameter_server(o),
                  {.profile = {.example = Tensor::zeros({4, 10, 10, 1})}});
        if (!from.empty()) {
          step.load_checkpoint(find_latest(from).value().path);
          StepProbe(step).consolidate();
        }
        if (virtual_time && !from.empty()) world.clock()->restore(clocks[static_cast<std::size_t>(world.rank())]);
        const auto one_step = [&](int i) {
          const RankShare mine = step.shard();
          Tensor x = Tensor::zeros({4, 10, 10, 1}), y = Tensor::zeros({4}, DType::i64);
          for (Index k = 0; k < x.numel(); ++k)
            x.data<float>()[k] = static_cast<float>(std::sin(i + 3.0 * mine.rank + 0.1 * double(k)));
          y.data<std::int64_t>()[0] = i % 10;
          (void)step(x, y).item();
        };
        for (int i = begin; i < end; ++i) one_step(i);
        if (!to.empty()) {
          save_checkpoint(to, step.parameters(), step.optimizer(), {.step = end}, {.shard = step.checkpoint_shard()});
          if (virtual_time) clocks[static_cast<std::size_t>(world.rank())] = world.clock()->save();
        }
        for (int i = end; i < then; ++i) one_step(i);
        StepProbe(step).consolidate();
        auto& mine = found[static_cast<std::size_t>(world.rank())] = whole_weights(step.parameters());
        for (auto& [name, state] : step.optimizer().state()) {
          const auto values = state.to_vector();
          mine.insert(mine.end(), values.begin(), values.end());
        }
      };
      if (virtual_time)
        World::virtual_time(ranks, machines, body);
      else
        World::threads(ranks, body);
      return found;
    };
    const auto whole = run("", 0, 4, folder.path() + "/half", 9);
    const auto resumed = run(folder.path() + "/half", 4, 9, "");
    for (std::size_t r = 0; r < whole.size(); ++r) {
      const auto at = std::ranges::mismatch(resumed[r], whole[r]).in1 - resumed[r].begin();
      CAPTURE(r, at, whole[r].size());
      CHECK((resumed[r] == whole[r]));
    }
    CHECK(run("", 0, 4, "")[0] != whole[0]);
  }
}

TEST_CASE("memory of workers and servers") {
  Plan plan = chain();
  plan.axes = {{"data", 4}};
  const auto memory = predict_memory(parameter_server({.servers = 1})(plan), {.element = 4, .states = 2});
  REQUIRE(memory.size() == 2);
  CHECK(memory[0].weights == 450 * 4);
  CHECK(memory[0].gradients == 450 * 4);
  CHECK(memory[0].optimizer == 0);
  CHECK(memory[1].weights == 450 * 4);
  CHECK(memory[1].optimizer == 2 * 450 * 4);
  CHECK(memory[1].packed == (3 + 1) * 450 * 4);  // what it takes together, and the copy that it sends
}

}  // namespace test_servers
