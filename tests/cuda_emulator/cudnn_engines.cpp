#include "tests/cuda_emulator/cudnn_engines.h"

#include <algorithm>

#include "tests/cuda_emulator/settings.h"

namespace emulator::dnn {
namespace {

std::vector<Tensor> stored(const Node& operation) {
  Operands o = operands(operation);
  o.read.insert(o.read.end(), o.written.begin(), o.written.end());
  std::erase_if(o.read, [](const Tensor& t) { return t.passing; });
  return o.read;
}

bool backward(const Node& operation) {
  return operation.type != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
}

/// For engines that know one convolution and nothing else.
Convolution alone(const Node& graph) {
  const auto& operations = graph.nodes(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  demand(operations.size() == 1 && is_convolution(*operations.front()), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
         "the engine runs one convolution alone");
  Convolution c(*operations.front());
  demand(c.x.type == c.w.type && c.w.type == c.y.type, CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
         "the engine wants tensors of one type");
  demand(!c.x.passing && !c.w.passing && !c.y.passing, CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
         "the engine wants no virtual tensor");
  return c;
}

Index room(const Tensor& t) { return (t.count() * 8 + 255) / 256 * 256; }

void note_tensor_cores(Engine& e, cudnnDataType_t type) {
  e.notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  e.coarse = type == CUDNN_DATA_FLOAT;
  if (e.coarse) e.notes.push_back(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
}

Engine tiled_for(const Node& graph) {
  const Convolution c = alone(graph);
  demand(c.x.type != CUDNN_DATA_DOUBLE, CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "no tiles of double");
  demand(c.beta == 0 && c.groups() == 1, CUDNN_STATUS_NOT_SUPPORTED, "no tiles that add up, and none of groups");
  Engine e{Engine::tiled, {}, {}, {{CUDNN_KNOB_TYPE_TILE_SIZE, 2}, {CUDNN_KNOB_TYPE_SPLIT_K_SLC, 1}}};
  e.workspace = room(c.written());
  note_tensor_cores(e, c.x.type);
  return e;
}

Engine fusing_for(const Node& graph) {
  Engine e{Engine::fusing, {}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}};
  int convolutions = 0;
  for (const NodePtr& operation : graph.nodes(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    for (const Tensor& t : stored(*operation)) {
      demand(t.type != CUDNN_DATA_DOUBLE, CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "graphs of double are not compiled");
      demand(t.channels_last(), CUDNN_STATUS_NOT_SUPPORTED_LAYOUT,
             "graphs are compiled for channels that lie together");
      const bool whole = t.dims[1] * trireme::size_of(dtype(t.type)) % 4 == 0;
      demand(whole, CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "graphs are compiled for rows of channels of whole words");
    }
    if (!is_convolution(*operation)) continue;
    const Convolution c(*operation);
    demand(++convolutions == 1, CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "more than one convolution");
    demand(c.beta == 0 && c.alpha == 1, CUDNN_STATUS_NOT_SUPPORTED, "graphs are not compiled for alpha and beta");
    demand(c.groups() == 1, CUDNN_STATUS_NOT_SUPPORTED, "graphs are not compiled for groups");
    note_tensor_cores(e, c.x.type);
  }
  return e;
}

Engine summing_for(const Node& graph) {
  const auto& operations = graph.nodes(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  demand(operations.size() == 2 && operations[1]->type == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR,
         CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "the engine runs a convolution and its sums");
  Engine e = fusing_for(graph);
  const Convolution c(*operations[0]);
  demand(c.x.type == CUDNN_DATA_HALF, CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "the engine is for f16");
  e.number = Engine::summing;
  e.behaviour.clear();
  e.workspace = room(c.y);
  return e;
}

}  // namespace

Engine engine_for(const Node& graph, Index number) {
  const auto& operations = graph.nodes(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  demand(emulator::settings().alone || operations.size() > 1 || backward(*operations.front()),
         CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "TRIREME_EMULATOR_ALONE says that a step must follow");
  switch (number) {
    case Engine::direct: {
      Engine e{Engine::direct};
      const Convolution c = alone(graph);
      if (c.x.type != CUDNN_DATA_DOUBLE && c.x.type != CUDNN_DATA_FLOAT) note_tensor_cores(e, c.x.type);
      return e;
    }
    case Engine::restless: {
      const Convolution c = alone(graph);
      demand(backward(*graph.nodes(CUDNN_ATTR_OPERATIONGRAPH_OPS).front()), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
             "the engine is for gradients");
      return {Engine::restless, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}};
    }
    case Engine::tiled: return tiled_for(graph);
    case Engine::fusing: return fusing_for(graph);
    case Engine::summing: return summing_for(graph);
    default: throw Refusal(CUDNN_STATUS_BAD_PARAM, "there is no engine " + std::to_string(number));
  }
}

std::vector<Engine> recommended(const Node& graph, cudnnBackendHeurMode_t mode) {
  std::vector<Engine> found;
  std::vector<Index> all{Engine::direct};
  if (mode != CUDNN_HEUR_MODE_FALLBACK)
    all = {Engine::restless, Engine::tiled, Engine::summing, Engine::fusing, Engine::direct};
  std::string why;
  for (Index number : all) {
    try {
      found.push_back(engine_for(graph, number));
    } catch (const Refusal& r) { why = r.what(); }
  }
  demand(!found.empty(), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "no engine is known for the graph: " + why);
  return found;
}

}  // namespace emulator::dnn
