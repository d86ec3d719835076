// The real executor on emulated machines (computations that sleep, links that are slow) beside the simulator: the same
// order of actions, no sooner, and hardly later; and these machines themselves. bench/emulate measures more.
#include <algorithm>
#include <array>

#include "tests/support/catch.h"
#include "tests/support/emulated_links.h"
#include "tests/support/emulation.h"
#include "tests/support/ranks.h"

namespace test_emulation {

using namespace trireme;
using namespace trireme::test;

namespace {

Cluster machines(int devices, double jitter = 0) {
  return {.nodes = {{.count = 2, .devices = devices}},
          .inside = {.latency = 10e-6, .bandwidth = 4e6},
          .between = {.latency = 20e-6, .bandwidth = 1e6},
          .jitter = jitter,
          .seed = 3};
}
EmulatedCase with_tasks_of(EmulatedCase c, double seconds) {
  c.forward = seconds;
  c.backward_input = 1.5 * seconds;
  c.backward_weight = 0.5 * seconds;
  return c;
}
/// Of the sums of rounded times, in seconds.
constexpr double rounding = 1e-6;

}  // namespace

TEST_CASE("ranks on emulated machines start their actions as simulated, and end no sooner") {
  if (threads_only()) return;
  const std::vector<Axis> data = {{"data", 6}}, pipe = {{"pipe", 4}}, both = {{"data", 2}, {"pipe", 3}};
  std::vector<EmulatedCase> cases;
  for (const char* strategy : {"data_parallel(first_bucket=2000, bucket=4000)", "data_parallel(overlap=false)",
                               "zero(1)", "zero(2)", "zero(3)", "compress(codec=topk, ratio=0.1)", "local_sgd(every=2)",
                               "gossip(graph=complete)", "central_storage"})
    cases.push_back({.mesh = data, .strategy = strategy, .cluster = machines(3, 0.2), .steps = 3});
  for (const char* mode : {"sync", "async"})
    cases.push_back({.mesh = data,
                     .strategy = fmt::format("parameter_server(mode={}, servers=2)", mode),
                     .cluster = machines(3, 0.2),
                     .servers = 2});
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "2bw"})
    for (const auto& mesh : {pipe, both}) {
      const std::string with = mesh.size() > 1 ? " | data_parallel" : "";
      cases.push_back({.mesh = mesh,
                       .strategy = fmt::format("pipeline(micro=5, partition=even, schedule={}){}", schedule, with),
                       .cluster = machines(3, 0.2),
                       .microbatches = 5,
                       .steps = 3});
    }
  cases.push_back({.mesh = pipe,
                   .strategy = "pipeline(micro=8, partition=even, schedule=interleaved, chunks=2)",
                   .cluster = machines(2, 0.2),
                   .microbatches = 8,
                   .parts = 8,
                   .steps = 2});
  cases.push_back({.mesh = pipe,
                   .strategy = "pipeline(micro=1, partition=even, schedule=pipedream)",
                   .cluster = machines(2, 0.2),
                   .steps = 5});
  for (const EmulatedCase& c : cases) {
    const EmulatedTimes t = times_of(with_tasks_of(c, 2e-3));
    CAPTURE(c.strategy, c.mesh.size(), t.simulated, t.emulated);
    CHECK(t.same_order);
    CHECK(t.emulated >= t.simulated - rounding);
  }
}

// Where a machine has other things to do, a try that it has kept waiting says nothing; nor do sanitizers.
TEST_CASE("a run on emulated machines takes hardly longer than simulated") {
  if (threads_only()) return;
  const std::vector<EmulatedCase> cases = {{.mesh = {{"data", 8}},
                                            .strategy = "data_parallel(first_bucket=2000, bucket=4000)",
                                            .cluster = machines(4, 0.1),
                                            .steps = 3},
                                           {.mesh = {{"data", 2}, {"pipe", 8}},
                                            .strategy = "pipeline(micro=8, partition=even, schedule=zb-h1) | zero(1)",
                                            .cluster = machines(8),
                                            .microbatches = 8,
                                            .parts = 8,
                                            .steps = 1}};
  for (const EmulatedCase& c : cases) {
    EmulatedTimes t;
    for (int attempt = 0; attempt < 5; ++attempt)
      if (t = times_of(with_tasks_of(c, 20e-3)); t.error() <= 0.15) break;
    CAPTURE(c.strategy, t.simulated, t.emulated);
    CHECK(t.same_order);
    CHECK(t.emulated >= t.simulated - rounding);
    CHECK((brief() || t.error() <= 0.15));
  }
}

TEST_CASE("on emulated links calls take what the cluster says, one at a time, and sums are right") {
  if (threads_only()) return;
  constexpr int ranks = 4;
  const Cluster cluster = machines(2);
  struct Seen {
    Nanoseconds sent = 0, come = 0, reduced = 0;
    std::vector<double> sum, got;
  };
  std::array<Seen, ranks> seen;
  emulate(ranks, cluster, [&](World& world, EmulatedClock& clock) {
    Seen& mine = seen[static_cast<std::size_t>(world.rank())];
    Communicator& comm = world.comm();
    comm.barrier();
    const Nanoseconds begin = clock.now();
    const Tensor message = Tensor::full({100}, world.rank()), got = Tensor::empty({100});
    const int to = (world.rank() + 1) % ranks, from = (world.rank() + ranks - 1) % ranks;
    Work receive = comm.recv(got, from, 1);
    Work first = comm.send(message, to, 1), second = comm.send(message, to, 1);
    message.copy_from(Tensor::zeros({100}));  // it has been copied
    second.wait();
    mine.sent = clock.now() - begin;
    receive.wait();
    mine.come = clock.now() - begin;
    comm.recv(got, from, 1).wait();
    comm.barrier();
    const Nanoseconds then = clock.now();
    const Tensor x = Tensor::full({500}, world.rank() + 1);
    comm.all_reduce(x).wait();
    mine.reduced = clock.now() - then;
    mine.sum = x.to_vector();
    mine.got = got.to_vector();
  });
  for (int r = 0; r < ranks; ++r) {
    const Seen& s = seen[static_cast<std::size_t>(r)];
    const auto link = [&](int a, int b) { return cluster.link(std::array{a, b}); };
    // Clocks have gone on by what the rank computed meanwhile, which is no more than a millisecond before a wait.
    const Nanoseconds most = 1000000;
    CAPTURE(r);
    CHECK(s.sent >= 2 * message_time(link(r, (r + 1) % ranks), 400));
    CHECK(s.come >= message_time(link((r + ranks - 1) % ranks, r), 400) - most);
    CHECK(s.reduced >= collective_time(cluster.between, CallKind::all_reduce, ranks, 2000) - most);
    CHECK(s.sum == std::vector<double>(500, 10));
    CHECK(s.got == std::vector<double>(100, (r + ranks - 1) % ranks));
  }
}

TEST_CASE("a rank of an emulated machine that fails ends the others") {
  if (threads_only()) return;
  CHECK_ERROR(emulate(3, machines(2),
                      [](World& world, EmulatedClock&) {
                        check(world.rank() != 1, "test", "rank 1 has no more to do");
                        world.comm().barrier();
                      }),
              usage, 1);
  CHECK_ERROR(emulate(5, machines(2), [](World&, EmulatedClock&) {}), usage, 4);
}

}  // namespace test_emulation
