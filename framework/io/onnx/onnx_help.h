// What the ONNX forms of ops share.
#pragma once
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
  check(found != nullptr, exporting, "op '{}' does not tell its options to record()", op.name);
  return *found;
}
inline Protobuf ints(const char* name, const Ints& values) { return onnx_attribute(name, std::span(values)); }
/// One number per spatial axis of a tensor with so many axes.
inline Ints spatial(const Extents& e, int rank) { return {e.begin(), e.begin() + (rank - 2)}; }
inline Protobuf pads(const Extents& begin, const Extents& end, int rank) {
  Ints all = spatial(begin, rank), after = spatial(end, rank);
  all.insert(all.end(), after.begin(), after.end());
  return ints("pads", all);
}
/// The value, in v's order of axes.
inline Value like(Value v, std::string name) {
  v.name = std::move(name);
  return v;
}
inline std::string transpose(Graph& g, const std::string& x, const Ints& order) {
  return g.node("Transpose", {x}, {ints("perm", order)});
}

/// Operands are broadcast from the last axis on, so they must agree where the channels are.
inline Value binary_of(Graph& g, const std::string& type, Value a, Value b) {
  if (a.rank == b.rank)
    a = g.first(a), b = g.first(b);
  else if (a.rank > 0 && b.rank > 0)
    a = g.last(a), b = g.last(b);
  return like(a.rank >= b.rank ? a : b, g.node(type, {a.name, b.name}));
}

/// Forms of the ops over windows and channels (framework/io/onnx/onnx_spatial.cpp), by name.
std::map<std::string, OnnxForm> spatial_forms();

}  // namespace trireme::onnx
