// SimJitter: jitter in closed form, for ranks that are simulated once per program. Each computation takes its mean
// time. If ranks wait for each other, the expected maximum of their times is used.
//
// A computation of cost c takes c times a log-normal factor of median 1 and shape s (Cluster::jitter). Its mean is c
// exp(s^2 / 2), its variance the squared mean times (exp(s^2) - 1). A sum is approximated as log-normal with its mean
// and variance (Fenton, IRE Trans. Communications Systems 8, 1960). The expected maximum of P independent times is the
// integral of 1 - F(x)^P with their distribution F. For two times with different mean and variance it is Clark's
// formula for independent normal times (Operations Research 9, 1961).
//
// A collective synchronizes its ranks, except for computation after it. For each rank and axis the scatter of its
// computation since the last collective along the axis is tracked. The scatter of the time at which a collective's
// ranks are ready is what remains along the other axes.
#pragma once
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "parallel/analysis/sim_record.h"

namespace trireme {

/// Mean and variance, in nanoseconds, of the log-normal time whose scatter about the mean a time has.
struct Scatter {
  double mean = 0, variance = 0;
};
/// Expected excess of the maximum of `count` independent times over their mean, and the scatter of the maximum.
std::pair<double, Scatter> largest_of(const Scatter&, double count);

class SimJitter {
 public:
  /// All arguments must outlive it. For folded ranks.
  SimJitter(const SimPrograms&, const Places&, const SimRanks&);
  /// Whether folded ranks can represent the plan: no messages by rules, no servers.
  static bool suits(const SimPrograms&);

  Nanoseconds mean(Nanoseconds cost, int rank) const;  ///< mean duration of a computation
  void computed(int rank, Nanoseconds mean);
  /// A message or collective begins now, or when `computed` of the next computation is done.
  void begins(int rank, ActionId, double computed = 0);
  /// A message or collective that has begun reaches the head of its rank's link, which is then free.
  void carries(int rank, ActionId, Nanoseconds begin, Nanoseconds free);
  /// All simulated ranks of a line have begun their collective: expected time at which the last rank is ready.
  struct Member {
    int rank;
    ActionId id;
    Nanoseconds ready;
  };
  Nanoseconds latest(int axis, std::span<const Member>);
  void waited(int rank, ActionId collective);  ///< the rank waited for the end, which was later than its own time
  void sent(int from, ActionId send, int to, ActionId recv);
  /// Expected time at which both the receiver and its message are there.
  Nanoseconds received(int rank, ActionId recv, Nanoseconds now, Nanoseconds arrival);
  /// Expected time at which the last of all ranks ends its last step.
  Nanoseconds end(std::span<const Nanoseconds> clocks) const;

 private:
  int ranks_along(int axis, int rank) const;
  using Scatters = std::vector<Scatter>;  // by axis: since the last collective along it; last: since the start
  struct Arrival {
    int axis;
    Scatters as;
  };
  const SimPrograms& plan_;
  const Places& places_;
  const SimRanks& ranks_;
  const Cluster calm_;                     // without jitter
  const double factor_, square_;           // mean of the log-normal factor; its variance over its squared mean
  std::vector<std::vector<char>> within_;  // by axes: whether all ranks of a line of the second axis are on one line of
                                           // the first
  std::vector<Scatters> now_, link_;       // by rank: scatter of its clock; of the time at which its link is free
  std::map<std::pair<int, ActionId>, Scatters> begun_, ended_;          // of messages and collectives, by rank
  std::map<std::pair<int, ActionId>, std::deque<Arrival>> on_its_way_;  // to a recv
};

}  // namespace trireme
