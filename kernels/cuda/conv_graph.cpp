#include "kernels/cuda/conv_graph.h"

#include "kernels/core/backend.h"

namespace trireme::gpu {
namespace {

constexpr Graph::Tensor x_number = 0, w_number = 1, y_number = 2;

/// Extents as cuDNN expects them: a 1-D image gets a height of `fill`.
std::vector<Index> axes(const Extents& e, int dims, Index fill) {
  std::vector<Index> all(e.begin(), e.begin() + dims);
  if (dims == 1) all.insert(all.begin(), fill);
  return all;
}

Layout of_input(const ConvJob& j, DType t) {
  return channels_last(j.shape.n, j.shape.c_in, j.shape.in, j.shape.dims, t, j.aligned);
}
Layout of_output(const ConvJob& j, DType t) {
  return channels_last(j.shape.n, j.shape.c_out, j.shape.out, j.shape.dims, t, j.aligned);
}
Layout of_filter(const ConvJob& j, DType t) {
  return channels_last(j.shape.c_out, j.shape.group_in(), j.shape.filter, j.shape.dims, t, j.aligned);
}

/// y = relu(conv(x, w) + bias + residual), and sums of y. Steps that the job does not have are left out.
void build_forward(Graph& g, const ConvJob& j) {
  const Graph::Tensor x = g.tensor(of_input(j, j.type)), w = g.tensor(of_filter(j, j.type));
  const Graph::Tensor y = g.tensor(of_output(j, j.type));
  const bool relu = j.shape.options.relu;
  int steps = j.with_bias + j.with_residual + relu;
  const auto wide = of_output(j, compute_type(j));
  // The last step writes y, those before it values of the type that they compute in.
  auto next = [&] { return steps-- == 0 ? y : g.passing(wide); };
  auto of_channels = [&](DType t, bool aligned) {
    return g.tensor(channels_last(1, j.shape.c_out, {1, 1, 1}, j.shape.dims, t, aligned));
  };
  const Graph::Tensor bias = j.with_bias ? of_channels(j.bias, j.aligned) : -1;
  const Graph::Tensor residual = j.with_residual ? g.tensor(of_output(j, j.type)) : -1;
  const Graph::Tensor sums = j.with_sums ? of_channels(DType::f32, true) : -1;
  const Graph::Tensor squares = j.with_sums ? of_channels(DType::f32, true) : -1;
  Graph::Tensor at = next();
  g.convolve(Graph::Pass::forward, x, w, at, window(j.shape));
  auto step = [&](cudnnPointwiseMode_t mode, Graph::Tensor b) {
    const Graph::Tensor to = next();
    g.pointwise(mode, to, at, b);
    at = to;
  };
  if (j.with_bias) step(CUDNN_POINTWISE_ADD, bias);
  if (j.with_residual) step(CUDNN_POINTWISE_ADD, residual);
  if (relu) step(CUDNN_POINTWISE_RELU_FWD, -1);
  if (j.with_sums) g.sums(y, sums, squares);
}

void build_wide(Graph& g, const ConvJob& j) {
  const Graph::Tensor x = g.tensor(of_input(j, j.type)), w = g.tensor(of_filter(j, DType::f32));
  const Graph::Tensor y = g.tensor(of_output(j, j.type));
  const Graph::Tensor product = g.passing(of_filter(j, DType::f32));
  g.convolve(Graph::Pass::backward_weight, x, product, y, window(j.shape));
  g.pointwise(CUDNN_POINTWISE_IDENTITY, w, product);
}

Index bytes_of(const ConvJob& j, Graph::Tensor t) {
  const ConvShape& s = j.shape;
  if (t == x_number) return s.n * s.in_cells() * s.c_in * size_of(j.type);
  if (t == y_number) return s.n * s.out_cells() * s.c_out * size_of(j.type);
  return s.c_out * s.filter_cells() * s.group_in() *
         size_of(j.form == ConvForm::backward_weight_wide ? DType::f32 : j.type);
}
Graph::Tensor written_by(const ConvJob& j) {
  if (j.form == ConvForm::forward) return y_number;
  return j.form == ConvForm::backward_input ? x_number : w_number;
}

PlanKey key_of(const ConvJob& j) {
  const ConvShape& s = j.shape;
  const ConvOptions& o = s.options;
  PlanKey key;
  auto to = key.numbers.begin();
  auto put = [&](auto... n) { ((*to++ = static_cast<Index>(n)), ...); };
  put(j.form, j.type, s.dims, s.n, s.c_in, s.c_out, o.groups);
  for (const Extents* e : {&s.in, &s.filter, &o.stride, &o.pad_begin, &o.pad_end, &o.dilation})
    put((*e)[0], (*e)[1], (*e)[2]);
  if (j.form == ConvForm::forward)
    put(j.with_bias ? 1 + static_cast<int>(j.bias) : 0, j.with_residual, o.relu);
  else
    put(j.accumulate, 0, 0);
  put(j.aligned, j.tf32, j.with_sums, !j.deterministic);
  return key;
}

}  // namespace

Layout channels_last(Index n, Index c, const Extents& extents, int dims, DType type, bool aligned) {
  Layout l{{n, c}, {0, 1}, type, aligned ? 16 : size_of(type)};
  const std::vector<Index> inner = axes(extents, dims, 1);
  l.dims.insert(l.dims.end(), inner.begin(), inner.end());
  l.strides.resize(l.dims.size());
  Index step = c;
  for (std::size_t i = l.dims.size(); i-- > 2;) {
    l.strides[i] = step;
    step *= l.dims[i];
  }
  l.strides[0] = step;
  return l;
}

Graph::Window window(const ConvShape& s) {
  const ConvOptions& o = s.options;
  return {axes(o.pad_begin, s.dims, 0), axes(o.pad_end, s.dims, 0), axes(o.stride, s.dims, 1),
          axes(o.dilation, s.dims, 1)};
}

void build(Graph& g, const ConvJob& j) {
  switch (j.form) {
    case ConvForm::forward: return build_forward(g, j);
    case ConvForm::backward_weight_wide: return build_wide(g, j);
    default: break;
  }
  const Graph::Tensor x = g.tensor(of_input(j, j.type)), w = g.tensor(of_filter(j, j.type));
  const Graph::Tensor y = g.tensor(of_output(j, j.type));
  g.convolve(j.form == ConvForm::backward_input ? Graph::Pass::backward_input : Graph::Pass::backward_weight, x, w, y,
             window(j.shape), j.accumulate ? 1 : 0);
}

EngineRules rules_for(const ConvJob& j) {
  EngineRules rules{.deterministic = j.deterministic, .whole = j.type == DType::f32 && !j.tf32, .sums = j.with_sums};
  // Engines without tensor cores convert x, w and y to channels first in their workspace.
  const Index turned = bytes_of(j, x_number) + bytes_of(j, w_number) + bytes_of(j, y_number);
  if (rules.whole) {
    rules.workspace += turned;
    rules.alike = 2;
  }  // engines without this conversion are measured, too
  return rules;
}

bool run_planned(const On& on, const ConvOperands& o, const View& result, std::span<const ConvWay> ways) {
  auto at_16 = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const bool aligned = at_16(o.x) && at_16(o.w) && at_16(o.y) && at_16(o.bias) && at_16(o.residual);
  auto completed = [&](ConvJob j) {
    j.aligned = aligned;
    j.tf32 = j.type == DType::f32 && f32_product() == MatmulPrecision::tf32;
    j.deterministic = deterministic();
    return j;
  };
  std::vector<PlanWay> plans;
  for (const ConvWay& way : ways) {
    const ConvJob j = completed(way.job);
    PlanWay& p = plans.emplace_back(PlanWay{
        compute_type(j), rules_for(j), [j](Graph& g) { build(g, j); }, {o.x, o.w, o.y}, written_by(j), way.then});
    std::size_t count = 3;
    if (j.with_bias) p.tensors[count++] = o.bias;
    if (j.with_residual) p.tensors[count++] = o.residual;
    if (j.with_sums) {
      p.tensors[count++] = o.sums;
      p.tensors[count++] = o.squares;
      auto* const first = static_cast<float*>(o.sums);
      p.cleared = {first, static_cast<float*>(o.squares) + j.shape.c_out};
    }
    if (way.then && way.apart) p.product_bytes = static_cast<std::size_t>(bytes_of(j, p.written));
  }
  return run_planned(on, key_of(completed(ways.front().job)), {result.data, static_cast<std::size_t>(result.bytes())},
                     plans);
}

}  // namespace trireme::gpu
