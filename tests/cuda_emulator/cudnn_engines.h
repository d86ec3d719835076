// The engines of the emulated cuDNN: each supports some graphs, as kinds of the real ones do.
#pragma once
#include "tests/cuda_emulator/cudnn_graph.h"

namespace emulator::dnn {

struct Engine {
  /// direct: any one convolution. tiled: on tensor cores, with a workspace and knobs. restless: gradients in an order
  /// that changes from run to run. fusing: compiled for a graph of one convolution and what is done with its result;
  /// sums it adds to what is there. summing: an f16 convolution and sums of its result, by parts.
  enum Number : Index { direct, tiled, restless, fusing, summing, none };
  Index number = none;
  std::vector<cudnnBackendNumericalNote_t> notes = {};
  std::vector<cudnnBackendBehaviorNote_t> behaviour = {};
  std::vector<std::pair<cudnnBackendKnobType_t, Index>> knobs = {};  ///< what the heuristic sets them to
  Index workspace = 0;
  bool coarse = false;  ///< factors are rounded to TF32
};

/// Throws Refusal where the engine has nothing for the graph.
Engine engine_for(const Node& graph, Index number);
/// Those that a heuristic names for the graph, best first.
std::vector<Engine> recommended(const Node& graph, cudnnBackendHeurMode_t mode);

/// The configuration of an engine with all that is in it; throws Refusal where a text is not one.
std::string to_json(const Node& config);
NodePtr from_json(const std::string& text);

}  // namespace emulator::dnn
