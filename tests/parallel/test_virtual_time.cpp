// Virtual time: what operations take on small clusters, in closed form; and that a run is the same run whatever the
// threads do.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "kernels/core/runtime.h"
#include "parallel/comm/collectives/collectives.h"
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
  World::virtual_time(ranks, cluster, [&](World& world) { all[static_cast<std::size_t>(world.rank())] = body(world); });
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

TEST_CASE("named algorithms take what their rounds cost") {
  const Cluster c = test::two_nodes(2);
  for (const char* name : {"ring", "tree", "recursive_doubling"}) {
    const auto ends = on_clocks(4, c, [&](World& world) {
      world.use_all_reduce(name);
      const Tensor x = Tensor::full({1001}, world.rank());
      const Nanoseconds before = world.clock()->now();
      world.comm().all_reduce(x).wait();
      return Times{world.clock()->now() - before, static_cast<Nanoseconds>(x.to_vector()[1000])};
    });
    const double cost = collectives::cost(collectives::find_algorithm(name), CallKind::all_reduce, 4, 4004,
                                          {.latency = c.between.latency, .per_byte = 1 / c.between.bandwidth});
    CHECK(ends[3] == Times{nanoseconds(cost), 6});
  }
  REQUIRE_THROWS_WITH(World::virtual_time(2, c, [](World& world) { world.use_all_reduce("auto"); }),
                      contains("in virtual time nothing can be measured"));
}

TEST_CASE("deadlines of several operations count by the clock") {
  const auto ends = on_clocks(2, one_node(2), [](World& world) {
    Times t;
    const Tensor x = bytes(100), y = bytes(100);  // 300 ns each
    Work both = when_all({world.comm().all_reduce(x), world.comm().all_reduce(y)});
    for (int i = 0; i < 3; ++i) t.push_back(both.wait_for(250e-9)), t.push_back(world.clock()->now());
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

TEST_CASE("ranks of differing speed, and jitter that is the same each time") {
  Cluster c = one_node(2);
  c.nodes.push_back({.count = 1, .devices = 2, .speed = 0.5});
  const auto program = [](World& world) {
    Times t;
    for (std::uint64_t key = 0; key < 5; ++key) {
      world.clock()->compute(1000, key);
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
    t.push_back(message.wait_for(0)), t.push_back(clock.now());
    clock.advance(1);
    t.push_back(message.done());
    t.push_back(next.wait_for(300e-9)), t.push_back(clock.now());  // until 1500
    t.push_back(next.done());
    t.push_back(next.wait_for(300e-9)), t.push_back(clock.now());
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

namespace {

void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("not so: " + what);
}

/// What all ranks do, drawn from the seed: computations, collectives and messages, waited for at once or later, and
/// choices that depend on what is done by now. noise: how threads are held up; no result may depend on it.
class Program {
 public:
  Program(World& w, std::uint64_t seed, std::uint64_t noise)
      : world_(w), comm_(w.comm()), clock_(*w.clock()), first_seed_(seed * 1000003), noise_(noise) {
    pair_ = comm_.split(w.rank() % 2, -w.rank());
  }
  /// Clocks and data, as numbers.
  std::vector<std::uint64_t> run(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      seed_ = mix(first_seed_ + static_cast<std::uint64_t>(i));
      round_ = i;
      hold_up();
      round();
      note(clock_.now());
    }
    while (!works_.empty()) settle(0);
    comm_.barrier();
    note(clock_.now());
    return log_;
  }

 private:
  /// The same on all ranks.
  int below(int n) { return static_cast<int>(mix(seed_++) % static_cast<std::uint64_t>(n)); }
  void note(std::int64_t v) { log_.push_back(static_cast<std::uint64_t>(v)); }
  void note(const Tensor& x) {
    Fnv fnv;
    for (const double v : x.to_vector()) fnv.add(std::bit_cast<std::uint64_t>(v));
    log_.push_back(fnv.value());
  }
  void hold_up() {
    if (noise_ == 0) return;
    const auto v = mix(noise_++ * 64 + static_cast<std::uint64_t>(world_.rank()));
    if (v % 17 == 0) std::this_thread::sleep_for(std::chrono::microseconds(v / 32 % 200));
    if (v % 5 == 1) std::this_thread::yield();
  }
  Tensor numbers(Index n) { return Tensor::full({n}, 1.0 / (1 + world_.rank()) + static_cast<double>(log_.size())); }
  void add(Work work, Tensor out) { works_.push_back(std::move(work)), outs_.push_back(std::move(out)); }
  void settle(std::size_t i) {
    works_[i].wait();
    note(outs_[i]);
    works_.erase(works_.begin() + static_cast<std::ptrdiff_t>(i));
    outs_.erase(outs_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void round() {
    const int p = comm_.size(), me = comm_.rank(), kind = below(9), size = 1 + below(3000), a = below(p), b = below(p);
    clock_.compute(100 + below(3) * 1000, ++key_);
    if (kind == 0) {
      const Tensor x = numbers(size);
      add(comm_.all_reduce(x, ReduceOp::average), x);
    } else if (kind == 1) {
      const Tensor x = numbers(size);
      add(pair_->all_reduce(x), x);
    } else if (kind == 2) {
      const Tensor x = numbers(size);
      add(comm_.broadcast(x, a), x);
    } else if (kind == 3) {
      const Tensor x = numbers(size), y = Tensor::zeros({size});
      if (me == a) add(comm_.send(x, b, 3), x);
      if (me == b) add(comm_.recv(y, a, 3), y);
    } else if (kind == 4) {
      serve(a, 1 + below(4));
    } else if (works_.empty()) {
      return;
    } else if (kind == 5) {
      settle(static_cast<std::size_t>(below(1 << 20)) % works_.size());
    } else if (kind == 6) {
      for (Work& work : works_) note(work.done()), hold_up();
    } else if (kind == 7) {
      settle(wait_any(works_));
    } else {
      note(works_[0].wait_for(1e-9 * below(4000)));
    }
  }

  /// All send to the server as they get there; it answers in the order in which messages come.
  void serve(int server, int each) {
    const int me = comm_.rank();
    if (me != server) {
      for (int i = 0; i < each; ++i) {
        clock_.compute(10 * below(200), ++key_), hold_up();
        comm_.send_to({.channel = round_, .clock = clock_.now()}, numbers(1 + 100 * i), server).wait();
        const Tensor answer = Tensor::zeros({1});
        comm_.recv(answer, server, 4).wait();
        note(answer);
      }
      return;
    }
    for (int i = 0; i < each; ++i) below(200);  // as the others
    for (int i = 0; i < each * (comm_.size() - 1); ++i) {
      ReceivedMessage message;
      Work next = comm_.recv_any(message, round_);
      if (i % 3 == 0) note(next.wait_for(50e-9));
      next.wait(), hold_up();
      note(message.header.sender), note(message.header.clock), note(message.payload);
      clock_.compute(30 * (1 + message.header.sender), ++key_);
      comm_.send(Tensor::full({1}, i), message.header.sender, 4).wait();
    }
  }

  int round_ = 0;
  World& world_;
  Communicator& comm_;
  VirtualClock& clock_;
  std::uint64_t first_seed_, seed_ = 0, noise_, key_ = 0;
  std::unique_ptr<Communicator> pair_;
  std::vector<Work> works_;
  std::vector<Tensor> outs_;
  std::vector<std::uint64_t> log_;
};

}  // namespace

TEST_CASE("a random program gives the same clocks and data whatever the threads do") {
  for (std::uint64_t seed = 1; seed <= 9; ++seed) {
    const int ranks = 2 + static_cast<int>(mix(seed) % 6);
    Cluster c = test::two_nodes(ranks - 1);
    c.jitter = seed % 2 ? 0.3 : 0;
    if (seed % 3 == 0) c.inside = c.between = {};  // ties everywhere
    CAPTURE(seed, ranks);
    const auto run = [&](std::uint64_t noise) {
      return on_clocks(ranks, c, [&](World& world) { return Program(world, seed, noise).run(40); });
    };
    const auto quiet = run(0);
    for (const std::uint64_t noise : {1, 1000000, 2000000}) CHECK(run(noise) == quiet);
  }
}

TEST_CASE("64 ranks") {
  const auto run = [](std::uint64_t noise) {
    return on_clocks(64, test::two_nodes(32), [&](World& world) { return Program(world, 5, noise).run(20); });
  };
  CHECK(run(0) == run(1));
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

TEST_CASE("ranks that all wait are told at once for what") {
  const auto body = [](World& world) {
    Communicator& comm = world.comm();
    ReceivedMessage message;
    if (world.rank() == 0) comm.recv(bytes(3), 2, 1).wait();
    if (world.rank() == 1) comm.recv_any(message, 4).wait();
    if (world.rank() == 2) comm.barrier();
  };
  REQUIRE_THROWS_WITH(World::virtual_time(4, one_node(4), body),
                      contains("virtual time: no rank can go on: rank 0 waits for recv of 3 u8 from rank 2, rank 1 "
                               "waits for a message to channel 4, rank 2 waits for barrier, rank 3 has returned"));
  const auto crossed = [](World& world) {
    const auto other = world.comm().split(0, 0);
    const Tensor x = bytes(1), y = bytes(1);
    Work a = (world.rank() ? *other : world.comm()).all_reduce(x);
    Work b = (world.rank() ? world.comm() : *other).broadcast(y, 0);
    a.wait(), b.wait();
  };
  REQUIRE_THROWS_AS(World::virtual_time(2, one_node(2), crossed), Error);
  const auto behind = [](World& world) {
    const Tensor x = bytes(1), y = bytes(2);
    if (world.rank()) return world.comm().recv(x, 0).wait(), world.comm().all_reduce(y).wait();
    Work sum = world.comm().all_reduce(y);
    world.comm().send(x, 1).wait();
  };
  REQUIRE_THROWS_WITH(World::virtual_time(2, one_node(2), behind),
                      contains("rank 0 waits for send of 1 u8 to rank 1 behind all_reduce of 2 u8 (sum)"));
}

TEST_CASE("clusters that cannot be are refused before a body begins") {
  const auto none = [](World&) { FAIL(); };
  REQUIRE_THROWS_WITH(World::virtual_time(3, one_node(2), none),
                      contains("virtual time: 3 ranks do not fit on the 2 devices"));
  Cluster empty;
  empty.nodes.clear();
  REQUIRE_THROWS_WITH(World::virtual_time(1, empty, none), contains("there are no nodes"));
  REQUIRE_THROWS_WITH(World::virtual_time(0, one_node(2), none), contains("got 0"));
  World::threads(1, [](World& world) { expect(!world.clock(), "no clock in real time"); });
  World::virtual_time(1, {}, [](World& world) {
    bool refused = false;
    try {
      world.clock()->advance(-1);
    } catch (const Error&) { refused = true; }
    expect(refused, "clocks do not go back");
  });
}

namespace {

/// An asynchronous parameter server in small: workers compute and send gradients; rank 0 takes them as they come and
/// answers with new weights. It can stop between steps.
class Server {
 public:
  explicit Server(World& w) : world_(w), comm_(w.comm()), clock_(*w.clock()) {}

  /// Steps [from, to) of the workers, which are two answers behind. Two gradients are left on the way.
  void run(int from, int to) {
    for (int i = from; i < to && world_.rank() > 0; ++i) {
      clock_.compute(1000 + 700 * world_.rank(), static_cast<std::uint64_t>(i));
      (void)comm_.send_to({.channel = 1, .clock = i}, Tensor::full({500}, weight * world_.rank()), 0);
      if (i >= 2) weight = receive(2);
    }
    serve((comm_.size() - 1) * to - 2);
  }
  void finish(int to) {
    serve((comm_.size() - 1) * to);
    for (int i = 0; i < 2 && world_.rank() > 0; ++i) weight = receive(2);
    comm_.barrier();
    log.push_back(static_cast<double>(clock_.now()));
  }

  double weight = 1;
  int received = 0;
  std::vector<double> log;

 private:
  void serve(int until) {
    for (; received < until && world_.rank() == 0; ++received) {
      weight = 0.9 * weight + 0.01 * receive(1);
      clock_.compute(900, static_cast<std::uint64_t>(received));
      (void)comm_.send_to({.channel = 2, .clock = received}, Tensor::full({3}, weight), sender_);
    }
  }
  double receive(int channel) {
    ReceivedMessage message;
    comm_.recv_any(message, channel).wait();
    sender_ = message.header.sender;
    const double value = message.payload.to_vector()[0];
    log.insert(log.end(),
               {static_cast<double>(clock_.now()), static_cast<double>(sender_ * 1000 + message.header.clock), value});
    return value;
  }

  World& world_;
  Communicator& comm_;
  VirtualClock& clock_;
  int sender_ = 0;
};

}  // namespace

TEST_CASE("a run that is stopped with messages on their way goes on as if it had not been") {
  Cluster c = test::two_nodes(2);
  c.jitter = 0.2;
  c.nodes.push_back({.count = 1, .devices = 2, .speed = 0.6});
  struct Stopped {
    VirtualState state;
    double weight;
    int received;
  };
  std::vector<Stopped> stopped(6);
  const auto whole = on_clocks(6, c, [&](World& world) {
    Server server(world);
    server.run(0, 10);
    stopped[static_cast<std::size_t>(world.rank())] = {world.clock()->save(), server.weight, server.received};
    server.log.clear();
    server.run(10, 20), server.finish(20);
    return server.log;
  });
  const auto again = on_clocks(6, c, [&](World& world) {
    // Another start: what it takes and leaves behind is lost.
    world.clock()->advance(1000000 * world.rank());
    const auto split = world.comm().split(world.rank() % 2, 0);
    (void)world.comm().send_to({.channel = 1}, {}, 0);
    Server server(world);
    const Stopped& s = stopped[static_cast<std::size_t>(world.rank())];
    server.weight = s.weight, server.received = s.received;
    world.clock()->restore(s.state);
    server.run(10, 20), server.finish(20);
    return server.log;
  });
  std::size_t on_the_way = 0;
  for (const Stopped& s : stopped) on_the_way += s.state.messages.size();
  CHECK(on_the_way == 2 * 2 + 5 * 2 * 2 - 2 * 2);  // gradients, answers: headers and payloads
  CHECK(stopped[0].state.clock == stopped[5].state.clock);
  CHECK(whole == again);
  const auto open = [](World& world) {
    const Work receive = world.comm().recv(bytes(1), 1 - world.rank());
    (void)world.clock()->save();
  };
  REQUIRE_THROWS_WITH(World::virtual_time(2, one_node(2), open), contains("has receives under way"));
}
