// The ONNX form of each op (onnx.ai, operators of opset 17); those over windows and channels are in onnx_spatial.cpp.
#include <algorithm>
#include <numbers>

#include "framework/io/onnx/onnx_help.h"
#include "kernels/contracts/select.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace onnx {
namespace {

/// Of an op on single elements: f makes the nodes for the value called x and returns the name of their output.
OnnxForm elementwise(std::function<std::string(Graph&, const TracedOp&, const std::string& x)> f) {
  return [f](Graph& g, const TracedOp& t) {
    const Value x = g.value(t, 0);
    return like(x, f(g, t, x.name));
  };
}
OnnxForm unary(const char* type, std::vector<Protobuf> attributes = {}) {
  return elementwise([=](Graph& g, auto&, auto& x) { return g.node(type, {x}, attributes); });
}
/// alpha: the member of the formula F that the node's attribute tells.
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
  const Value a = g.last(g.value(t, 0)), b = g.last(g.value(t, 1));
  const Ints swap = a.rank == 2 ? Ints{1, 0} : Ints{0, 2, 1};
  return like(a, g.node("MatMul", {o.transpose_a ? transpose(g, a.name, swap) : a.name,
                                   o.transpose_b ? transpose(g, b.name, swap) : b.name}));
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
Value take_form(Graph& g, const TracedOp& t) {
  const Value x = g.last(g.value(t, 0)), ids = g.last(g.value(t, 1));
  const int axis = options<int>(t);
  const std::string y = g.node("Gather", {x.name, ids.name}, {onnx_attribute("axis", std::int64_t{axis})});
  return {y, t.output.rank(), false};
}
Value expand_form(Graph& g, const TracedOp& t) {
  const Shape &from = t.inputs[0].shape(), &to = t.output.shape();
  const Value x = g.last(g.value(t, 0));
  check(from.rank() == to.rank() && from[0] == to[0], exporting,
        "expand of {} to {} ties the graph to batches of {}: keep the batch the first axis, and whole", from, to,
        g.batch());
  Ints shape(to.begin(), to.end());
  shape[0] = 1;  // broadcast both ways
  return {g.node("Expand", {x.name, g.constant(shape)}), to.rank(), false};
}
Value compare_form(Graph& g, const TracedOp& t) {
  const Comparison how = options<Comparison>(t);
  const char* types[] = {"Equal", "Equal", "Less", "LessOrEqual"};
  const Value y = binary_of(g, types[static_cast<int>(how)], g.value(t, 0), g.value(t, 1));
  return how == Comparison::not_equal ? like(y, g.node("Not", {y.name})) : y;
}
Value where_form(Graph& g, const TracedOp& t) {
  Value c = g.value(t, 0), a = g.value(t, 1), b = g.value(t, 2);
  for (Value* v : {&c, &a, &b})
    if (v->rank > 0) *v = g.last(*v);
  const Value& largest = t.output.rank() == a.rank ? a : t.output.rank() == b.rank ? b : c;
  return like(largest, g.node("Where", {c.name, a.name, b.name}));
}
Value cumsum_form(Graph& g, const TracedOp& t) {
  const Value x = g.value(t, 0);
  return like(x, g.node("CumSum", {x.name, g.constant(Ints{x.axis(options<int>(t))})}));
}
Value gather_form(Graph& g, const TracedOp& t) {
  const Value x = g.last(g.value(t, 0)), ids = g.last(g.value(t, 1));
  return like(x, g.node("GatherElements", {x.name, ids.name}, {onnx_attribute("axis", std::int64_t{options<int>(t)})}));
}
OnnxForm over_channels(const char* type) {
  return [type](Graph& g, const TracedOp& t) {
    const Value x = g.value(t, 0);
    return like(x, g.node(type, {x.name}, {onnx_attribute("axis", std::int64_t{x.axis(x.rank - 1)})}));
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
  check(from.rank() > 0 && to.rank() > 0, exporting, "reshape of {} to {} is not exported", from, to);
  const Index cell = from.product(1, from.rank()), wanted = to.product(1, to.rank());
  const bool same_rows = from[0] == g.batch() && to[0] == g.batch();
  // One cell or one channel: both orders of axes are the same numbers in a row, as flatten() gives them.
  if (same_rows && to.rank() == 2 && (from.rank() < 3 || from[-1] == 1 || from[-1] == cell))
    return {g.node("Flatten", {x.name}, {onnx_attribute("axis", std::int64_t{1})}), 2, false};
  check(same_rows || to[0] == g.batch() || (wanted > 0 && cell % wanted == 0), exporting,
        "reshape of {} to {} ties the graph to batches of {}: keep the batch the first axis", from, to, g.batch());
  x = g.last(x);
  Ints shape(to.begin(), to.end());
  shape[0] = -1;
  return {g.node("Reshape", {x.name, g.constant(shape)}), to.rank(), false};
}
Value permute_form(Graph& g, const TracedOp& t) {
  const auto& order = options<Shape>(t);
  const Value x = g.last(g.value(t, 0));
  return like(x, transpose(g, x.name, {order.begin(), order.end()}));
}
Value reduce_form(Graph& g, const TracedOp& t) {
  const ReduceKind kind = options<ReduceKind>(t);
  const Value x = g.first(g.value(t, 0));
  const Shape &from = t.inputs[0].shape(), &to = t.output.shape();
  Ints axes;
  bool all_spatial = x.rank >= 3 && from[-1] == to[-1] && from[0] == to[0];
  for (int i = 0; i < x.rank; ++i) {
    if (from[i] != to[i]) axes.push_back(x.axis(i));
    if (i > 0 && i < x.rank - 1) all_spatial = all_spatial && to[i] == 1;
  }
  if (axes.empty()) return x;
  std::sort(axes.begin(), axes.end());
  if (all_spatial && kind != ReduceKind::sum)
    return like(x, g.node(kind == ReduceKind::max ? "GlobalMaxPool" : "GlobalAveragePool", {x.name}));
  if (kind == ReduceKind::sum) return like(x, g.node("ReduceSum", {x.name, g.constant(axes)}));
  return like(x, g.node(kind == ReduceKind::max ? "ReduceMax" : "ReduceMean", {x.name}, {ints("axes", axes)}));
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
/// A part of an axis that is as long as the traced batch is taken for a part of the batch.
void check_not_batch(Graph& g, const char* what, const Shape& from, const Shape& to) {
  check(from[0] == to[0] || from[0] != g.batch(), exporting,
        "{} along axis 0 of {}: with {} samples that axis is the batch, and the graph would be tied to its size; keep "
        "the batch the first axis, and whole",
        what, from, g.batch());
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
    if (from[i] != to[i]) starts.push_back(at[i]), ends.push_back(at[i] + to[i]), axes.push_back(x.axis(i));
  if (axes.empty()) return x;
  check_not_batch(g, "split", from, to);
  return slice(g, x, starts, ends, axes);
}
Value rows_form(Graph& g, const TracedOp& t) {
  const auto& range = options<Shape>(t);
  const Value x = g.value(t, 0);
  if (t.inputs[0].shape() == t.output.shape()) return x;
  check_not_batch(g, "rows", t.inputs[0].shape(), t.output.shape());
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
  return like(x, g.node("Pad", {x.name, g.constant(pads), g.constant(value)}));
}
/// Types and devices: the graph has f32 and no devices.
Value same(Graph& g, const TracedOp& t) { return g.value(t, 0); }

std::map<std::string, OnnxForm> forms() {
  std::map<std::string, OnnxForm> all{
      {"abs", unary("Abs")},
      {"add", binary("Add")},
      {"add_scalar", elementwise([](Graph& g, auto& t, auto& x) {
         return g.node("Add", {x, g.constant(options<pointwise::AddScalar>(t).number)});
       })},
      {"ceil", unary("Ceil")},
      {"clamp", elementwise(clip_nodes<pointwise::Clamp>)},
      {"compare", compare_form},
      {"concat", concat_form},
      {"constant",
       [](Graph& g, const TracedOp& t) -> Value {
         return {g.constant(options<Tensor>(t)), t.output.rank(), false};
       }},
      {"cos", unary("Cos")},
      {"cumsum", cumsum_form},
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
      {"gather", gather_form},
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
      {"pow", elementwise([](Graph& g, auto& t, auto& x) {
         return g.node("Pow", {x, g.constant(options<pointwise::Pow>(t).exponent)});
       })},
      {"reciprocal", unary("Reciprocal")},
      {"reduce", reduce_form},
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
      {"take", take_form},
      {"tanh", unary("Tanh")},
      {"to", same},
      {"where", where_form},
  };
  all.merge(spatial_forms());
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
