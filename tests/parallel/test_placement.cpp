// Which cores ranks get, on described hosts, and that the threads of this one are bound to them.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <numeric>

#include "kernels/core/runtime.h"
#include "kernels/cpu/parallel.h"
#include "parallel/comm/world/placement.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary.h"

namespace test_placement {

using namespace trireme;
using namespace trireme::test;
using Cpus = std::vector<int>;

namespace {

Cpus range(int begin, int end) {
  Cpus all(static_cast<std::size_t>(end - begin));
  std::iota(all.begin(), all.end(), begin);
  return all;
}

/// A folder like /sys of a host with these CPUs on each NUMA node, and with these hyper-threads of a core.
struct Host {
  Host(const std::map<int, std::string>& nodes, const std::map<int, std::string>& siblings) {
    std::string online;
    for (const auto& [node, cpus] : nodes) {
      online += (online.empty() ? "" : ",") + std::to_string(node);
      write(fmt::format("node/node{}/cpulist", node), cpus);
    }
    write("node/online", online);
    for (const auto& [cpu, list] : siblings) write(fmt::format("cpu/cpu{}/topology/thread_siblings_list", cpu), list);
  }
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder / ("devices/system/" + name);
    std::filesystem::create_directories(path.parent_path());
    spill(path, text + "\n");
  }
  /// The CPUs of each rank, core by core.
  std::vector<std::vector<Cpus>> shares(const Cpus& usable, int ranks) const {
    std::vector<std::vector<Cpus>> all;
    for (int r = 0; r < ranks; ++r)
      for (all.emplace_back(); const CpuCore& core : share_of_cores(find_cores(usable, folder.path()), r, ranks))
        all.back().push_back(core.cpus);
    return all;
  }
  std::string text(const Cpus& usable) const { return to_string(find_cores(usable, folder.path())); }
  Temporary folder;
};

/// Two nodes of two cores with two hyper-threads each, numbered as Linux does: CPU n + 4 is the second thread of n.
const Host& two_nodes_of_two() {
  static const Host host(
      {{0, "0-1,4-5"}, {1, "2-3,6-7"}},
      {{0, "0,4"}, {1, "1,5"}, {2, "2,6"}, {3, "3,7"}, {4, "0,4"}, {5, "1,5"}, {6, "2,6"}, {7, "3,7"}});
  return host;
}

/// The CPUs of the calling thread.
Cpus own_cpus() { return usable_cpus(); }

/// The CPUs of each thread of a team.
std::vector<Cpus> team_cpus() {
  std::vector<Cpus> all(static_cast<std::size_t>(threads()));
  parallel_for(std::ssize(all), parallel_grain,
               [&](Index, Index, int chunk) { all[static_cast<std::size_t>(chunk)] = own_cpus(); });
  return all;
}

/// body on a thread, so that this one is not bound.
template <class F>
void elsewhere(F&& body) {
  std::jthread(std::forward<F>(body)).join();
}

}  // namespace

TEST_CASE("ranks get whole nodes, then cores, then hyper-threads, then the same CPUs") {
  const Host& host = two_nodes_of_two();
  const Cpus all = range(0, 8);
  using Shares = std::vector<std::vector<Cpus>>;
  CHECK(host.shares(all, 1) == Shares{{{0, 4}, {1, 5}, {2, 6}, {3, 7}}});
  CHECK(host.shares(all, 2) == Shares{{{0, 4}, {1, 5}}, {{2, 6}, {3, 7}}});
  CHECK(host.shares(all, 3) == Shares{{{0, 4}}, {{1, 5}}, {{2, 6}, {3, 7}}});
  CHECK(host.shares(all, 4) == Shares{{{0, 4}}, {{1, 5}}, {{2, 6}}, {{3, 7}}});
  CHECK(host.shares(all, 8) == Shares{{{0}}, {{4}}, {{1}}, {{5}}, {{2}}, {{6}}, {{3}}, {{7}}});
  const Shares shared = host.shares(all, 16);
  for (std::size_t r = 0; r < 16; ++r) CHECK(shared[r] == host.shares(all, 8)[r / 2]);
  CHECK(host.text(all) == "CPUs 0-7 of NUMA nodes 0-1");
}

TEST_CASE("ranks stay within the CPUs that the process may use") {
  const Host& host = two_nodes_of_two();
  using Shares = std::vector<std::vector<Cpus>>;
  CHECK(host.shares({1, 3, 6}, 3) ==
        Shares{{{1}}, {{6}}, {{3}}});  // 6 is a thread of core 2, whose first is not usable
  CHECK(host.shares({4, 5, 6, 7}, 2) == Shares{{{4}, {5}}, {{6}, {7}}});
  CHECK(host.shares({2, 6}, 1) == Shares{{{2, 6}}});
  CHECK(host.shares({2, 6}, 2) == Shares{{{2}}, {{6}}});
  CHECK(host.shares({5}, 3) == Shares{{{5}}, {{5}}, {{5}}});
  CHECK(host.text({1, 3, 6}) == "CPUs 1, 3, 6 of NUMA nodes 0-1");
  CHECK(host.text({5}) == "CPU 5 of NUMA node 0");
}

TEST_CASE("offline CPUs, nodes without CPUs and hosts that describe nothing") {
  using Shares = std::vector<std::vector<Cpus>>;
  // CPU 1 and the second thread of core 0 are offline; node 3 has memory only.
  const Host part({{0, "0"}, {2, "2-3,6-7"}, {3, ""}}, {{0, "0"}, {2, "2,6"}, {3, "3,7"}, {6, "2,6"}, {7, "3,7"}});
  CHECK(part.shares({0, 2, 3, 6, 7}, 3) == Shares{{{0}}, {{2, 6}}, {{3, 7}}});
  CHECK(part.text({0, 2, 3, 6, 7}) == "CPUs 0, 2-3, 6-7 of NUMA nodes 0, 2");
  const Temporary empty;
  const std::vector<CpuCore> cores = find_cores({0, 1, 2}, empty.path());
  CHECK(cores.size() == 3);
  CHECK(to_string(cores) == "CPUs 0-2 of NUMA node 0");
}

TEST_CASE("large hosts: every rank gets the same number of cores up to one, and no core twice") {
  std::map<int, std::string> nodes, siblings;
  for (int n = 0; n < 8; ++n) nodes[n] = fmt::format("{}-{}", n * 24, n * 24 + 23);
  const Host host(nodes, siblings);
  for (const int ranks : {1, 2, 7, 8, 16, 100, 192}) {
    CAPTURE(ranks);
    std::vector<int> used(192);
    for (const auto& share : host.shares(range(0, 192), ranks)) {
      CHECK(std::ssize(share) >= 192 / ranks);
      CHECK(std::ssize(share) <= 192 / ranks + 1);
      for (const Cpus& core : share) ++used[static_cast<std::size_t>(core.at(0))];
    }
    CHECK(used == std::vector<int>(192, 1));
  }
}

TEST_CASE("a rank's threads are bound to its cores") {
  if (threads_only()) return;
  const std::vector<CpuCore> all = find_cores(usable_cpus());
  const int ranks = 2;
  std::vector<std::string> told(ranks);
  std::vector<Cpus> main(ranks), helper(ranks);
  std::vector<std::vector<Cpus>> team(ranks);
  World::threads(ranks, [&](World& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    told[r] = world.bind("core");
    main[r] = own_cpus();
    team[r] = team_cpus();
    std::jthread([&] { helper[r] = own_cpus(); }).join();
  });
  for (int r = 0; r < ranks; ++r) {
    const std::vector<CpuCore> share = share_of_cores(all, r, ranks);
    Cpus cpus;
    for (const CpuCore& core : share) cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
    std::ranges::sort(cpus);
    const auto rank = static_cast<std::size_t>(r);
    CAPTURE(r, to_string(share));
    CHECK(told[rank] == to_string(share));
    CHECK(main[rank] == cpus);
    CHECK(helper[rank] == cpus);
    REQUIRE(team[rank].size() <= share.size());
    for (std::size_t k = 1; k < team[rank].size(); ++k) CHECK(team[rank][k] == share[k].cpus);
  }
}

TEST_CASE("threads beyond the cores share these, and threads that OpenMP makes again are bound again") {
  if (threads_only()) return;
  elsewhere([] {
    const std::vector<CpuCore> all = find_cores(usable_cpus());
    World world;
    world.bind("core");
    for (const int count : {5, 1, 3, 5}) {
      set_threads(count);
      const std::vector<Cpus> team = team_cpus();
      for (std::size_t k = 1; k < team.size(); ++k) CHECK(team[k] == all[k % all.size()].cpus);
    }
    std::vector<std::vector<int>> places;
    for (const CpuCore& core : all) places.push_back(core.cpus);
    std::ranges::reverse(places);  // another binding of the same threads
    bind_threads(places);
    const std::vector<Cpus> team = team_cpus();
    for (std::size_t k = 1; k < team.size(); ++k) CHECK(team[k] == places[k % places.size()]);
  });
}

TEST_CASE("numa leaves a rank the CPUs of its nodes; none and virtual time leave all") {
  if (threads_only()) return;
  const Cpus before = own_cpus();
  elsewhere([&] {
    World world;
    CHECK(world.bind("none").empty());
    CHECK(own_cpus() == before);
    const std::string told = world.bind("numa");
    CHECK(told == to_string(find_cores(before)));  // one rank has all nodes
    CHECK(own_cpus() == before);
    CHECK(world.bind("core") == told);
    CHECK(world.bind("core") == told);  // bound again, it divides what it could use at first
    CHECK(cores() == std::ssize(before));
    CHECK_THROWS_AS(world.bind("socket"), Error);
  });
  std::vector<Cpus> simulated(2);
  World::virtual_time(2, two_nodes(1), [&](World& world) {
    (void)world.bind("core");
    simulated[static_cast<std::size_t>(world.rank())] = own_cpus();
  });
  CHECK(simulated == std::vector<Cpus>{before, before});
  CHECK(own_cpus() == before);
  CHECK_THROWS_AS(bind_threads({{}}), Error);
  CHECK_THROWS_AS(bind_threads({{1023}}), Error);  // no such CPU
}

}  // namespace test_placement
