// Virtual time: that a run is the same run whatever the threads do, and goes on as it stopped.
#include <bit>
#include <chrono>
#include <thread>

#include "parallel/comm/fnv.h"
#include "tests/parallel/clocks.h"

namespace test_virtual_programs {

using namespace trireme;
using namespace trireme::test;

namespace {

/// What all ranks do, drawn from the seed: computations, collectives and messages, waited for at once or later, and
/// choices that depend on what is done by now. noise: how threads are held up; no result may depend on it.
class RandomProgram {
 public:
  RandomProgram(World& w, std::uint64_t seed, std::uint64_t noise)
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
  void add(Work work, Tensor out) {
    works_.push_back(std::move(work));
    outs_.push_back(std::move(out));
  }
  void settle(std::size_t i) {
    works_[i].wait();
    note(outs_[i]);
    works_.erase(works_.begin() + static_cast<std::ptrdiff_t>(i));
    outs_.erase(outs_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void round() {
    const int p = comm_.size(), me = comm_.rank(), kind = below(9), size = 1 + below(3000), a = below(p), b = below(p);
    compute(world_, 100 + below(3) * 1000, ++key_);
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
      for (Work& work : works_) {
        note(work.done());
        hold_up();
      }
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
        compute(world_, 10 * below(200), ++key_);
        hold_up();
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
      next.wait();
      hold_up();
      note(message.header.sender);
      note(message.header.clock);
      note(message.payload);
      compute(world_, 30 * (1 + message.header.sender), ++key_);
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
      return on_clocks(ranks, c, [&](World& world) { return RandomProgram(world, seed, noise).run(40); });
    };
    const auto quiet = run(0);
    for (const std::uint64_t noise : {1, 1000000, 2000000}) CHECK(run(noise) == quiet);
  }
}

TEST_CASE("64 ranks") {
  const auto run = [](std::uint64_t noise) {
    return on_clocks(64, test::two_nodes(32), [&](World& world) { return RandomProgram(world, 5, noise).run(20); });
  };
  CHECK(run(0) == run(1));
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
      compute(world_, 1000 + 700 * world_.rank(), static_cast<std::uint64_t>(i));
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
      compute(world_, 900, static_cast<std::uint64_t>(received));
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
    server.run(10, 20);
    server.finish(20);
    return server.log;
  });
  const auto again = on_clocks(6, c, [&](World& world) {
    // Another start: what it takes and leaves behind is lost.
    world.clock()->advance(1000000 * world.rank());
    const auto split = world.comm().split(world.rank() % 2, 0);
    (void)world.comm().send_to({.channel = 1}, {}, 0);
    Server server(world);
    const Stopped& s = stopped[static_cast<std::size_t>(world.rank())];
    server.weight = s.weight;
    server.received = s.received;
    world.clock()->restore(s.state);
    server.run(10, 20);
    server.finish(20);
    return server.log;
  });
  std::size_t on_the_way = 0;
  for (const Stopped& s : stopped) on_the_way += s.state.messages.size();
  CHECK(on_the_way == 2 * 2 + 5 * 2 * 2 - 2 * 2);  // gradients, answers: headers and payloads
  CHECK(whole == again);
  const auto open = [](World& world) {
    const Work receive = world.comm().recv(bytes(1), 1 - world.rank());
    (void)world.clock()->save();
  };
  REQUIRE_ERROR(World::virtual_time(2, one_node(2), open), usage, 1, 0);
}

TEST_CASE("saving leaves all clocks and links alone") {
  Cluster c = one_node(4);
  c.jitter = 0.5;
  const auto run = [&](bool saves) {
    return on_clocks(4, c, [&](World& world) {
      Communicator& comm = world.comm();
      VirtualClock& clock = *world.clock();
      const int next = (world.rank() + 1) % 4, before = (world.rank() + 3) % 4;
      Times t;
      for (int round = 0; round < 3; ++round) {
        compute(world, 500 * (4 - world.rank()), static_cast<std::uint64_t>(round));
        Work first = comm.send(bytes(1000 * (1 + world.rank())), next);  // its link is busy for that long
        const Nanoseconds now = clock.now();
        if (saves) expect(clock.save().clock == now, "the clock that is saved");
        Work second = comm.send(bytes(10), next);
        first.wait();
        t.push_back(clock.now());
        second.wait();
        t.push_back(clock.now());
        comm.recv(bytes(1000 * (1 + before)), before).wait();
        t.push_back(clock.now());
        comm.recv(bytes(10), before).wait();
        t.push_back(clock.now());
      }
      return t;
    });
  };
  CHECK(run(true) == run(false));
}

}  // namespace test_virtual_programs
