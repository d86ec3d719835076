// Virtual time: what operations take on small clusters, in closed form; and what of it is refused.
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "kernels/core/runtime.h"
#include "parallel/comm/call.h"
#include "parallel/comm/collectives/collectives.h"
#include "tests/parallel/clocks.h"

namespace test_virtual_time {

using namespace trireme;
using namespace trireme::test;

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

TEST_CASE("named algorithms take what their rounds cost") {
  const Cluster c = test::two_nodes(2);
  for (const char* name : {"ring", "tree", "recursive_doubling"}) {
    const auto ends = on_clocks(4, c, [&](World& world) {
      world.use_all_reduce(name);  // takes no time
      const Tensor x = Tensor::full({1001}, world.rank());
      world.comm().all_reduce(x).wait();
      return Times{world.clock()->now(), static_cast<Nanoseconds>(x.to_vector()[1000])};
    });
    const double cost = collectives::cost(collectives::find_algorithm(name), CallKind::all_reduce, 4, 4004,
                                          {.latency = c.between.latency, .per_byte = 1 / c.between.bandwidth});
    CHECK(ends[3] == Times{nanoseconds(cost), 6});
  }
  REQUIRE_ERROR(World::virtual_time(2, c, [](World& world) { world.use_all_reduce("auto"); }), usage, "all_reduce");
}

TEST_CASE("deadlines of several operations count by the clock") {
  const auto ends = on_clocks(2, one_node(2), [](World& world) {
    Times t;
    const Tensor x = bytes(100), y = bytes(100);  // 300 ns each
    Work both = when_all({world.comm().all_reduce(x), world.comm().all_reduce(y)});
    for (int i = 0; i < 3; ++i) {
      t.push_back(both.wait_for(250e-9));
      t.push_back(world.clock()->now());
    }
    return t;
  });
  for (const Times& t : ends) CHECK(t == Times{0, 250, 0, 500, 1, 600});
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
      a.wait();
      note();
      clock.advance(10);
      note();
      c.wait();
      note();
      b.wait();
      note();
    } else if (world.rank() == 1) {
      comm.recv(bytes(50), 0).wait();
      note();
      clock.advance(5000);
      comm.recv(bytes(0), 0).wait();
      note();  // long there
    } else if (world.rank() == 2) {
      comm.recv(bytes(100), 0).wait();
      note();
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
    second.wait();
    t.push_back(clock.now());
    first.wait();
    t.push_back(clock.now());
    Work third = comm.all_reduce(x);
    clock.advance(5000);
    third.wait();
    t.push_back(clock.now());
    return t;
  });
  for (const Times& t : ends) CHECK(t == Times{2400, 2400, 7400});
}

TEST_CASE("ranks of differing speed, and jitter that is the same each time") {
  Cluster c = one_node(2);
  c.nodes.push_back({.count = 1, .devices = 2, .speed = 0.5});
  const auto program = [](World& world) {
    Times t;
    for (std::uint64_t key = 0; key < 5; ++key) {
      compute(world, 1000, key);
      t.push_back(world.clock()->now());
    }
    return t;
  };
  const auto even = on_clocks(4, c, program);
  for (int r = 0; r < 4; ++r) CHECK(even[static_cast<std::size_t>(r)].back() == (r < 2 ? 5000 : 10000));
  c.jitter = 0.1;
  const auto first = on_clocks(4, c, program);
  CHECK(first[0] != first[1]);
  CHECK(first[0] != even[0]);
  CHECK(first == on_clocks(4, c, program));
  c.seed = 1;
  CHECK(first != on_clocks(4, c, program));
}

TEST_CASE("what is done depends on the clock alone") {
  const auto seen = on_clocks(2, one_node(2), [](World& world) {
    VirtualClock& clock = *world.clock();
    Communicator& comm = world.comm();
    Times t;
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      clock.advance(1000);
      comm.send(bytes(100), 0).wait();                     // arrives at 1200
      comm.send_to({.channel = 1}, bytes(300), 0).wait();  // and this at 1600
      return t;
    }
    Work message = comm.recv(bytes(100), 1);
    ReceivedMessage any;
    Work next = comm.recv_any(any, 1);
    t.push_back(message.done());
    clock.advance_to(1199);
    t.push_back(message.done());
    t.push_back(message.wait_for(0));
    t.push_back(clock.now());
    clock.advance(1);
    t.push_back(message.done());
    t.push_back(next.wait_for(300e-9));
    t.push_back(clock.now());  // until 1500
    t.push_back(next.done());
    t.push_back(next.wait_for(300e-9));
    t.push_back(clock.now());
    // A loop that only asks goes on to the end.
    Work self = comm.send(bytes(900), 0);
    while (!self.done()) std::this_thread::yield();
    t.push_back(clock.now());
    std::vector<Work> none{comm.recv(bytes(1), 0, 5)};
    try {
      (void)wait_any(none, 1e-6);
    } catch (const Error&) { t.push_back(clock.now()); }
    comm.send(bytes(1), 0, 5).wait();
    return t;
  });
  CHECK(seen[0] == Times{0, 0, 0, 1199, 1, 0, 1500, 0, 1, 1600, 2600, 3600});
}

TEST_CASE("no more ranks than cores compute at once") {
  std::atomic<int> now = 0, most = 0;
  World::virtual_time(16, one_node(16), [&](World& world) {
    for (int i = 0; i < 5; ++i) {
      const int here = ++now;
      for (int seen = most; here > seen && !most.compare_exchange_weak(seen, here);) {}
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      --now;
      world.comm().barrier();
    }
  });
  CHECK(most <= cores());
}

TEST_CASE("loops that ask go on to the next event, however they ask") {
  const std::vector<std::function<bool(Work&)>> ways{[](Work& w) { return w.done(); },
                                                     [](Work& w) { return w.wait_for(0); },
                                                     [](Work& w) { return w.wait_for(1e-12); },
                                                     [](Work& w) {
                                                       try {
                                                         return wait_any({&w, 1}, 0) == 0;
                                                       } catch (const Error&) { return false; }
                                                     }};
  for (std::size_t way = 0; way < ways.size(); ++way) {
    CAPTURE(way);
    const auto ends = on_clocks(2, one_node(2), [&](World& world) {
      Communicator& comm = world.comm();
      Times t;
      const auto ask_until_done = [&](Work work) {
        while (!ways[way](work)) std::this_thread::yield();
        t.push_back(world.clock()->now());
      };
      ReceivedMessage any;
      if (world.rank() == 0) {
        ask_until_done(comm.recv(bytes(100), 1));
        ask_until_done(comm.recv_any(any, 1));
      } else {
        world.clock()->advance(1000);
        comm.send(bytes(100), 0).wait();
        comm.send_to({.channel = 1}, bytes(300), 0).wait();
      }
      const Tensor x = bytes(100), y = bytes(100);
      ask_until_done(when_all({comm.all_reduce(x), comm.all_reduce(y)}));
      return t;
    });
    CHECK(ends[0] == Times{1200, 1600, 2200});
    CHECK(ends[1] == Times{2200});
  }
}

TEST_CASE("deadlines shorter than TRIREME_TIMEOUT are of virtual time, others are none") {
  const double most = collective_timeout().count();
  const auto ends = on_clocks(2, one_node(2), [&](World& world) {
    Times t;
    if (world.rank() == 1) {
      world.clock()->advance(nanoseconds(10 * most));
      world.comm().send(bytes(0), 0).wait();
      return t;
    }
    Work message = world.comm().recv(bytes(0), 1);
    for (const double deadline : {most - 1, most}) {
      t.push_back(message.wait_for(deadline));
      t.push_back(world.clock()->now());
    }
    return t;
  });
  CHECK(ends[0] == Times{0, nanoseconds(most - 1), 1, nanoseconds(10 * most) + 100});
}

TEST_CASE("times that cannot be counted are refused") {
  CHECK(nanoseconds(99999999) == 99999999000000000);
  for (const double seconds : {1e8, 1e300, HUGE_VAL, std::nan("")})
    CHECK_ERROR(nanoseconds(seconds), usage, "nanoseconds");
  Cluster slow = one_node(2);
  slow.inside.bandwidth = 1e-9;
  CHECK_ERROR(message_time(slow.inside, 1), usage, "nanoseconds");
  CHECK_ERROR(collective_time(slow.inside, CallKind::all_reduce, 2, 1), usage, "nanoseconds");
  slow.nodes[0].speed = 1e-9;
  CHECK(slow.compute(1000000, 0, 0) == 1000000000000000);
  CHECK_ERROR(slow.compute(1000000000, 0, 0), usage, "nanoseconds");
  const Tensor x = bytes(1);
  REQUIRE_ERROR(World::virtual_time(2, slow, [&](World& w) { w.comm().send(x, 1 - w.rank()).wait(); }), usage,
                "nanoseconds");
  REQUIRE_ERROR(World::virtual_time(2, slow, [&](World& w) { w.comm().all_reduce(bytes(1)).wait(); }), usage,
                "nanoseconds");
}

TEST_CASE("ranks that all wait are told at once for what") {
  const auto body = [](World& world) {
    Communicator& comm = world.comm();
    ReceivedMessage message;
    if (world.rank() == 0) comm.recv(bytes(3), 2, 1).wait();
    if (world.rank() == 1) comm.recv_any(message, 4).wait();
    if (world.rank() == 2) comm.barrier();
  };
  REQUIRE_ERROR(World::virtual_time(4, one_node(4), body), communicator, "rank 0", "recv", "rank 1", 4);
  const auto crossed = [](World& world) {
    const auto other = world.comm().split(0, 0);
    const Tensor x = bytes(1), y = bytes(1);
    Work a = (world.rank() ? *other : world.comm()).all_reduce(x);
    Work b = (world.rank() ? world.comm() : *other).broadcast(y, 0);
    a.wait();
    b.wait();
  };
  REQUIRE_THROWS_AS(World::virtual_time(2, one_node(2), crossed), Error);
  const auto behind = [](World& world) {
    const Tensor x = bytes(1), y = bytes(2);
    if (world.rank()) {
      world.comm().recv(x, 0).wait();
      return world.comm().all_reduce(y).wait();
    }
    Work sum = world.comm().all_reduce(y);
    world.comm().send(x, 1).wait();
  };
  REQUIRE_ERROR(World::virtual_time(2, one_node(2), behind), communicator, "rank 0", "send", "all_reduce");
}

TEST_CASE("clusters that cannot be are refused before a body begins") {
  const auto none = [](World&) { FAIL(); };
  REQUIRE_ERROR(World::virtual_time(3, one_node(2), none), usage, 3, 2);
  Cluster empty;
  empty.nodes.clear();
  REQUIRE_ERROR(World::virtual_time(1, empty, none), usage, "cluster");
  REQUIRE_ERROR(World::virtual_time(0, one_node(2), none), usage, "ranks", 0);
  World::threads(1, [](World& world) { expect(!world.clock(), "no clock in real time"); });
  World::virtual_time(1, {}, [](World& world) {
    bool refused = false;
    try {
      world.clock()->advance(-1);
    } catch (const Error&) { refused = true; }
    expect(refused, "clocks do not go back");
  });
}

}  // namespace test_virtual_time
