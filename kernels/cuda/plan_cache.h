// The plans that a process uses: for each graph of operations the fastest engine, found by measuring when the graph is
// first run on a device, and remembered in a file so that later processes need not.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <unordered_map>

#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/device.h"

namespace trireme::gpu {

/// All that a plan depends on, as numbers; what they mean is the caller's matter. Unused ones are 0.
struct PlanKey {
  std::array<Index, 32> numbers{};
  bool operator==(const PlanKey&) const = default;
};
struct PlanKeyHash {
  std::size_t operator()(const PlanKey& k) const {
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(k.numbers.data()), sizeof k.numbers});
  }
};

/// What a run of a graph needs besides its plan.
struct PlanMemory {
  std::span<void* const> tensors;  ///< by the graph's numbers
  Graph::Tensor written;           ///< the one that it writes
  std::size_t written_bytes;
};

/// The engines that were chosen, as a file holds them between processes: lines of numbers, ':' and an engine. Lines
/// that say something else are passed over.
class PlanFile {
 public:
  /// path empty: remembers nothing.
  explicit PlanFile(std::string path);
  /// TRIREME_PLAN_CACHE, a path or "off"; else a file in the user's cache for this cuDNN and this device.
  static std::string usual_path(std::string_view device_name);
  /// Null when there is none.
  const Engine* find(const PlanKey&) const;
  /// Adds it to the file, beside what other processes may have added meanwhile. Never throws: a disk that is full or
  /// read-only costs the next process some measuring.
  void add(const PlanKey&, const Engine&) noexcept;

 private:
  void read();
  void write() const;
  std::string path_;
  std::unordered_map<PlanKey, Engine, PlanKeyHash> known_;
};

/// Runs the graph that `key` stands for and that build(graph) describes, by the plan chosen for it when the process
/// first needed it. False when there is no plan, or when its engine turned out not to run it: nothing has been written
/// then. Measuring waits for the device, and writes to scratch memory alone.
bool run_planned(const On&, const PlanKey& key, DType compute, const EngineRules&, const PlanMemory&,
                 const std::function<void(Graph&)>& build);

}  // namespace trireme::gpu
