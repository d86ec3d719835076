// GraphMemory: private memory pools of captured graphs. A pool's addresses stay reserved while its graph may be
// launched.
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

  int add();  ///< a graph
  /// A block for the graph: from what it has free, else from a segment that more(bytes) gets it. Aligned to 256.
  void* take(int graph, std::size_t bytes, const std::function<void*(std::size_t)>& more);
  /// False: the block is no graph's. Segments that hold no block any more, of a graph that is gone, go to unused.
  bool give(void* block, std::size_t bytes, std::vector<Segment>& unused);
  /// The graph is gone. Blocks of it that somebody still holds stay; segments without such go to unused.
  void remove(int graph, std::vector<Segment>& unused);

 private:
  struct Place {
    std::size_t bytes;
    int graph, blocks;
  };
  std::map<std::uintptr_t, Place>::iterator place_of(std::uintptr_t at);

  std::mutex mutex_;
  std::atomic<std::size_t> count_ = 0;  // of segments: who has none need not look
  std::map<std::uintptr_t, Place> segments_;
  std::map<int, BestFit> free_;  // of graphs that are there
  int next_ = 0;
};

}  // namespace trireme::gpu
