// Places: where the ranks of a simulation lie on nodes, and over which kind of link they communicate.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "parallel/analysis/sim_programs.h"

namespace trireme {

class Places {
 public:
  /// plan must outlive it. Throws Error for a cluster with fewer devices than ranks.
  explicit Places(const SimPrograms& plan);
  bool same_speed() const { return same_speed_; }
  const RankLines& lines(int axis) const { return lines_[axis]; }  ///< along SimPrograms::axes
  /// Whether ranks are on several nodes: these two, or those of the rank's line along an axis.
  bool apart(int a, int b) const { return node_[a] != node_[b]; }
  bool between(int rank, int axis) const {
    return slowest_.empty() ? between_[axis][lines_[axis].line_of[rank]] : slowest_[plan_.program_of[rank]].axes[axis];
  }
  /// The same of a send or collective of the rank.
  bool between(int rank, const SimAction& a) const;
  /// A program and an action of it that go over another kind of link on some of its ranks; (-1, -1): there are none.
  std::pair<int, ActionId> differing() const;
  /// From now on what is said of a rank is so for any rank of its program.
  void use_slowest();

 private:
  struct Ways {  // of a program
    std::vector<char> axes;
    std::map<std::pair<std::size_t, int>, char> messages;  // by their axis and offset
  };
  const SimPrograms& plan_;
  std::vector<int> node_;  // by rank
  std::vector<RankLines> lines_;
  std::vector<std::vector<char>> between_;  // by axis and line
  std::vector<std::vector<char>> mixed_;    // the same: ranks are on several nodes, some of them on one
  bool same_speed_ = true;
  std::vector<Ways> slowest_;  // by program; empty: each rank's own
};

}  // namespace trireme
