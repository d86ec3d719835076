// Liveness: which parts of a program run as one segment, and which micro-batches have activations in memory at each
// action, like the live ranges of variables in a compiler. The executor, check() and predict_memory() use it.
//
// A program has one pass per part: virtual time, traffic and reductions that overlap with backward need single parts.
// Passes that follow each other run as one segment, with one tape. Reductions and averages of statistics may be between
// the passes of a segment. Any other action between two passes cuts the model there: a message, or the all_gather and
// drop of zero(3). So does a pass that waits for communication. To cut at a part, a strategy inserts such an action.
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

/// The segments and live ranges of a program.
struct Liveness {
  /// The activations of one micro-batch in one segment.
  struct Range {
    int segment = 0;             ///< index of `segments`
    MicroBatch microbatch = {};  ///< micro-batch of the activations
    ActionId begin = 0;          ///< the forward of the segment's first part; 0 if an earlier step ran it
    ActionId end = 0;            ///< the action that releases the activations; the number of actions if none does
  };
  explicit Liveness(const Program&);  ///< finds segments and ranges

  /// In the order of parts. Each is as long as possible: no action cuts it, in any micro-batch and kind of pass.
  std::vector<Segment> segments;
  /// By part, up to the last one that the program runs: index of its segment; -1: another program runs the part.
  std::vector<int> segment_of_part;
  /// True: actions `free` release activations. False: the backward that completes a segment releases them.
  bool frees = false;
  std::vector<Range> ranges;  ///< in order of `begin`

  /// Index of the part's segment; -1: the program does not run the part.
  int segment_of(int part) const {
    return part >= 0 && part < std::ssize(segment_of_part) ? segment_of_part[static_cast<std::size_t>(part)] : -1;
  }
  /// The part's segment. The program must run the part.
  const Segment& segment_with(int part) const { return segments.at(static_cast<std::size_t>(segment_of(part))); }
  /// Whether the pass of a part (a forward or backward) is the first of its segment. At this pass the executor runs the
  /// whole segment. At the others it only advances virtual time.
  bool starts_segment(const Action& pass) const {
    const Segment& s = segment_with(pass.part);
    return pass.part == (pass.kind == ActionKind::forward ? s.first : s.end - 1);
  }
  /// After each action: the sum of weight(range) over the ranges that are in memory.
  template <class Weight>
  std::vector<Index> totals(Weight&& weight) const {
    std::vector<Index> all(actions_ + 1);
    for (const Range& r : ranges) {
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
