// What finalizing a descriptor of the emulated cuDNN checks, beyond what it must have, and works out.
#include <algorithm>
#include <bit>
#include <set>

#include "tests/cuda_emulator/cudnn_engines.h"

namespace emulator::dnn {
namespace {

bool all_at_least(const std::vector<Index>& values, Index least) {
  return std::all_of(values.begin(), values.end(), [&](Index v) { return v >= least; });
}

void finish_tensor(const Node& n) {
  const Tensor t(n);
  demand(t.dims.size() == t.strides.size(), CUDNN_STATUS_BAD_PARAM, "as many strides as dimensions are expected");
  demand(t.dims.size() >= 3, CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "tensors have three dimensions at least");
  demand(all_at_least(t.dims, 1) && all_at_least(t.strides, 1), CUDNN_STATUS_BAD_PARAM, "an extent or stride below 1");
  const bool power = t.alignment > 0 && std::has_single_bit(static_cast<std::uint64_t>(t.alignment));
  demand(power && t.alignment % trireme::size_of(dtype(t.type)) == 0, CUDNN_STATUS_BAD_PARAM,
         "the alignment is no power of two, or not a multiple of an element");
}

void finish_settings(const Node& n) {
  const auto dims = static_cast<std::size_t>(n.value<Index>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  auto list = [&](cudnnBackendAttributeName_t name, Index least) {
    const auto values = n.list<Index>(name);
    demand(values.size() == dims, CUDNN_STATUS_BAD_PARAM, "one number per spatial dimension is expected");
    demand(all_at_least(values, least), CUDNN_STATUS_BAD_PARAM, "a padding, stride or dilation is too small");
  };
  demand(dims == 2 || dims == 3, CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "two or three spatial dimensions are expected");
  list(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0);
  list(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0);
  list(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1);
  list(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1);
}

void finish_convolution(const Node& n) {
  const Convolution c(n);
  const std::size_t rank = c.x.dims.size();
  demand(rank == c.w.dims.size() && rank == c.y.dims.size(), CUDNN_STATUS_BAD_PARAM, "tensors of different ranks");
  bool fits = c.x.dims[0] == c.y.dims[0] && c.x.dims[1] % c.w.dims[1] == 0 && c.w.dims[0] == c.y.dims[1] &&
              c.w.dims[0] % c.groups() == 0;
  for (std::size_t i = 2; i < rank; ++i) {
    const std::size_t axis = 3 - rank + i;  // of a Triple
    const Index window = (c.w.dims[i] - 1) * c.dilation[axis] + 1;
    const Index room = c.x.dims[i] + c.begin[axis] + c.end[axis] - window;
    fits = fits && room >= 0 && room / c.stride[axis] + 1 == c.y.dims[i];
  }
  demand(fits, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the shapes of a convolution do not fit one another");
  const bool whole = c.x.type == CUDNN_DATA_DOUBLE;
  demand(c.compute == (whole ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
         "double is computed in double, the other types in float");
}

void finish_pointwise(const Node& n) {
  const Node& settings = n.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const auto mode = settings.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const bool gradient = mode == CUDNN_POINTWISE_RELU_BWD;
  const bool one = mode == CUDNN_POINTWISE_RELU_FWD || mode == CUDNN_POINTWISE_IDENTITY || mode == CUDNN_POINTWISE_NEG;
  const auto out = gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
  auto has = [&](cudnnBackendAttributeName_t name, bool expected) {
    demand(n.has(name) == expected, CUDNN_STATUS_BAD_PARAM, "an operand of the mode is missing, or one too many");
  };
  has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, !one && !gradient);
  has(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, mode == CUDNN_POINTWISE_BINARY_SELECT);
  has(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, !gradient);
  has(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, gradient);
  has(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, gradient);
  const Tensor y(n.node(out));
  for (const Tensor& t : operands(n).read) {
    bool fits = t.dims.size() == y.dims.size();
    for (std::size_t i = 0; fits && i < y.dims.size(); ++i) fits = t.dims[i] == y.dims[i] || t.dims[i] == 1;
    demand(fits, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "an operand's shape is not the result's, nor repeated to it");
  }
}

void finish_statistics(const Node& n) {
  const Operands o = operands(n);
  const Tensor& x = o.read.front();
  for (const Tensor& t : o.written) {
    bool fits = t.dims.size() == x.dims.size();
    for (std::size_t i = 0; fits && i < x.dims.size(); ++i) fits = t.dims[i] == (i == 1 ? x.dims[1] : 1);
    demand(fits, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "sums have one number per channel");
    demand(t.type == CUDNN_DATA_FLOAT && !t.passing, CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
           "sums are of type float, and stored");
  }
}

/// One tensor, one description; what passes between operations is written before it is read.
void finish_graph(const Node& n) {
  std::map<Index, Tensor> seen;
  std::set<Index> written, read;
  for (const NodePtr& operation : n.nodes(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const Operands o = operands(*operation);
    for (const auto* all : {&o.read, &o.written})
      for (const Tensor& t : *all) {
        const Tensor& first = seen.try_emplace(t.id, t).first->second;
        demand(first.dims == t.dims && first.strides == t.strides && first.type == t.type, CUDNN_STATUS_BAD_PARAM,
               "one identifier, two tensors");
      }
    for (const Tensor& t : o.read) {
      demand(!t.passing || written.contains(t.id), CUDNN_STATUS_BAD_PARAM,
             "a virtual tensor is read before it is written");
      read.insert(t.id);
    }
    for (const Tensor& t : o.written)
      demand(written.insert(t.id).second, CUDNN_STATUS_BAD_PARAM, "a tensor is written twice");
  }
  for (const auto& [id, t] : seen)
    demand(!t.passing || read.contains(id), CUDNN_STATUS_BAD_PARAM, "a virtual tensor is never read");
}

NodePtr knob(cudnnBackendKnobType_t type, Index value) {
  Node n{CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, true};
  put(n, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, std::vector{type});
  put(n, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, std::vector{value});
  return std::make_shared<Node>(std::move(n));
}

void finish_engine(Node& n) {
  const Engine e =
      engine_for(n.node(CUDNN_ATTR_ENGINE_OPERATION_GRAPH), n.value<Index>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  put(n, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, e.notes);
  put(n, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, e.behaviour);
}

void finish_heuristic(Node& n) {
  const NodePtr graph = n.nodes(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).front();
  std::vector<NodePtr> results;
  for (const Engine& e : recommended(*graph, n.value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE))) {
    Node engine{CUDNN_BACKEND_ENGINE_DESCRIPTOR, true}, config{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, true};
    put(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
    put(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::vector{e.number});
    finish_engine(engine);
    put(config, CUDNN_ATTR_ENGINECFG_ENGINE, {std::make_shared<Node>(std::move(engine))});
    std::vector<NodePtr> knobs;
    for (auto [type, value] : e.knobs) knobs.push_back(knob(type, value));
    put(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, std::move(knobs));
    results.push_back(std::make_shared<Node>(std::move(config)));
  }
  put(n, CUDNN_ATTR_ENGINEHEUR_RESULTS, std::move(results));
}

Engine engine_of(const Node& config) {
  const Node& engine = config.node(CUDNN_ATTR_ENGINECFG_ENGINE);
  return engine_for(engine.node(CUDNN_ATTR_ENGINE_OPERATION_GRAPH),
                    engine.value<Index>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
}

void finish_config(Node& n) {
  const Engine e = engine_of(n);
  if (!n.has(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) put(n, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, std::vector<NodePtr>{});
  for (const NodePtr& k : n.nodes(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
    const auto type = k->value<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
    const Index value = k->value<Index>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    const bool known = std::any_of(e.knobs.begin(), e.knobs.end(), [&](const auto& has) { return has.first == type; });
    demand(known && value >= 0 && value <= 4, CUDNN_STATUS_NOT_SUPPORTED,
           "the engine has no such knob, or no such value");
  }
}

/// The real one's compiler wants whole words of all operands, and says so only here.
void compile(const Node& graph) {
  for (const NodePtr& operation : graph.nodes(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const Operands o = operands(*operation);
    for (const auto* all : {&o.read, &o.written})
      for (const Tensor& t : *all)
        demand(t.alignment >= 4, CUDNN_STATUS_INTERNAL_ERROR, "runtime kernel compilation failure");
  }
}

void finish_plan(Node& n) {
  demand(n.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) || n.has(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP), CUDNN_STATUS_BAD_PARAM,
         "a plan wants a handle or a device");
  if (n.has(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)) {
    const auto text = n.list<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    put(n, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {from_json({text.begin(), text.end()})});
  }
  demand(n.has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_STATUS_BAD_PARAM, "a plan wants an engine");
  const Node& config = n.node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Engine e = engine_of(config);
  if (e.number == Engine::fusing)
    compile(config.node(CUDNN_ATTR_ENGINECFG_ENGINE).node(CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
  const std::string text = to_json(config);
  put(n, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::vector<char>(text.begin(), text.end()));
  put(n, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, std::vector{e.workspace});
}

void finish_pack(const Node& n) {
  const auto ids = n.list<Index>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = n.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  demand(ids.size() == pointers.size(), CUDNN_STATUS_BAD_PARAM, "as many pointers as identifiers are expected");
  demand(std::set(ids.begin(), ids.end()).size() == ids.size(), CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
         "an identifier comes twice");
}

}  // namespace

void finish(Node& n) {
  demand(!n.finished, CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized already");
  check_complete(n);
  if (is_convolution(n)) return finish_convolution(n);
  switch (n.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return finish_tensor(n);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return finish_settings(n);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return finish_pointwise(n);
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR: return finish_statistics(n);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return finish_graph(n);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: return finish_heuristic(n);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return finish_engine(n);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: return finish_config(n);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return finish_plan(n);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return finish_pack(n);
    default: return;
  }
}

}  // namespace emulator::dnn
