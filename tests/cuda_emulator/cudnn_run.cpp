// The interpreter of operation graphs.
#include "tests/cuda_emulator/cudnn_run.h"

#include <emulator/device_access.h>

#include <algorithm>
#include <functional>

#include "tests/cuda_emulator/cudnn_convolve.h"
#include "tests/cuda_emulator/cudnn_engines.h"

namespace emulator::dnn {
namespace {

template <class A>
using Numbers = std::vector<A>;

template <class A>
std::function<A(A, A, A)> function_of(const Node& settings, double alpha1, double alpha2) {
  const auto a = static_cast<A>(alpha1), b = static_cast<A>(alpha2);
  const auto low = static_cast<A>(settings.real(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0));
  const auto high = static_cast<A>(settings.real(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 3.4e38));
  const auto slope = static_cast<A>(settings.real(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0));
  switch (settings.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE)) {
    case CUDNN_POINTWISE_ADD: return [=](A x, A y, A) { return a * x + b * y; };
    case CUDNN_POINTWISE_SUB: return [=](A x, A y, A) { return a * x - b * y; };
    case CUDNN_POINTWISE_MUL: return [=](A x, A y, A) { return a * x * (b * y); };
    case CUDNN_POINTWISE_DIV: return [=](A x, A y, A) { return a * x / (b * y); };
    case CUDNN_POINTWISE_MAX: return [=](A x, A y, A) { return std::max(a * x, b * y); };
    case CUDNN_POINTWISE_MIN: return [=](A x, A y, A) { return std::min(a * x, b * y); };
    case CUDNN_POINTWISE_NEG: return [=](A x, A, A) { return -a * x; };
    case CUDNN_POINTWISE_IDENTITY: return [=](A x, A, A) { return a * x; };
    case CUDNN_POINTWISE_CMP_EQ: return [](A x, A y, A) { return A(x == y); };
    case CUDNN_POINTWISE_CMP_GT: return [](A x, A y, A) { return A(x > y); };
    case CUDNN_POINTWISE_CMP_GE: return [](A x, A y, A) { return A(x >= y); };
    case CUDNN_POINTWISE_CMP_LT: return [](A x, A y, A) { return A(x < y); };
    case CUDNN_POINTWISE_CMP_LE: return [](A x, A y, A) { return A(x <= y); };
    case CUDNN_POINTWISE_BINARY_SELECT: return [](A x, A y, A t) { return t != A(0) ? x : y; };
    case CUDNN_POINTWISE_RELU_FWD:
      return [=](A x, A, A) { return x < low ? low + slope * (x - low) : std::min(x, high); };
    case CUDNN_POINTWISE_RELU_BWD: return [=](A x, A dy, A) { return x > low ? dy : slope * dy; };
  }
  throw Refusal(CUDNN_STATUS_NOT_SUPPORTED, "no such pointwise operation here");
}

template <class A>
void run_pointwise(const Node& n, Memory<A>& memory) {
  const Node& settings = n.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const bool gradient = n.has(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC);
  const Tensor y(n.node(gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  auto operand = [&](cudnnBackendAttributeName_t name) {
    if (!n.has(name)) return Numbers<A>(static_cast<std::size_t>(y.count()));
    const Tensor t(n.node(name));
    return repeated(memory.read(t), t, y);
  };
  const Numbers<A> x = operand(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), t = operand(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
  const Numbers<A> b = operand(gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  const auto f = function_of<A>(settings, n.real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1),
                                n.real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1));
  Numbers<A> result(x.size());
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = f(x[i], b[i], t[i]);
  memory.write(y, std::move(result));
}

/// Sums of f(i) over all places, for each channel of t.
template <class A, class F>
Numbers<A> channel_sums(const Tensor& t, const F& f) {
  const auto channels = static_cast<std::size_t>(t.dims[1]);
  std::vector<double> sums(channels);
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.count()); ++i) sums[i % channels] += static_cast<double>(f(i));
  return Numbers<A>(sums.begin(), sums.end());
}

/// adds: to what the sums' memory holds.
template <class A>
void statistics(const Node& n, Memory<A>& memory, bool adds) {
  const Tensor t(n.node(CUDNN_ATTR_OPERATION_GENSTATS_XDESC));
  const Numbers<A> x = memory.read(t);
  const auto put = [&](cudnnBackendAttributeName_t name, Numbers<A> sums) {
    const Tensor to(n.node(name));
    const Numbers<A> before = adds ? memory.read(to) : Numbers<A>(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += before[i];
    memory.write(to, std::move(sums));
  };
  put(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, channel_sums<A>(t, [&](std::size_t i) { return x[i]; }));
  put(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, channel_sums<A>(t, [&](std::size_t i) { return x[i] * x[i]; }));
}

template <class A>
void run_reduction(const Node& n, Memory<A>& memory) {
  const Node& settings = n.node(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
  demand(settings.value<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD,
         CUDNN_STATUS_NOT_SUPPORTED, "only sums are reduced here");
  const Tensor from(n.node(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)), to(n.node(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
  const Numbers<A> x = memory.read(from);
  std::vector<Index> places(static_cast<std::size_t>(to.count()));  // of to, spread over from
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<Index>(i);
  const std::vector<Index> target = repeated(places, to, from);
  std::vector<double> sums(places.size());
  for (std::size_t i = 0; i < x.size(); ++i) sums[static_cast<std::size_t>(target[i])] += static_cast<double>(x[i]);
  memory.write(to, Numbers<A>(sums.begin(), sums.end()));
}

/// dx = of_dy dy + of_x x + rest, with xhat = (x - mean) / deviation and dscale = sum dy xhat.
template <class A>
void batch_norm_backward(const Node& n, Memory<A>& memory) {
  auto read = [&](cudnnBackendAttributeName_t name) { return memory.read(Tensor(n.node(name))); };
  const Tensor t(n.node(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC));
  const auto channels = static_cast<std::size_t>(t.dims[1]);
  const Numbers<A> x = read(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC);
  const Numbers<A> dy = read(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC);
  const Numbers<A> mean = read(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC);
  const Numbers<A> inverse = read(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC);
  const Numbers<A> scale = read(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC);
  const Numbers<A> dbias = channel_sums<A>(t, [&](std::size_t i) { return dy[i]; });
  const Numbers<A> dscale =
      channel_sums<A>(t, [&](std::size_t i) { return dy[i] * (x[i] - mean[i % channels]) * inverse[i % channels]; });
  const A share = static_cast<A>(channels) / static_cast<A>(t.count());  // 1 / places
  Numbers<A> of_dy(channels), of_x(channels), rest(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    of_dy[c] = scale[c] * inverse[c];
    of_x[c] = -of_dy[c] * inverse[c] * dscale[c] * share;
    rest[c] = -of_dy[c] * dbias[c] * share - of_x[c] * mean[c];
  }
  auto write = [&](cudnnBackendAttributeName_t name, const Numbers<A>& v) { memory.write(Tensor(n.node(name)), v); };
  write(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, dscale);
  write(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, dbias);
  write(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, of_dy);
  write(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, of_x);
  write(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, rest);
}

template <class A>
void interpret(const std::vector<NodePtr>& operations, const std::map<Index, void*>& pointers, const Engine& engine) {
  Memory<A> memory(pointers);
  for (const NodePtr& n : operations) {
    if (is_convolution(*n))
      Convolver<A>(Convolution(*n)).run(memory, engine.coarse);
    else if (n->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
      run_pointwise(*n, memory);
    else if (n->type == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)
      statistics(*n, memory, engine.number == Engine::fusing);
    else if (n->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
      run_reduction(*n, memory);
    else
      batch_norm_backward(*n, memory);
  }
}

/// The tensors that lie in memory.
std::map<Index, Tensor> stored(const std::vector<NodePtr>& operations) {
  std::map<Index, Tensor> all;
  for (const NodePtr& n : operations) {
    const Operands o = operands(*n);
    for (const auto* some : {&o.read, &o.written})
      for (const Tensor& t : *some)
        if (!t.passing) all.try_emplace(t.id, t);
  }
  return all;
}

std::map<Index, void*> pointers_of(const Node& pack, const std::map<Index, Tensor>& tensors) {
  const auto ids = pack.list<Index>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto given = pack.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<Index, void*> pointers;
  for (std::size_t i = 0; i < ids.size(); ++i) pointers[ids[i]] = given[i];
  for (const auto& [id, t] : tensors) {
    const auto found = pointers.find(id);
    demand(found != pointers.end() && found->second != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
           "tensor " + std::to_string(id) + " has no memory");
    demand(reinterpret_cast<std::uintptr_t>(found->second) % static_cast<std::uintptr_t>(t.alignment) == 0,
           CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "tensor " + std::to_string(id) + " is not aligned as described");
  }
  for (const auto& [id, p] : pointers)
    demand(tensors.contains(id), CUDNN_STATUS_BAD_PARAM,
           "the graph has no tensor " + std::to_string(id) + " in memory");
  return pointers;
}

}  // namespace

void execute(const Node& plan, const Node& pack, cudaStream_t stream) {
  const Node& engine = plan.node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).node(CUDNN_ATTR_ENGINECFG_ENGINE);
  const Node& graph = engine.node(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  const Engine chosen = engine_for(graph, engine.value<Index>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  const std::vector<NodePtr> operations = graph.nodes(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const std::map<Index, Tensor> tensors = stored(operations);
  const std::map<Index, void*> pointers = pointers_of(pack, tensors);
  void* workspace =
      pack.has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) ? pack.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) : nullptr;
  // Plans are made for any alignment; what an engine wants of addresses it says here.
  for (const auto& [id, p] : pointers) {
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    demand(chosen.number != Engine::tiled || at % 16 == 0, CUDNN_STATUS_NOT_SUPPORTED,
           "tiles are read 16 bytes at a time");
    demand(chosen.number != Engine::direct || at % 4 == 0, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
           "the engine reads whole words");
  }
  const auto room = static_cast<std::size_t>(chosen.workspace);
  demand(room == 0 || workspace != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the plan wants a workspace");
  const bool whole = tensors.begin()->second.type == CUDNN_DATA_DOUBLE;
  emulator::enqueue(stream, [=, device = emulator::device_of(stream)] {
    for (const auto& [id, t] : tensors)
      if (!emulator::on_device(pointers.at(id), t.span(), device))
        throw std::runtime_error("cuDNN was given memory that is not the device's, or too short, for tensor " +
                                 std::to_string(id));
    if (room > 0) std::memset(workspace, 0xab, room);  // whatever: it is the library's
    if (whole)
      interpret<double>(operations, pointers, chosen);
    else
      interpret<float>(operations, pointers, chosen);
  });
}

}  // namespace emulator::dnn
