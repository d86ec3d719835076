// meetings_text(): servers, gossip's rounds and periods as plan show prints them.
#include "parallel/analysis/draw_meetings.h"
#include "parallel/plan/peers.h"
#include "tests/parallel/plans.h"

namespace test_draw_meetings {

using namespace trireme;
using namespace trireme::test;

namespace {

std::string drawn(const std::string& strategy, int ranks) {
  Plan plan = chain();
  plan.axes = {{"data", ranks}};
  return meetings_text(parse_strategy(strategy)(std::move(plan)));
}
std::string line_of(const std::string& text, const std::string& begin) {
  const auto at = text.find("\n" + begin);
  return at == text.npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

}  // namespace

TEST_CASE("gossip's rounds are drawn with every edge once, both ways or one") {
  for (const char* graph : {"ring", "exponential", "torus", "random"})
    for (const bool push : {false, true})
      for (int ranks : {2, 3, 4, 7, 12}) {
        if (!push && std::string(graph) == "random" && ranks % 2 == 1) continue;
        const std::string text =
            drawn(fmt::format("gossip(graph={}, mode={})", graph, push ? "push_sum" : "sync"), ranks);
        INFO(text);
        Peer peer{.axis = "data", .pairs = graph};
        if (std::string(graph) == "random") peer.pairs = push ? "random_target" : "matching";
        if (push && std::string(graph) == "ring") peer.pairs = "directed_ring";
        const std::string always = line_of(text, "  every time  ");
        for (int step = 0; step < (always.empty() ? 1 : 4); ++step) {
          const std::string round = always.empty() ? line_of(text, fmt::format("  step {:<5}  ", step)) : always;
          std::size_t edges = 0, directions = 0;
          for (int r = 0; r < ranks; ++r)
            for (const RankPair& pair : peers_at(peer, r, ranks, step)) {
              if (pair.to == r) continue;
              const bool one = (round + " ").find(fmt::format(" {}>{} ", r, pair.to)) != round.npos,
                         both =
                             (round + " ").find(fmt::format(" {}-{} ", std::min(r, pair.to), std::max(r, pair.to))) !=
                             round.npos;
              CHECK(one != both);
              ++directions;
              edges += one ? 2 : 1;
            }
          CHECK(directions > 0);
          const auto drawn_edges = std::ranges::count(round, '>') + std::ranges::count(round, '-');
          CHECK(2 * drawn_edges == static_cast<std::ptrdiff_t>(edges));
        }
      }
  for (int seed = 0; seed < 9; ++seed)  // no period is read into what is drawn
    for (const char* mode : {"sync", "push_sum"}) {
      const std::string text = drawn(fmt::format("gossip(graph=random, mode={}, seed={})", mode, seed), 4);
      INFO(text);
      CHECK(text.find("  and so on\n") != text.npos);
      CHECK(text.find("every time") == text.npos);
    }
  CHECK(drawn("gossip(graph=ring)", 40).find(" ...\n") != std::string::npos);
}

TEST_CASE("periods and servers are drawn; where ranks do the same in every step nothing is") {
  CHECK(drawn("data_parallel", 4) == "");
  CHECK(drawn("local_sgd(every=2)", 1) == "");
  const std::string local = drawn("local_sgd(every=4)", 4);
  INFO(local);
  CHECK(local.find("weights along data: periodic(4)\nmean over data: all 4 ranks together\n") != local.npos);
  CHECK(line_of(local, "average over data").find("  ...x...x...x...x...x...x...x...x...x...x...x...x  every 4 steps") !=
        std::string::npos);
  const std::string servers = drawn("parameter_server(mode=ssp, staleness=2, servers=2)", 6);
  INFO(servers);
  for (const char* text : {"weights along data: stale(2)\n", "server 4 (data 4)\n", "server 5 (data 5)\n",
                           "  <- gradients [225, 450), ready, loss from worker (data 0 to 3)\n",
                           "  -> weights [0, 225) to worker (data 0 to 3)\n",
                           "at most 2 steps ahead of the slowest on gradients: send weights\n"})
    CHECK(servers.find(text) != servers.npos);
}

}  // namespace test_draw_meetings
