// The plans that a process uses: for each graph of operations the fastest engine, found by measuring when the graph is
// first run on a device, and kept in a folder so that later processes need not.
#pragma once
#include <functional>
#include <memory>

#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/plan_folder.h"

namespace trireme::gpu {

/// Where a result goes.
struct PlanResult {
  void* data;
  std::size_t bytes;
};

/// One way to a result: a graph, and perhaps a step of our own behind it.
struct PlanWay {
  DType compute;
  EngineRules rules;
  std::function<void(Graph&)> build;
  std::array<void*, 7> tensors;  ///< by the graph's numbers
  Graph::Tensor written;         ///< the one that it writes; its memory is put in by who runs it
  /// Makes `out` of what the graph wrote, and of what lay in out before where the result is added to it. Empty: the
  /// graph writes out itself.
  std::function<void(void* out, void* product)> then = {};
  std::span<float> cleared = {};  ///< set to 0 before each run: an engine may add to what is there
  std::size_t product_bytes = 0;  ///< of what the graph writes for the step; 0: it writes that to out, too
};

/// Writes the result that `key` stands for, by that of the ways and by that engine which were the fastest when the
/// process first needed it. Where nothing can be measured: by the first way that cuDNN has an engine for that it need
/// not compile. False when there is no plan; nothing has been written then. Measuring waits for the device, and writes
/// to scratch memory alone, but for what steps write beside the result.
bool run_planned(const On&, const PlanKey& key, const PlanResult&, std::span<const PlanWay> ways);

/// What may be measured of the engines that each way has, as numbers of ways and engines: best first, ways in turns,
/// for the fastest engine of one says little about another. At most one is compiled unless all are: an engine compiled
/// for the purpose seldom beats cuDNN's own kernels, and costs a second or more. More are named than are measured,
/// since some may turn out not to run.
std::vector<std::pair<std::size_t, Engine>> candidates(std::span<const std::vector<Engine>> ways);
inline constexpr std::size_t most_measured = 3;

}  // namespace trireme::gpu
