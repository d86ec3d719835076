// The ONNX forms of convolutions, pooling, resampling, and norms of channels.
#include "framework/io/onnx/onnx_help.h"
#include "kernels/plans/resample_taps.h"

namespace trireme::onnx {
namespace {

Value conv_form(Graph& g, const TracedOp& t) {
  const auto& o = options<ConvOptions>(t);
  const Value x = g.first(g.value(t, 0)), w = g.first(g.value(t, 1));
  const Shape& filter = t.inputs[1].shape();
  const Ints kernel(filter.begin() + 1, filter.end() - 1);
  std::vector<std::string> inputs{x.name, w.name};
  if (t.inputs[2]) inputs.push_back(g.value(t, 2).name);
  return like(x, g.node("Conv", inputs,
                        {ints("kernel_shape", kernel), ints("strides", spatial(o.stride, x.rank)),
                         pads(o.pad_begin, o.pad_end, x.rank), ints("dilations", spatial(o.dilation, x.rank)),
                         onnx_attribute("group", o.groups)}));
}
/// A window node with an extra attribute.
Value pool_of(Graph& g, const char* type, Value x, const PoolOptions& o, Protobuf attribute) {
  x = g.first(x);
  return like(x, g.node(type, {x.name},
                        {ints("kernel_shape", spatial(o.window, x.rank)), ints("strides", spatial(o.stride, x.rank)),
                         pads(o.pad_begin, o.pad_end, x.rank), std::move(attribute)}));
}
Value max_pool_of(Graph& g, const Value& x, const PoolOptions& o) {
  return pool_of(g, "MaxPool", x, o, ints("dilations", spatial(o.dilation, x.rank)));
}
Value max_pool_form(Graph& g, const TracedOp& t) { return max_pool_of(g, g.value(t, 0), options<PoolOptions>(t)); }
Value avg_pool_form(Graph& g, const TracedOp& t) {
  const auto& o = options<PoolOptions>(t);
  return pool_of(g, "AveragePool", g.value(t, 0), o,
                 onnx_attribute("count_include_pad", std::int64_t{o.count_padding}));
}
/// The bias is moved to the preceding convolution, if only this op reads its result.
Value bias_relu_pool_form(Graph& g, const TracedOp& t) {
  Value x = g.value(t, 0);
  if (t.inputs[1]) {
    const Value bias = g.value(t, 1);
    OnnxNode* conv = g.maker(x.name);
    if (conv != nullptr && conv->type == "Conv" && conv->inputs.size() == 2 && g.uses(t.inputs[0]) == 1)
      conv->inputs.push_back(bias.name);
    else
      x = binary_of(g, "Add", x, bias);
  }
  return max_pool_of(g, like(x, g.node("Relu", {x.name})), options<PoolOptions>(t));
}

Value batch_norm_form(Graph& g, const TracedOp& t) {
  const auto& o = options<BatchNormOptions>(t);
  const Value x = g.first(g.value(t, 0));
  std::vector<std::string> inputs{x.name};
  for (std::size_t i : {1, 2, 4, 5}) inputs.push_back(g.value(t, i).name);
  Value y = like(x, g.node("BatchNormalization", inputs, {onnx_attribute("epsilon", static_cast<float>(o.eps))}));
  if (t.inputs[3]) y = binary_of(g, "Add", y, g.value(t, 3));
  return o.relu ? like(y, g.node("Relu", {y.name})) : y;
}
/// Each group as one channel of an InstanceNormalization.
Value group_norm_form(Graph& g, const TracedOp& t) {
  const auto& [groups, eps] = options<std::pair<Index, double>>(t);
  const Value x = g.first(g.value(t, 0));
  const Shape& shape = t.output.shape();
  Ints back{-1, shape[-1]}, per_channel{1, shape[-1]};
  for (int i = 1; i < shape.rank() - 1; ++i) {
    back.push_back(shape[i]);
    per_channel.push_back(1);
  }
  const std::string rows = g.node("Reshape", {x.name, g.constant(Ints{0, groups, -1})});
  const std::string norm = g.node("InstanceNormalization",
                                  {rows, g.constant(Tensor::full({groups}, 1)), g.constant(Tensor::zeros({groups}))},
                                  {onnx_attribute("epsilon", static_cast<float>(eps))});
  std::string y = g.node("Reshape", {norm, g.constant(back)});
  for (const std::size_t i : {1, 2})
    if (t.inputs[i])
      y = g.node(i == 1 ? "Mul" : "Add", {y, g.node("Reshape", {g.value(t, i).name, g.constant(per_channel)})});
  return like(x, y);
}
/// The batch extent is taken from x, so that the graph works for any batch size.
Value resize(Graph& g, const Value& x, const Shape& to, std::vector<Protobuf> attributes) {
  Ints size(to.begin() + 1, to.end() - 1);
  const std::string head =
      g.node("Slice", {g.node("Shape", {x.name}), g.constant(Ints{0}), g.constant(Ints{2}), g.constant(Ints{0})});
  const std::string sizes = g.node("Concat", {head, g.constant(size)}, {onnx_attribute("axis", std::int64_t{0})});
  return like(x, g.node("Resize", {x.name, "", "", sizes}, std::move(attributes)));
}
/// x times a matrix of weights along one axis after another, with that axis last.
Value resample_by_matrices(Graph& g, Value x, const ResampleAxes& axes) {
  for (int d = 0; d < x.rank - 2; ++d) {
    const ResampleAxis& a = axes[static_cast<std::size_t>(d)];
    const Tensor matrix = Tensor::zeros({a.in, a.out});
    for (Index o = 0; o < a.out; ++o) {
      const ResampleTaps taps = resample_taps(a, o);
      for (Index i = taps.first; i < taps.first + taps.count; ++i)
        matrix.data<float>()[i * a.out + o] = static_cast<float>(taps.share_of(i));
    }
    Ints order(static_cast<std::size_t>(x.rank));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    std::swap(order[static_cast<std::size_t>(2 + d)], order.back());
    x.name = transpose(g, g.node("MatMul", {transpose(g, x.name, order), g.constant(matrix)}), order);
  }
  return x;
}
Value interpolate_form(Graph& g, const TracedOp& t) {
  const auto& axes = options<ResampleAxes>(t);
  const Value x = g.first(g.value(t, 0));
  const ResampleAxis& a = axes[0];
  bool by_extents = true;
  for (int d = 0; d < x.rank - 2; ++d) {
    const ResampleAxis& axis = axes[static_cast<std::size_t>(d)];
    by_extents = by_extents && axis.step == static_cast<double>(axis.in) / static_cast<double>(axis.out);
  }
  if (a.mode == ResampleMode::area || (!by_extents && !a.align_corners)) return resample_by_matrices(g, x, axes);
  if (a.mode == ResampleMode::nearest)
    return resize(g, x, t.output.shape(),
                  {onnx_attribute("mode", "nearest"), onnx_attribute("coordinate_transformation_mode", "asymmetric"),
                   onnx_attribute("nearest_mode", "floor")});
  const char* corners = a.align_corners ? "align_corners" : "half_pixel";
  return resize(g, x, t.output.shape(),
                {onnx_attribute("mode", "linear"), onnx_attribute("coordinate_transformation_mode", corners)});
}
Value conv_transpose_form(Graph& g, const TracedOp& t) {
  const auto& [o, output_pad] = options<std::pair<ConvOptions, Extents>>(t);
  const Value x = g.first(g.value(t, 0)), w = g.first(g.value(t, 1));
  const Shape& filter = t.inputs[1].shape();
  std::vector<std::string> inputs{x.name, w.name};
  if (t.inputs[2]) inputs.push_back(g.value(t, 2).name);
  return like(x, g.node("ConvTranspose", inputs,
                        {ints("kernel_shape", Ints(filter.begin() + 1, filter.end() - 1)),
                         ints("strides", spatial(o.stride, x.rank)), pads(o.pad_begin, o.pad_end, x.rank),
                         ints("output_padding", spatial(output_pad, x.rank)),
                         ints("dilations", spatial(o.dilation, x.rank)), onnx_attribute("group", o.groups)}));
}

}  // namespace

std::map<std::string, OnnxForm> spatial_forms() {
  return {
      {"adaptive_avg_pool", interpolate_form},
      {"avg_pool", avg_pool_form},
      {"batch_norm", batch_norm_form},
      {"bias_relu_pool_dropout", bias_relu_pool_form},
      {"conv", conv_form},
      {"conv_transpose", conv_transpose_form},
      {"group_norm", group_norm_form},
      {"interpolate", interpolate_form},
      {"max_pool", max_pool_form},
  };
}

}  // namespace trireme::onnx
