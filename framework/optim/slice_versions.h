// SliceVersions: the number of updates of each element of a flat buffer, for plans whose readers may have older values
// (stale synchronous parallel: Ho et al., NIPS 2013). Elements that are always updated together share one number.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "framework/tensor/flat_buffer.h"

namespace trireme {

class SliceVersions {
 public:
  /// Version 0 everywhere in [0, size).
  explicit SliceVersions(Index size) : size_(size), runs_{{0, 0}} {}

  /// Counts one update of a slice. add() and set() ignore an empty slice. No function accesses elements outside [0,
  /// size).
  void add(const Slice& s) {
    change(s, [](std::int64_t v) { return v + 1; });
  }
  /// Sets the number of updates of a slice that was replaced by values from elsewhere.
  void set(const Slice& s, std::int64_t version) {
    change(s, [version](std::int64_t) { return version; });
  }
  /// The minimum number of updates over the slice; for an empty slice, that of the element at its begin.
  std::int64_t least(const Slice& s) const {
    auto at = std::prev(runs_.upper_bound(std::max<Index>(s.begin, 0)));
    std::int64_t version = at->second;
    for (++at; at != runs_.end() && at->first < s.end; ++at) version = std::min(version, at->second);
    return version;
  }

 private:
  template <class F>
  void change(const Slice& s, F next) {
    const Index begin = std::max<Index>(s.begin, 0), end = std::min(s.end, size_);
    if (begin >= end) return;
    cut(begin);
    cut(end);
    auto at = runs_.find(begin);
    for (auto run = at; run != runs_.end() && run->first < end; ++run) run->second = next(run->second);
    if (begin > 0) --at;
    for (auto run = std::next(at); run != runs_.end() && run->first <= end;)  // equal neighbours are one run
      if (run->second == at->second)
        run = runs_.erase(run);
      else
        at = run++;
  }
  void cut(Index at) {  // a run begins there
    if (at < size_) runs_.emplace(at, std::prev(runs_.upper_bound(at))->second);
  }

  Index size_;
  std::map<Index, std::int64_t> runs_;  // by first element: the version from there on
};

}  // namespace trireme
