// SimJitter: jitter of ranks that are simulated once, in closed form: each computation takes its mean time, and where
// ranks wait for each other the expected largest of their times counts.
//
// A computation of cost c takes c times a log-normal factor of median 1 and shape s (Cluster::jitter): its mean is
// c exp(s^2 / 2), its variance the mean's square times (exp(s^2) - 1). A sum of such is taken as log-normal, too, of
// the same mean and variance (Fenton, IRE Trans. Communications Systems 8, 1960). Of P independent ones the largest is
// expected at the integral of 1 - F(x)^P, F their distribution. Of two times of differing mean and variance it is as
// Clark has it for normal ones that are independent (Operations Research 9, 1961).
//
// A collective makes its ranks equal, up to what they compute behind it: of each rank it is known by axis how its
// computation since the last collective along it scatters. That of the time at which a collective's ranks are ready is
// what remains along the other axes.
#pragma once
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "parallel/analysis/sim_record.h"

namespace trireme {

/// How a time scatters about its mean: as a log-normal time of this mean, and of this variance, would, in nanoseconds.
struct Scatter {
  double mean = 0, variance = 0;
};
/// By how much the largest of so many independent times is expected to exceed the mean of one, and how it scatters.
std::pair<double, Scatter> largest_of(const Scatter&, double count);

class SimJitter {
 public:
  /// All must outlive it; for ranks that are folded.
  SimJitter(const SimPrograms&, const Places&, const SimRanks&);
  /// Whether a plan has nothing that only single ranks can tell: messages by rules, servers.
  static bool suits(const SimPrograms&);

  Nanoseconds mean(Nanoseconds cost, int rank) const;  ///< of a computation
  void computed(int rank, Nanoseconds mean);
  /// A message or collective begins now, or when so much of the next computation is done.
  void begins(int rank, ActionId, double computed = 0);
  /// A message or collective that has begun then comes to the head of its rank's link, which is free then.
  void carries(int rank, ActionId, Nanoseconds begin, Nanoseconds free);
  /// All simulated ranks of a line have begun their collective: when the last of all is expected to be ready.
  struct Member {
    int rank;
    ActionId id;
    Nanoseconds ready;
  };
  Nanoseconds latest(int axis, std::span<const Member>);
  void waited(int rank, ActionId collective);  ///< for its end, which was later than the rank
  void sent(int from, ActionId send, int to, ActionId recv);
  /// When both a receiver and a message to it are expected to be there.
  Nanoseconds received(int rank, ActionId recv, Nanoseconds now, Nanoseconds arrival);
  /// When the last of all ranks has ended its last step.
  Nanoseconds end(std::span<const Nanoseconds> clocks) const;

 private:
  int ranks_along(int axis, int rank) const;
  using Scatters = std::vector<Scatter>;  // by axis: since the last collective along it; behind them: since the begin
  struct Arrival {
    int axis;
    Scatters as;
  };
  const SimPrograms& plan_;
  const Places& places_;
  const SimRanks& ranks_;
  const Cluster calm_;                     // without jitter
  const double factor_, square_;           // mean of the log-normal factor; its variance over its mean's square
  std::vector<std::vector<char>> within_;  // by axis: whether all ranks of a line of the other are on one of its lines
  std::vector<Scatters> now_, link_;       // by rank: of its time; of that at which its link is free
  std::map<std::pair<int, ActionId>, Scatters> begun_, ended_;          // of messages and collectives, by rank
  std::map<std::pair<int, ActionId>, std::deque<Arrival>> on_its_way_;  // to a recv
};

}  // namespace trireme
