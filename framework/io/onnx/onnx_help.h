// Helpers that the ONNX forms of ops share.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "framework/io/onnx/onnx_graph.h"
#include "framework/ops/ops.h"

namespace trireme::onnx {

using Graph = OnnxGraph;
using Value = OnnxValue;
using Ints = std::vector<std::int64_t>;
constexpr const char* exporting = "export";

template <class T>
const T& options(const TracedOp& op) {
  const T* found = std::any_cast<T>(&op.detail);
  check(found != nullptr, exporting, "op '{}' does not pass its options to record()", op.name);
  return *found;
}
inline Protobuf ints(const char* name, const Ints& values) { return onnx_attribute(name, std::span(values)); }
/// The numbers of the spatial axes of a tensor with `rank` axes.
inline Ints spatial(const Extents& e, int rank) { return {e.begin(), e.begin() + (rank - 2)}; }
inline Protobuf pads(const Extents& begin, const Extents& end, int rank) {
  Ints all = spatial(begin, rank), after = spatial(end, rank);
  all.insert(all.end(), after.begin(), after.end());
  return ints("pads", all);
}
/// The value `name` with v's rank and order of axes.
inline Value like(Value v, std::string name) {
  v.name = std::move(name);
  return v;
}
inline std::string transpose(Graph& g, const std::string& x, const Ints& order) {
  return g.node("Transpose", {x}, {ints("perm", order)});
}

inline Value ordered(Graph& g, const Value& v, bool first) { return first ? g.first(v) : g.last(v); }

/// Brings operands to one order of axes, and returns the rank and order of their result. ONNX broadcasts from the last
/// axis on, so channels must be on the same axis.
inline Value align(Graph& g, std::initializer_list<Value*> operands) {
  Value y;
  bool fit = true;
  for (const Value* v : operands) {
    y.rank = std::max(y.rank, v->rank);
    y.first = y.first || v->first;
  }
  for (const Value* v : operands) fit = fit && (v->rank == y.rank || v->rank <= 1);
  y.first = y.first && fit;
  for (Value* v : operands) {
    if (!y.first || v->rank != 1) {
      *v = ordered(g, *v, y.first);
      continue;
    }
    Ints per_channel(static_cast<std::size_t>(y.rank - 1), 1);
    per_channel[0] = -1;
    v->name = g.node("Reshape", {v->name, g.constant(per_channel)});
  }
  return y;
}
inline Value binary_of(Graph& g, const std::string& type, Value a, Value b) {
  const Value y = align(g, {&a, &b});
  return like(y, g.node(type, {a.name, b.name}));
}

/// Forms of ops on windows and channels (framework/io/onnx/onnx_spatial.cpp), by name.
std::map<std::string, OnnxForm> spatial_forms();
/// Forms of ops that compare, select, sort and reduce (framework/io/onnx/onnx_select.cpp), by name.
std::map<std::string, OnnxForm> select_forms();
/// Forms of the ops of transformers (framework/io/onnx/onnx_attention.cpp), by name.
std::map<std::string, OnnxForm> attention_forms();

}  // namespace trireme::onnx
