// GraphMemory: private memory pools of captured graphs. A pool keeps its addresses while its graph may be launched.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/core/best_fit.h"

namespace trireme::gpu {

class GraphMemory {
 public:
  struct Segment {
    void* memory;
    std::size_t bytes;
  };

  int add();  ///< adds a graph and returns its number
  /// A block for the graph, aligned to 256: from its free memory, or from a new segment by more(bytes).
  void* take(int graph, std::size_t bytes, const std::function<void*(std::size_t)>& more);
  /// Releases a block; false if it belongs to no graph. Segments without blocks of a removed graph are appended to
  /// unused.
  bool give(void* block, std::size_t bytes, std::vector<Segment>& unused);
  /// Removes the graph. Its blocks that are still in use stay valid; segments without such blocks are appended to
  /// unused.
  void remove(int graph, std::vector<Segment>& unused);

 private:
  struct Place {
    std::size_t bytes;
    int graph, blocks;
  };
  std::map<std::uintptr_t, Place>::iterator place_of(std::uintptr_t at);

  std::mutex mutex_;
  std::atomic<std::size_t> count_ = 0;  // number of segments: if 0, nothing to look for
  std::map<std::uintptr_t, Place> segments_;
  std::map<int, BestFit> free_;  // of existing graphs
  int next_ = 0;
};

}  // namespace trireme::gpu
