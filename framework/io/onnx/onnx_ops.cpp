// The ONNX forms of ops (onnx.ai, operators of opset 17). Ops on windows and channels are in onnx_spatial.cpp, ops that
// compare, select, sort and reduce in onnx_select.cpp, and ops of transformers in onnx_attention.cpp.
#include <algorithm>
#include <numbers>
#include <numeric>

#include "framework/io/onnx/onnx_help.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace onnx {
namespace {

/// The form of an elementwise op: f makes the nodes for the value named x and returns the name of their output.
OnnxForm elementwise(std::function<std::string(Graph&, const TracedOp&, const std::string& x)> f) {
  return [f](Graph& g, const TracedOp& t) {
    const Value x = g.value(t, 0);
    return like(x, f(g, t, x.name));
  };
}
OnnxForm unary(const char* type, std::vector<Protobuf> attributes = {}) {
  return elementwise([=](Graph& g, auto&, auto& x) { return g.node(type, {x}, attributes); });
}
/// alpha: the member of formula F that becomes the node's attribute.
template <class F>
OnnxForm unary(const char* type, double F::*alpha) {
  return elementwise([=](Graph& g, auto& t, auto& x) {
    return g.node(type, {x}, {onnx_attribute("alpha", static_cast<float>(options<F>(t).*alpha))});
  });
}
/// The nodes of a formula F with bounds low and high.
template <class F>
std::string clip_nodes(Graph& g, const TracedOp& t, const std::string& x) {
  return g.node("Clip", {x, g.constant(options<F>(t).low), g.constant(options<F>(t).high)});
}
std::string softplus_nodes(Graph& g, const TracedOp& t, const std::string& x) {
  const double beta = options<pointwise::Softplus>(t).beta;
  if (beta == 1) return g.node("Softplus", {x});
  const std::string y = g.node("Softplus", {g.node("Mul", {x, g.constant(beta)})});
  return g.node("Mul", {y, g.constant(1 / beta)});
}
std::string gelu_nodes(Graph& g, const TracedOp&, const std::string& x) {
  const std::string erf = g.node("Erf", {g.node("Mul", {x, g.constant(1 / std::numbers::sqrt2)})});
  const std::string half = g.node("Mul", {x, g.constant(0.5)});
  return g.node("Mul", {half, g.node("Add", {erf, g.constant(1)})});
}

std::string gelu_tanh_nodes(Graph& g, const TracedOp&, const std::string& x) {
  // x * x * x, not Pow: onnxruntime 1.32 joins that form to a FastGelu and then misses its input.
  const std::string cube = g.node("Mul", {g.node("Mul", {x, g.node("Mul", {x, x})}), g.constant(0.044715)});
  const std::string inner = g.node("Mul", {g.node("Add", {x, cube}), g.constant(std::sqrt(2 / std::numbers::pi))});
  const std::string half = g.node("Mul", {x, g.constant(0.5)});
  return g.node("Mul", {half, g.node("Add", {g.node("Tanh", {inner}), g.constant(1)})});
}

OnnxForm binary(const char* type) {
  return [type](Graph& g, const TracedOp& t) { return binary_of(g, type, g.value(t, 0), g.value(t, 1)); };
}
/// Of integers (a - a mod b) / b, without a remainder.
Value floor_divide_form(Graph& g, const TracedOp& t) {
  Value a = g.value(t, 0), b = g.value(t, 1);
  const Value y = align(g, {&a, &b});
  if (is_float(t.output.dtype())) return like(y, g.node("Floor", {g.node("Div", {a.name, b.name})}));
  return like(y, g.node("Div", {g.node("Sub", {a.name, g.node("Mod", {a.name, b.name})}), b.name}));
}

Value linear_form(Graph& g, const TracedOp& t) {
  const Value x = g.last(g.value(t, 0)), w = g.value(t, 1);
  const std::string bias = t.inputs[2] ? g.value(t, 2).name : "";
  if (x.rank == 2) {
    std::vector<std::string> inputs{x.name, w.name};
    if (!bias.empty()) inputs.push_back(bias);
    return like(x, g.node("Gemm", inputs, {onnx_attribute("transB", std::int64_t{1})}));
  }
  const std::string y = g.node("MatMul", {x.name, transpose(g, w.name, {1, 0})});
  return like(x, bias.empty() ? y : g.node("Add", {y, bias}));
}
Value matmul_form(Graph& g, const TracedOp& t) {
  const auto& o = options<MatMulOptions>(t);
  const auto matrix = [&](std::size_t input, bool transposed) {
    const Value v = g.last(g.value(t, input));
    // Makes a matrix of a vector: onnxruntime 1.32 ignores a transposition next to a product with a vector.
    if (v.rank == 1) return g.node("Unsqueeze", {v.name, g.constant(Ints{static_cast<std::int64_t>(input)})});
    Ints order(static_cast<std::size_t>(v.rank));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order.end()[-1], order.end()[-2]);
    return transposed ? transpose(g, v.name, order) : v.name;
  };
  std::string y = g.node("MatMul", {matrix(0, o.transpose_a), matrix(1, o.transpose_b)});
  Ints gone;
  if (t.inputs[0].rank() == 1) gone.push_back(-2);
  if (t.inputs[1].rank() == 1) gone.push_back(-1);
  if (!gone.empty()) y = g.node("Squeeze", {y, g.constant(gone)});
  return {y, t.output.rank(), false};
}

Value layer_norm_form(Graph& g, const TracedOp& t) {
  const Value x = g.last(g.value(t, 0));
  std::vector<std::string> inputs{x.name,
                                  t.inputs[1] ? g.value(t, 1).name : g.constant(Tensor::full({t.output.dim(-1)}, 1))};
  if (t.inputs[2]) inputs.push_back(g.value(t, 2).name);
  return like(x, g.node("LayerNormalization", inputs,
                        {onnx_attribute("axis", std::int64_t{-1}),
                         onnx_attribute("epsilon", static_cast<float>(options<double>(t)))}));
}
Value rms_norm_form(Graph& g, const TracedOp& t) {
  const Value x = g.last(g.value(t, 0));
  const std::string square = g.node("ReduceMean", {g.node("Mul", {x.name, x.name})}, {ints("axes", {-1})});
  const std::string root = g.node("Sqrt", {g.node("Add", {square, g.constant(options<double>(t))})});
  const std::string y = g.node("Div", {x.name, root});
  return like(x, t.inputs[1] ? g.node("Mul", {y, g.value(t, 1).name}) : y);
}
OnnxForm over_channels(const char* type) {
  return [type](Graph& g, const TracedOp& t) {
    const Value x = g.value(t, 0);
    return like(x, g.node(type, {x.name}, {onnx_attribute("axis", std::int64_t{x.axis(options<int>(t))})}));
  };
}

Value flatten_form(Graph& g, const TracedOp& t) {
  const Value x = g.first(g.value(t, 0));
  return {g.node("Flatten", {x.name}, {onnx_attribute("axis", std::int64_t{1})}), 2, false};
}
Value reshape_form(Graph& g, const TracedOp& t) {
  const Shape &from = t.inputs[0].shape(), &to = t.output.shape();
  Value x = g.value(t, 0);
  if (from == to) return x;
  // One cell or one channel: both orders of axes are the same numbers in a row, as flatten() gives them.
  if (from.rank() >= 2 && to.rank() == 2 && from[0] == to[0] &&
      (from.rank() == 2 || from[-1] == 1 || from[-1] == from.product(1, from.rank())))
    return {g.node("Flatten", {x.name}, {onnx_attribute("axis", std::int64_t{1})}), 2, false};
  x = g.last(x);
  Ints shape(to.begin(), to.end());
  const Shape& twin = g.twin().output.shape();
  int follow = 0;
  for (int i = 0; i < to.rank(); ++i)
    if (to[i] != twin[i]) {
      shape[static_cast<std::size_t>(i)] = -1;
      ++follow;
    }
  check(follow <= 1, exporting,
        "reshape of {} to {} has {} axes that depend on the number of samples, at most one is allowed", from, to,
        follow);
  return {g.node("Reshape", {x.name, g.constant(shape)}), to.rank(), false};
}
/// Repeats for each sample of the batch (a class token), as often as the graph's input has samples.
Value expand_form(Graph& g, const TracedOp& t) {
  const Shape &from = t.inputs[0].shape(), &to = t.output.shape(), &twin = g.twin().output.shape();
  const Value x = g.last(g.value(t, 0));
  std::vector<std::string> parts;
  Ints shape;
  for (int i = 0; i < to.rank(); ++i) {
    const int at = i - (to.rank() - from.rank());
    shape.push_back(at >= 0 && from[at] == to[i] ? 1 : to[i]);  // broadcast both ways
    if (shape.back() == 1 || to[i] == twin[i]) continue;
    check(to[i] == g.batch(), exporting,
          "expand of {} to {} would fix the graph's batch size at {}: keep the batch as an axis", from, to, g.batch());
    shape.pop_back();
    if (!shape.empty()) parts.push_back(g.constant(shape));
    parts.push_back(g.rows());
    shape.clear();
  }
  if (!shape.empty()) parts.push_back(g.constant(shape));
  const std::string all =
      parts.size() == 1 ? parts[0] : g.node("Concat", parts, {onnx_attribute("axis", std::int64_t{0})});
  return {g.node("Expand", {x.name, all}), to.rank(), false};
}
Value permute_form(Graph& g, const TracedOp& t) {
  const auto& order = options<Shape>(t);
  const Value x = g.last(g.value(t, 0));
  return like(x, transpose(g, x.name, {order.begin(), order.end()}));
}
Value concat_form(Graph& g, const TracedOp& t) {
  std::vector<std::string> parts;
  Value x;
  for (std::size_t i = 0; i < t.inputs.size(); ++i) {
    x = g.first(g.value(t, i));
    parts.push_back(x.name);
  }
  return like(x, g.node("Concat", parts, {onnx_attribute("axis", std::int64_t{x.axis(options<int>(t))})}));
}
/// Throws Error if the op takes part of an axis that depends on the number of samples.
void check_not_batch(Graph& g, const TracedOp& t) {
  const Shape &from = t.inputs[0].shape(), &to = t.output.shape(), &twin = g.twin().inputs[0].shape();
  for (int i = 0; i < from.rank(); ++i)
    check(from[i] == to[i] || from[i] == twin[i], exporting,
          "{} along axis {} of {}: with {} samples this axis is the batch, and the graph would have a fixed batch "
          "size; keep the batch the first axis, and whole",
          t.name, i, from, g.batch());
}
Value slice(Graph& g, const Value& x, const Ints& starts, const Ints& ends, const Ints& axes) {
  return like(x, g.node("Slice", {x.name, g.constant(starts), g.constant(ends), g.constant(axes)}));
}
Value split_form(Graph& g, const TracedOp& t) {
  const auto& at = options<Shape>(t);
  const Shape &from = t.inputs[0].shape(), &to = t.output.shape();
  const Value x = g.value(t, 0);
  Ints starts, ends, axes;
  for (int i = 0; i < x.rank; ++i)
    if (from[i] != to[i]) {
      starts.push_back(at[i]);
      ends.push_back(at[i] + to[i]);
      axes.push_back(x.axis(i));
    }
  if (axes.empty()) return x;
  check_not_batch(g, t);
  return slice(g, x, starts, ends, axes);
}
Value rows_form(Graph& g, const TracedOp& t) {
  const auto& range = options<Shape>(t);
  const Value x = g.value(t, 0);
  if (t.inputs[0].shape() == t.output.shape()) return x;
  check_not_batch(g, t);
  return slice(g, x, {range[0]}, {range[1]}, {x.axis(0)});
}
Value pad_form(Graph& g, const TracedOp& t) {
  const auto& [begin, value] = options<std::pair<Shape, double>>(t);
  const Value x = g.value(t, 0);
  Ints pads(2 * static_cast<std::size_t>(x.rank));
  for (int i = 0; i < x.rank; ++i) {
    pads[static_cast<std::size_t>(x.axis(i))] = begin[i];
    pads[static_cast<std::size_t>(x.rank + x.axis(i))] = t.output.dim(i) - t.inputs[0].dim(i) - begin[i];
  }
  return like(x, g.node("Pad", {x.name, g.constant(pads), g.constant(Tensor::scalar(value, t.output.dtype()))}));
}
/// Devices and floating types are ignored: the graph has no devices, and all floats are f32.
Value to_form(Graph& g, const TracedOp& t) {
  const Value x = g.value(t, 0);
  const int from = onnx_type(t.inputs[0].dtype()), to = onnx_type(t.output.dtype());
  return from == to ? x : like(x, g.node("Cast", {x.name}, {onnx_attribute("to", std::int64_t{to})}));
}

std::map<std::string, OnnxForm> forms() {
  std::map<std::string, OnnxForm> all{
      {"abs", unary("Abs")},
      {"add", binary("Add")},
      {"add_scalar", elementwise([](Graph& g, auto& t, auto& x) {
         return g.node("Add", {x, g.constant(options<pointwise::AddScalar>(t).number)});
       })},
      {"ceil", unary("Ceil")},
      {"clamp", elementwise(clip_nodes<pointwise::Clamp>)},
      {"concat", concat_form},
      {"constant",
       [](Graph& g, const TracedOp& t) -> Value {
         return {g.constant(options<Tensor>(t)), t.output.rank(), false};
       }},
      {"cos", unary("Cos")},
      {"div", binary("Div")},
      {"elu", unary("Elu", &pointwise::Elu::alpha)},
      {"erf", unary("Erf")},
      {"exp", unary("Exp")},
      {"expm1", elementwise([](Graph& g, auto&, auto& x) {
         return g.node("Sub", {g.node("Exp", {x}), g.constant(1)});
       })},
      {"expand", expand_form},
      {"flatten", flatten_form},
      {"floor", unary("Floor")},
      {"floor_divide", floor_divide_form},
      {"gelu", elementwise(gelu_nodes)},
      {"gelu_tanh", elementwise(gelu_tanh_nodes)},
      {"hardsigmoid", unary("HardSigmoid", {onnx_attribute("alpha", 1.f / 6), onnx_attribute("beta", 0.5f)})},
      {"hardswish", unary("HardSwish")},
      {"hardtanh", elementwise(clip_nodes<pointwise::Hardtanh>)},
      {"layer_norm", layer_norm_form},
      {"leaky_relu", unary("LeakyRelu", &pointwise::LeakyRelu::negative_slope)},
      {"linear", linear_form},
      {"log", unary("Log")},
      {"log1p", elementwise([](Graph& g, auto&, auto& x) {
         return g.node("Log", {g.node("Add", {x, g.constant(1)})});
       })},
      {"log_softmax", over_channels("LogSoftmax")},
      {"logical_and", binary("And")},
      {"logical_or", binary("Or")},
      {"matmul", matmul_form},
      {"maximum", binary("Max")},
      {"minimum", binary("Min")},
      {"mish", elementwise([](Graph& g, auto&, auto& x) {
         return g.node("Mul", {x, g.node("Tanh", {g.node("Softplus", {x})})});
       })},
      {"mul", binary("Mul")},
      {"neg", unary("Neg")},
      {"pad", pad_form},
      {"permute", permute_form},
      {"prelu", binary("PRelu")},
      {"pow", elementwise([](Graph& g, auto& t, auto& x) {
         return g.node("Pow", {x, g.constant(options<pointwise::Pow>(t).exponent)});
       })},
      {"reciprocal", unary("Reciprocal")},
      {"relu", unary("Relu")},
      {"reshape", reshape_form},
      {"rms_norm", rms_norm_form},
      {"round", unary("Round")},
      {"rows", rows_form},
      {"rsqrt", elementwise([](Graph& g, auto&, auto& x) { return g.node("Reciprocal", {g.node("Sqrt", {x})}); })},
      {"scale", elementwise([](Graph& g, auto& t, auto& x) {
         return g.node("Mul", {x, g.constant(options<double>(t))});
       })},
      {"sigmoid", unary("Sigmoid")},
      {"sign", unary("Sign")},
      {"silu", elementwise([](Graph& g, auto&, auto& x) {
         return g.node("Mul", {x, g.node("Sigmoid", {x})});
       })},
      {"sin", unary("Sin")},
      {"softmax", over_channels("Softmax")},
      {"softplus", elementwise(softplus_nodes)},
      {"softsign", unary("Softsign")},
      {"split", split_form},
      {"sqrt", unary("Sqrt")},
      {"square", elementwise([](Graph& g, auto&, auto& x) {
         return g.node("Mul", {x, x});
       })},
      {"sub", binary("Sub")},
      {"tanh", unary("Tanh")},
      {"to", to_form},
      {"with", [](Graph& g, const TracedOp& t) { return g.value(t, 0); }},
  };
  all.merge(spatial_forms());
  all.merge(select_forms());
  all.merge(attention_forms());
  return all;
}

}  // namespace
}  // namespace onnx

const OnnxForm& onnx_form(const std::string& op) {
  static const std::map<std::string, OnnxForm> forms = onnx::forms();
  static const OnnxForm none;
  const auto at = forms.find(op);
  return at == forms.end() ? none : at->second;
}

}  // namespace trireme
