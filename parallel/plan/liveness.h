// Liveness: the micro-batches whose activations are in memory at each action of a program, like the live ranges of
// variables in a compiler. The executor, check(), predict_memory() and simulate() use it.
#pragma once
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// Adjacent parts [first, end) of a model that a program runs as one unit, forward and backward. Tensors between them
/// are visible to no action.
struct Segment {
  int first = 0,  ///< first part
      end = 0;    ///< after the last part
};
/// The program's parts, joined to the longest possible segments. In a segment, for every micro-batch, the forward
/// actions of the parts follow each other in the list, and so do the backward actions of each kind. Reductions may be
/// between them; messages and other actions may not.
std::vector<Segment> find_segments(const Program&);

/// The activations of one micro-batch in one segment.
struct LiveRange {
  int segment = 0;             ///< index of Liveness::segments
  MicroBatch microbatch = {};  ///< micro-batch of the activations
  ActionId begin = 0;          ///< the forward of the segment's first part; 0 if an earlier step ran it
  ActionId end = 0;            ///< the action that releases the activations; the number of actions if none does
};

/// The segments and live ranges of a program.
struct Liveness {
  explicit Liveness(const Program&);  ///< finds segments and ranges

  std::vector<Segment> segments;  ///< in the order of parts
  /// By part, up to the last one that the program runs: index of its segment; -1: another program runs the part.
  std::vector<int> segment_of_part;
  /// True: actions `free` release activations. False: the backward that completes a segment releases them.
  bool frees = false;
  std::vector<LiveRange> ranges;  ///< in order of `begin`

  /// Index of the part's segment; -1: the program does not run the part.
  int segment_of(int part) const {
    return part >= 0 && part < std::ssize(segment_of_part) ? segment_of_part[static_cast<std::size_t>(part)] : -1;
  }
  /// After each action: the sum of weight(range) over the ranges that are in memory.
  template <class Weight>
  std::vector<Index> totals(Weight&& weight) const {
    std::vector<Index> all(actions_ + 1);
    for (const LiveRange& r : ranges) {
      const Index w = weight(r);
      all[static_cast<std::size_t>(r.begin)] += w;
      all[static_cast<std::size_t>(r.end)] -= w;
    }
    for (std::size_t id = 1; id < all.size(); ++id) all[id] += all[id - 1];
    return all;
  }

 private:
  std::size_t actions_;
};

/// The largest number of live ranges at one time: micro-batches whose activations the program holds, counted once per
/// segment. Program::in_flight is its limit.
int peak_in_flight(const Program&);

}  // namespace trireme
