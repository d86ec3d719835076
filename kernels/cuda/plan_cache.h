// The plans of a process: for each graph of operations the fastest engine. It is found by measuring when the graph
// first runs on a device, and is kept in a folder for later processes.
#pragma once
#include <functional>
#include <memory>

#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/plan_folder.h"

namespace trireme::gpu {

/// Memory of a result.
struct PlanResult {
  void* data;
  std::size_t bytes;
};

/// One way to compute a result: a graph, and possibly a step of our own after it.
struct PlanWay {
  DType compute;
  EngineRules rules;
  std::function<void(Graph&)> build;
  std::array<void*, 7> tensors;  ///< by the graph's numbers
  Graph::Tensor written;         ///< the tensor that the graph writes; run_planned() sets its memory
  /// Computes `out` from the graph's output, and from the old contents of out if the result is added to it. Empty: the
  /// graph writes out itself.
  std::function<void(void* out, void* product)> then = {};
  std::span<float> cleared = {};  ///< set to 0 before each run, since an engine may add to it
  std::size_t product_bytes = 0;  ///< size of the graph's output for the step; 0: the graph writes to out
};

/// Writes the result for `key`, by the way and engine that were fastest when the process first needed it. If nothing
/// can be measured, it uses the first way that has an engine which cuDNN need not compile. False if there is no plan;
/// nothing has been written then. Measuring waits for the device. It writes only to scratch memory and to the extra
/// outputs of steps.
bool run_planned(const On&, const PlanKey& key, const PlanResult&, std::span<const PlanWay> ways);

/// The engines to measure, as pairs of way and engine: best first, alternating between ways, since the fastest engine
/// of one way is not the fastest of another. At most one is compiled unless all are: compiling costs a second or more,
/// and a compiled engine is seldom faster than cuDNN's own kernels. More are listed than are measured, since some may
/// fail to run.
std::vector<std::pair<std::size_t, Engine>> candidates(std::span<const std::vector<Engine>> ways);
inline constexpr std::size_t most_measured = 3;

}  // namespace trireme::gpu
