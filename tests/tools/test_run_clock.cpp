// The time of runs: what checkpoints keep of virtual time, and that saving takes none of it.
#include "tools/training/run_clock.h"

#include <optional>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/temporary.h"
#include "tools/training/cluster_file.h"
#include "tools/training/events.h"
#include "tools/training/from_options.h"

namespace test_run_clock {

using namespace trireme;
using test::contains;

namespace {

Cluster cluster(int ranks) {
  const Link link{.latency = 1e-3, .bandwidth = 1e6};
  return {.nodes = {{.devices = ranks}}, .inside = link, .between = link};
}

/// A message to the next rank that nobody has received yet, and clocks that differ.
void send_on(World& world) {
  Communicator& comm = world.comm();
  world.clock()->advance(100 * (world.rank() + 1));
  comm.send(Tensor::full({5}, world.rank() + 0.5), (world.rank() + 1) % world.size(), 7).wait();
}
/// Receives it; the value, and the clock then.
std::pair<double, Nanoseconds> receive(World& world) {
  Tensor x = Tensor::empty({5});
  world.comm().recv(x, (world.rank() + world.size() - 1) % world.size(), 7).wait();
  return {x.to_vector()[4], world.clock()->now()};
}

}  // namespace

TEST_CASE("the state of a rank goes through tensors") {
  std::mt19937_64 dice(3);
  for (int round = 0; round < 50; ++round) {
    VirtualState state;
    state.clock = static_cast<Nanoseconds>(dice() >> 1);
    state.link = static_cast<Nanoseconds>(dice() >> 1);
    const auto small = [&] { return static_cast<int>(dice() % 100); };
    for (int n = small() % 4; n > 0; --n) state.turns.push_back({dice(), small(), small(), small()});
    for (int n = small() % 12; n > 0; --n)
      state.messages.push_back({dice(), small(), small(), small(), static_cast<Nanoseconds>(dice() >> 1),
                                n % 3 == 0 ? Tensor() : Tensor::full({n}, n, n % 2 == 0 ? DType::u8 : DType::f32)});
    const VirtualState back = from_tensors(to_tensors(state));
    CHECK((back.clock == state.clock && back.link == state.link));
    REQUIRE(back.turns.size() == state.turns.size());
    for (std::size_t i = 0; i < state.turns.size(); ++i) {
      const auto &a = back.turns[i], &b = state.turns[i];
      CHECK(std::tie(a.communicator, a.receiver, a.tag, a.sender) ==
            std::tie(b.communicator, b.receiver, b.tag, b.sender));
    }
    REQUIRE(back.messages.size() == state.messages.size());
    for (std::size_t i = 0; i < state.messages.size(); ++i) {
      const auto &a = back.messages[i], &b = state.messages[i];
      CHECK(std::tie(a.communicator, a.receiver, a.sender, a.tag, a.arrival) ==
            std::tie(b.communicator, b.receiver, b.sender, b.tag, b.arrival));
      REQUIRE(bool(a.payload) == bool(b.payload));
      if (a.payload) CHECK((a.payload.dtype() == b.payload.dtype() && a.payload.to_vector() == b.payload.to_vector()));
    }
  }
  CHECK_ERROR(from_tensors({}), data, "resume");
  CHECK_ERROR(from_tensors({{"virtual.clock", Tensor::zeros({2})}}), data, "resume", "f32 [2]");
}

TEST_CASE("what is done between saving and restoring takes no simulated time") {
  constexpr int ranks = 3;
  std::vector<std::pair<double, Nanoseconds>> plain(ranks), held(ranks), restored(ranks);
  std::vector<std::map<std::string, Tensor>> saved(ranks);
  std::vector<char> later(ranks);
  World::virtual_time(ranks, cluster(ranks), [&](World& world) {
    send_on(world);
    plain[world.rank()] = receive(world);
  });
  World::virtual_time(ranks, cluster(ranks), [&](World& world) {
    send_on(world);
    const Nanoseconds before = world.clock()->now();
    const VirtualState state = world.clock()->save();
    saved[world.rank()] = to_tensors(state);
    world.comm().barrier();
    later[world.rank()] = world.clock()->now() > before;
    world.clock()->restore(state);
    if (world.clock()->now() == before) held[world.rank()] = receive(world);
  });
  World::virtual_time(ranks, cluster(ranks), [&](World& world) {  // another process, as it were
    world.comm().barrier();
    world.clock()->restore(from_tensors(saved[world.rank()]));
    restored[world.rank()] = receive(world);
  });
  CHECK(plain[1].first == 0.5);
  CHECK(plain[0].second != plain[1].second);
  CHECK(later == std::vector<char>(ranks, true));
  CHECK(held == plain);
  CHECK(restored == plain);
}

TEST_CASE("where time is real the clock is the steady one") {
  World world;
  const RunClock clock(world);
  CHECK(clock.simulated() == nullptr);
  const Nanoseconds before = clock.now();
  while (clock.now() == before) {}
  CHECK(clock.now() > before);
}

TEST_CASE("a cluster is what its text says") {
  TrainerOptions options;
  options.parallel.virtual_ranks = 7;
  for (const Cluster& c : {make_cluster(options), Cluster{.nodes = {{2, 3, 0.5}, {1, 8, 1e-3}},
                                                  .inside = {1e-7, 3e11},
                                                  .between = {0, 0},
                                                  .jitter = 0.125,
                                                  .seed = 9,
                                                  .flops = 5e23,
                                                  .name = "a \"b\"\n\\c\x7f\x7f"}})
    CHECK(parse_cluster(cluster_toml(c), "text") == c);
}

TEST_CASE("events of virtual time name neither host nor process, and no moment but the clock's") {
  const test::Temporary one, two;
  for (const test::Temporary* folder : {&one, &two}) {
    double now = 2.5;
    for (const char* name : {"0000000002", "0000000003"}) {  // one is later than the other, if in the same second
      EventFile events(folder->path(), {}, [&] { return now; });
      events.scalar("train/loss", 1, 0.25);
      CHECK(events.path() == *folder / fmt::format("events.out.tfevents.{}.virtual", name));
      now = 2.75;
    }
  }
  for (const char* name : {"0000000002", "0000000003"}) {
    const std::string file = fmt::format("events.out.tfevents.{}.virtual", name), bytes = test::slurp(one / file);
    CHECK(bytes.size() > 50);
    CHECK(bytes == test::slurp(two / file));
  }
}

}  // namespace test_run_clock
