// Places: the nodes of simulated ranks, and the kind of link of each communication.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "parallel/analysis/sim_programs.h"

namespace trireme {

class Places {
 public:
  /// plan must outlive it. Throws Error if the cluster has fewer devices than ranks.
  explicit Places(const SimPrograms& plan);
  bool same_speed() const { return same_speed_; }
  const RankLines& lines(int axis) const { return lines_[axis]; }  ///< lines along SimPrograms::axes
  /// Whether ranks are on several nodes: two ranks, or the ranks of a line along an axis.
  bool apart(int a, int b) const { return node_[a] != node_[b]; }
  bool between(int rank, int axis) const {
    return slowest_.empty() ? between_[axis][lines_[axis].line_of[rank]] : slowest_[plan_.program_of[rank]].axes[axis];
  }
  /// Whether a send or collective of the rank is between nodes.
  bool between(int rank, const SimAction& a) const;
  /// A program, and its first action that uses different kinds of link on its ranks; (-1, -1): there is none.
  std::pair<int, ActionId> differing() const;
  /// From now on all ranks of a program use the slowest link of the program's ranks.
  void use_slowest();

 private:
  struct Ways {  // links of a program
    std::vector<char> axes;
    std::map<std::pair<std::size_t, int>, char> messages;  // by axis and offset
  };
  const SimPrograms& plan_;
  std::vector<int> node_;  // by rank
  std::vector<RankLines> lines_;
  std::vector<std::vector<char>> between_;  // by axis and line
  std::vector<std::vector<char>> mixed_;    // by axis and line: ranks are on several nodes, and some share a node
  bool same_speed_ = true;
  std::vector<Ways> slowest_;  // by program; empty: each rank's own links
};

}  // namespace trireme
