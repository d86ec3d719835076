// Virtual time: what operations take on small clusters, in closed form; and that a run is the same run whatever the
// threads do.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "kernels/core/runtime.h"
#include "parallel/comm/fnv.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

using namespace trireme;
using trireme::test::contains;
using trireme::test::mix;

namespace {

/// All in one node.
Cluster one_node(int devices) {
  return {.nodes = {{.count = 1, .devices = devices}},
          .inside = {.latency = 100e-9, .bandwidth = 1e9},
          .between = {.latency = 1000e-9, .bandwidth = 0.25e9}};
}

/// What body returns on each rank.
template <class F>
auto on_clocks(int ranks, const Cluster& cluster, F&& body) {
  std::vector<decltype(body(std::declval<World&>()))> all(static_cast<std::size_t>(ranks));
  World::virtual_time(ranks, cluster,
                      [&](World& world) { all[static_cast<std::size_t>(world.rank())] = body(world); });
  return all;
}
using Times = std::vector<Nanoseconds>;

Tensor bytes(Index n) { return Tensor::zeros({n}, DType::u8); }

}  // namespace

TEST_CASE("collectives take what the cluster says, from the last rank's start") {
  const Cluster c = test::two_nodes(2);
  const auto took = [&](const std::function<void(Communicator&)>& f) {
    const auto ends = on_clocks(4, c, [&](World& world) {
      world.clock()->advance(10 * world.rank());
      f(world.comm());
      return world.clock()->now();
    });
    REQUIRE(ends == Times(4, ends[0]));
    return ends[0] - 30;
  };
  const Index n = 400;
  const auto of = [&](CallKind kind) { return collective_time(c.between, kind, 4, n); };
  CHECK(took([&](Communicator& comm) { comm.all_reduce(bytes(n)).wait(); }) == of(CallKind::all_reduce));
  CHECK(took([&](Communicator& comm) { comm.reduce(bytes(n), bytes(n), 1).wait(); }) == of(CallKind::reduce));
  CHECK(took([&](Communicator& comm) { comm.reduce_scatter(bytes(n / 4), bytes(n)).wait(); }) ==
        of(CallKind::reduce_scatter));
  CHECK(took([&](Communicator& comm) { comm.all_gather(bytes(n), bytes(n / 4)).wait(); }) == of(CallKind::all_gather));
  CHECK(took([&](Communicator& comm) { comm.gather(bytes(n), bytes(n / 4), 2).wait(); }) == of(CallKind::gather));
  CHECK(took([&](Communicator& comm) { comm.scatter(bytes(n / 4), bytes(n), 2).wait(); }) == of(CallKind::scatter));
  CHECK(took([&](Communicator& comm) { comm.broadcast(bytes(n), 3).wait(); }) == of(CallKind::broadcast));
  CHECK(took([&](Communicator& comm) { comm.all_to_all(bytes(n), bytes(n)).wait(); }) == of(CallKind::all_to_all));
  CHECK(took([&](Communicator& comm) { comm.barrier(); }) == 3 * 1000);
  CHECK(took([&](Communicator& comm) { (void)comm.split(0, 0); }) == 3 * 1000);
  CHECK(of(CallKind::all_reduce) == 6 * (1000 + 400));
}

TEST_CASE("a group within a node has the link inside") {
  const auto ends = on_clocks(4, test::two_nodes(2), [](World& world) {
    const auto node = world.comm().split(world.rank() / 2, 0), across = world.comm().split(world.rank() % 2, 0);
    const Nanoseconds before = world.clock()->now();
    node->all_reduce(bytes(100)).wait();
    const Nanoseconds inside = world.clock()->now() - before;
    across->all_reduce(bytes(100)).wait();
    return Times{inside, world.clock()->now() - before - inside};
  });
  for (const Times& t : ends) CHECK(t == Times{2 * (100 + 50), 2 * (1000 + 200)});
}

TEST_CASE("messages: when they leave, arrive, and who waits") {
  const auto ends = on_clocks(4, test::two_nodes(2), [](World& world) {
    VirtualClock& clock = *world.clock();
    Communicator& comm = world.comm();
    Times t;
    const auto note = [&] { t.push_back(clock.now()); };
    if (world.rank() == 0) {
      // Three on one link: each leaves when the one before has left.
      Work a = comm.send(bytes(50), 1), b = comm.send(bytes(100), 2), c = comm.send(bytes(0), 1);
      note();
      a.wait(), note();
      clock.advance(10), note();
      c.wait(), note();
      b.wait(), note();
    } else if (world.rank() == 1) {
      comm.recv(bytes(50), 0).wait(), note();
      clock.advance(5000);
      comm.recv(bytes(0), 0).wait(), note();  // long there
    } else if (world.rank() == 2) {
      comm.recv(bytes(100), 0).wait(), note();
    }
    return t;
  });
  CHECK(ends[0] == Times{0, 150, 160, 150 + 1400 + 100, 1650});
  CHECK(ends[1] == Times{150, 5150});
  CHECK(ends[2] == Times{150 + 1400});
}

TEST_CASE("computation hides communication, and a link carries one operation at a time") {
  const auto ends = on_clocks(2, one_node(2), [](World& world) {
    VirtualClock& clock = *world.clock();
    Communicator& comm = world.comm();
    Times t;
    const Tensor x = bytes(1000), y = bytes(1000);
    Work first = comm.all_reduce(x);   // 2 (100 + 500) = 1200
    Work second = comm.all_reduce(y);  // after it
    clock.advance(world.rank() == 0 ? 500 : 700);
    second.wait(), t.push_back(clock.now());
    first.wait(), t.push_back(clock.now());
    Work third = comm.all_reduce(x);
    clock.advance(5000);
    third.wait(), t.push_back(clock.now());
    return t;
  });
  for (const Times& t : ends) CHECK(t == Times{2400, 2400, 7400});
}
