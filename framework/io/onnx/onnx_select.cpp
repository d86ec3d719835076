// The ONNX forms of ops that compare, select, sort or reduce elements.
#include "framework/io/onnx/onnx_help.h"
#include "framework/ops/help.h"
#include "kernels/contracts/select.h"

namespace trireme::onnx {
namespace {

Protobuf axis_of(const Value& x, int axis) { return onnx_attribute("axis", std::int64_t{x.axis(axis)}); }

Value compare_form(Graph& g, const TracedOp& t) {
  const Comparison how = options<Comparison>(t);
  const char* types[] = {"Equal", "Equal", "Less", "LessOrEqual"};
  const Value y = binary_of(g, types[static_cast<int>(how)], g.value(t, 0), g.value(t, 1));
  return how == Comparison::not_equal ? like(y, g.node("Not", {y.name})) : y;
}
Value where_form(Graph& g, const TracedOp& t) {
  Value c = g.value(t, 0), a = g.value(t, 1), b = g.value(t, 2);
  const Value y = align(g, {&c, &a, &b});
  if (t.output.dtype() != DType::boolean) return like(y, g.node("Where", {c.name, a.name, b.name}));
  // onnxruntime has no Where of truth values.
  const std::string yes = g.node("And", {c.name, a.name}), no = g.node("And", {g.node("Not", {c.name}), b.name});
  return like(y, g.node("Or", {yes, no}));
}
OnnxForm triangle(bool upper) {
  return [upper](Graph& g, const TracedOp& t) {
    const Value x = g.last(g.value(t, 0));
    const Tensor diagonal = Tensor::scalar(static_cast<double>(options<Index>(t)), DType::i64);
    return like(x, g.node("Trilu", {x.name, g.constant(diagonal)}, {onnx_attribute("upper", std::int64_t{upper})}));
  };
}

Value take_form(Graph& g, const TracedOp& t) {
  const Value x = g.last(g.value(t, 0)), ids = g.last(g.value(t, 1));
  return {g.node("Gather", {x.name, ids.name}, {axis_of(x, options<int>(t))}), t.output.rank(), false};
}
Value gather_form(Graph& g, const TracedOp& t) {
  const Value x = g.value(t, 0), ids = ordered(g, g.value(t, 1), x.first);
  return like(x, g.node("GatherElements", {x.name, ids.name}, {axis_of(x, options<int>(t))}));
}
Value scatter_add_form(Graph& g, const TracedOp& t) {
  const Value x = g.value(t, 0), ids = ordered(g, g.value(t, 1), x.first), source = ordered(g, g.value(t, 2), x.first);
  return like(x, g.node("ScatterElements", {x.name, ids.name, source.name},
                        {axis_of(x, options<int>(t)), onnx_attribute("reduction", "add")}));
}

/// The index; the values are gathered by it.
Value topk_form(Graph& g, const TracedOp& t) {
  const auto& [axis, largest] = options<std::pair<int, bool>>(t);
  const Value x = g.value(t, 0);
  return like(x, g.node("TopK", {x.name, g.constant(Ints{t.output.dim(axis)})},
                        {axis_of(x, axis), onnx_attribute("largest", std::int64_t{largest})}, 2));
}
OnnxForm extreme(const char* type) {
  return [type](Graph& g, const TracedOp& t) -> Value {
    const Value x = g.last(g.value(t, 0));
    return {g.node(type, {x.name}, {axis_of(x, options<int>(t)), onnx_attribute("keepdims", std::int64_t{0})}),
            t.output.rank(), false};
  };
}
Value cumsum_form(Graph& g, const TracedOp& t) {
  const Value x = g.value(t, 0);
  const Tensor axis = Tensor::scalar(x.axis(options<int>(t)), DType::i64);
  return like(x, g.node("CumSum", {x.name, g.constant(axis)}));
}

/// Of all elements, to a scalar.
OnnxForm over_all(const char* type) {
  return [type](Graph& g, const TracedOp& t) -> Value {
    return {g.node(type, {g.value(t, 0).name}, {onnx_attribute("keepdims", std::int64_t{0})}), 0, false};
  };
}
/// Of some axes, by ops::ReducedAxes.
OnnxForm over_axes(const char* type) {
  return [type](Graph& g, const TracedOp& t) -> Value {
    const auto& [axes, keep] = options<ops::ReducedAxes>(t);
    check(!axes.empty(), exporting, "op '{}' over no axes: leave it out, or name some", t.name);
    const Value x = keep ? g.value(t, 0) : g.last(g.value(t, 0));
    Ints places;
    for (const int axis : axes) places.push_back(x.axis(axis < 0 ? axis + x.rank : axis));
    return {g.node(type, {x.name}, {ints("axes", places), onnx_attribute("keepdims", std::int64_t{keep})}),
            t.output.rank(), keep && x.first};
  };
}
/// sum, mean and maximum, which keep the axes.
Value reduce_form(Graph& g, const TracedOp& t) {
  const ReduceKind kind = options<ReduceKind>(t);
  const Value x = g.value(t, 0);
  const Shape &from = t.inputs[0].shape(), &to = t.output.shape();
  Ints axes;
  bool all_spatial = x.rank >= 3 && from[-1] == to[-1] && from[0] == to[0] && is_float(t.output.dtype());
  for (int i = 0; i < x.rank; ++i) {
    if (from[i] != to[i]) axes.push_back(x.axis(i));
    if (i > 0 && i < x.rank - 1) all_spatial = all_spatial && to[i] == 1;
  }
  if (axes.empty()) return x;
  if (all_spatial && kind != ReduceKind::sum) {
    const Value first = g.first(x);
    return like(first, g.node(kind == ReduceKind::max ? "GlobalMaxPool" : "GlobalAveragePool", {first.name}));
  }
  if (kind == ReduceKind::sum) return like(x, g.node("ReduceSum", {x.name, g.constant(axes)}));
  return like(x, g.node(kind == ReduceKind::max ? "ReduceMax" : "ReduceMean", {x.name}, {ints("axes", axes)}));
}

}  // namespace

std::map<std::string, OnnxForm> select_forms() {
  return {
      {"amin", over_axes("ReduceMin")},
      {"argmax", extreme("ArgMax")},
      {"argmin", extreme("ArgMin")},
      {"compare", compare_form},
      {"cumsum", cumsum_form},
      {"gather", gather_form},
      {"logsumexp", over_axes("ReduceLogSumExp")},
      {"mean", over_all("ReduceMean")},
      {"norm", over_axes("ReduceL2")},
      {"prod", over_axes("ReduceProd")},
      {"reduce", reduce_form},
      {"scatter_add", scatter_add_form},
      {"sum", over_all("ReduceSum")},
      {"take", take_form},
      {"topk", topk_form},
      {"tril", triangle(false)},
      {"triu", triangle(true)},
      {"where", where_form},
  };
}

}  // namespace trireme::onnx
