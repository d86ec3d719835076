// The ONNX forms of the ops of transformers (framework/ops/attention.h), composed of operators of opset 17.
#include <cmath>
#include <limits>

#include "framework/io/onnx/onnx_help.h"
#include "kernels/contracts/attention.h"

namespace trireme::onnx {
namespace {

/// from, from + 1, ... along axis `axis` of rank 4; the other extents are 1.
std::string counted(Graph& g, Index count, int axis, Index from = 0) {
  Shape shape{1, 1, 1, 1};
  shape[axis] = count;
  std::vector<double> values;
  for (Index i = 0; i < count; ++i) values.push_back(static_cast<double>(from + i));
  return g.constant(Tensor::of(values, shape, DType::i64));
}
/// i64 [N] as [N, 1, 1, 1], or [N, T] as [N, 1, T, 1].
std::string per_sample(Graph& g, const TracedOp& t, std::size_t input, Index tokens = 1) {
  return g.node("Reshape", {g.value(t, input).name, g.constant(Ints{-1, 1, tokens, 1})});
}

/// The keys that a query attends to: a bool that broadcasts to [N, H, Tq, Tk]; "": all keys. Axes have their traced
/// extents.
std::string visible(Graph& g, const TracedOp& t, const AttentionOptions& o) {
  const Index queries = t.inputs[0].dim(1), keys = t.inputs[1].dim(1);
  std::string seen;
  if (o.causal) {
    std::string position = counted(g, queries, 2, o.q_at);
    if (t.inputs[4]) position = g.node("Add", {position, per_sample(g, t, 4)});
    seen = g.node("LessOrEqual", {counted(g, keys, 3), position});
    if (o.window > 0) seen = g.node("And", {seen, g.node("Less", {position, counted(g, keys, 3, o.window)})});
    if (t.inputs[5])
      seen = g.node("And", {seen, g.node("LessOrEqual", {per_sample(g, t, 5, queries), counted(g, keys, 3)})});
  }
  if (!t.inputs[3]) return seen;
  const std::string counts = g.node("Less", {counted(g, keys, 3), per_sample(g, t, 3)});
  return seen.empty() ? counts : g.node("And", {seen, counts});
}

/// ALiBi's bias [1, H, Tq, Tk]. q_starts would add the same to all keys of a query, which softmax ignores.
Tensor alibi_bias(const TracedOp& t, const AttentionOptions& o) {
  const Index heads = t.inputs[0].dim(2), queries = t.inputs[0].dim(1), keys = t.inputs[1].dim(1);
  std::vector<double> bias;
  for (Index h = 0; h < heads; ++h)
    for (Index i = 0; i < queries; ++i)
      for (Index j = 0; j < keys; ++j) bias.push_back(alibi_slope(h, heads) * static_cast<double>(j - o.q_at - i));
  return Tensor::of(bias, {1, heads, queries, keys});
}

/// Softmax(q k^T) v, each head for itself: [N, H, T, D].
Value attention_form(Graph& g, const TracedOp& t) {
  const auto& o = options<AttentionOptions>(t);
  const Index heads = t.inputs[0].dim(2), group = heads / t.inputs[1].dim(2);
  const auto by_head = [&](std::size_t input, const Ints& order) {
    const std::string x = transpose(g, g.last(g.value(t, input)).name, order);
    if (input == 0 || group == 1) return x;
    Ints shared;
    for (Index h = 0; h < heads; ++h) shared.push_back(h / group);
    return g.node("Gather", {x, g.constant(shared)}, {onnx_attribute("axis", std::int64_t{1})});
  };
  const double scale = o.scale == 0 ? 1 / std::sqrt(static_cast<double>(t.output.dim(-1))) : o.scale;
  const std::string q = g.node("Mul", {by_head(0, {0, 2, 1, 3}), g.constant(scale)});
  std::string scores = g.node("MatMul", {q, by_head(1, {0, 2, 3, 1})});
  if (o.alibi) scores = g.node("Add", {scores, g.constant(alibi_bias(t, o))});
  const std::string seen = visible(g, t, o);
  if (!seen.empty()) scores = g.node("Where", {seen, scores, g.constant(std::numeric_limits<float>::lowest())});
  std::string p = g.node("Softmax", {scores}, {onnx_attribute("axis", std::int64_t{-1})});
  if (!seen.empty()) p = g.node("Where", {seen, p, g.constant(0)});  // a query without keys
  const std::string y = g.node("MatMul", {p, by_head(2, {0, 2, 1, 3})});
  return {transpose(g, y, {0, 2, 1, 3}), 4, false};
}

Value rope_form(Graph& g, const TracedOp& t) {
  const bool interleaved = options<bool>(t);
  const Value x = g.last(g.value(t, 0));
  const std::string table = g.last(g.value(t, 1)).name;
  const Index rotated = t.inputs[1].dim(-1), half = rotated / 2, width = t.inputs[0].dim(3);
  const auto part = [&](const std::string& of, Index from, Index to, Index step = 1) {
    return g.node("Slice",
                  {of, g.constant(Ints{from}), g.constant(Ints{to}), g.constant(Ints{-1}), g.constant(Ints{step})});
  };
  const auto for_heads = [&](const std::string& of) { return g.node("Unsqueeze", {of, g.constant(Ints{-2})}); };
  const std::string cosine = for_heads(part(table, 0, half)), sine = for_heads(part(table, half, rotated));
  const std::string a = interleaved ? part(x.name, 0, rotated, 2) : part(x.name, 0, half),
                    b = interleaved ? part(x.name, 1, rotated, 2) : part(x.name, half, rotated);
  std::string left = g.node("Sub", {g.node("Mul", {a, cosine}), g.node("Mul", {b, sine})}),
              right = g.node("Add", {g.node("Mul", {b, cosine}), g.node("Mul", {a, sine})});
  const auto join = [&](std::vector<std::string> parts) {
    return g.node("Concat", std::move(parts), {onnx_attribute("axis", std::int64_t{-1})});
  };
  std::vector<std::string> parts{left, right};
  if (interleaved) {
    for (std::string& one : parts) one = g.node("Unsqueeze", {one, g.constant(Ints{-1})});
    parts = {g.node("Reshape", {join(parts), g.constant(Ints{0, 0, 0, rotated})})};
  }
  if (rotated < width) parts.push_back(part(x.name, rotated, width));
  return like(x, parts.size() == 1 ? parts[0] : join(parts));
}

}  // namespace

std::map<std::string, OnnxForm> attention_forms() { return {{"attention", attention_form}, {"rope", rope_form}}; }

}  // namespace trireme::onnx
