#include "framework/io/onnx/onnx_graph.h"

#include <algorithm>

namespace trireme {

// AttributeProto: name 1, f 2, i 3, ints 8, type 20 (FLOAT 1, INT 2, INTS 7).
Protobuf onnx_attribute(std::string_view name, float value) {
  return Protobuf().text(1, name).number(2, value).integer(20, 1);
}
Protobuf onnx_attribute(std::string_view name, const char* value) {
  return Protobuf().text(1, name).text(4, value).integer(20, 3);
}
Protobuf onnx_attribute(std::string_view name, std::int64_t value) {
  return Protobuf().text(1, name).integer(3, value).integer(20, 2);
}
Protobuf onnx_attribute(std::string_view name, std::span<const std::int64_t> values) {
  Protobuf attribute;
  attribute.text(1, name);
  for (std::int64_t v : values) attribute.integer(8, v);
  return attribute.integer(20, 7);
}

Shape channels_first(const Shape& s) {
  if (s.rank() < 3) return s;
  Shape moved{s[0], s[-1]};
  for (int i = 1; i < s.rank() - 1; ++i) moved.push_back(s[i]);
  return moved;
}

OnnxGraph::OnnxGraph(const Parameters& parameters, const std::vector<TracedOp>& trace, const Tensor& input)
    : input_(input), taken_{"input", "output"} {
  for (const StoredTensor& t : stored_weights(parameters)) {
    check(taken_.insert(t.name).second, "export", "a tensor of the model is called '{}', as the graph's own", t.name);
    named_.emplace(t.tensor.id(), t);
  }
  known_[input.id()] = {"input", input.rank(), input.rank() >= 3};
  for (const TracedOp& traced : trace)
    for (const Tensor& t : traced.inputs)
      if (t) ++uses_[t.id()];
}

void OnnxGraph::add(const TracedOp& traced) {
  const OnnxForm& form = onnx_form(traced.name);
  check(form != nullptr, "export",
        "op '{}' has no ONNX form; use other ops, or write one in framework/io/onnx/onnx_ops.cpp", traced.name);
  known_[traced.output.id()] = form(*this, traced);
}

void OnnxGraph::finish(const Tensor& output) {
  const auto at = known_.find(output.id());
  check(at != known_.end(), "export",
        "the model's output comes from no op that is recorded: detach(), clone(), rows() and argmax() cannot be "
        "exported");
  check(output.rank() >= 1 && output.dim(0) == batch(), "export",
        "the output of {} samples is {}: its first axis must count the samples", batch(), output.shape());
  const OnnxValue value = first(at->second);
  output_shape_ = channels_first(output.shape());
  if (maker(value.name) == nullptr) return nodes_.push_back({"Identity", {value.name}, "output", {}});
  for (OnnxNode& n : nodes_) {
    if (n.output == value.name) n.output = "output";
    std::replace(n.inputs.begin(), n.inputs.end(), value.name, std::string("output"));
  }
}

OnnxValue OnnxGraph::value(const TracedOp& reader, std::size_t input) {
  const Tensor& t = reader.inputs.at(input);
  if (const auto at = known_.find(t.id()); at != known_.end()) return at->second;
  const auto named = named_.find(t.id());
  check(named != named_.end(), "export",
        "input {} of '{}' ({}) is neither the model's input, nor named by visit(), nor the result of a recorded op "
        "(detach(), clone() and rows() are not): name a constant as a buffer",
        input, reader.name, t.shape());
  return known_[t.id()] = initializer(named->second);
}

OnnxValue OnnxGraph::initializer(const StoredTensor& stored) {
  initializers_.push_back(stored);
  return {stored.name, stored.tensor.rank(), stored.tensor.rank() >= 3 && stored.layout == FileLayout::filter};
}

OnnxValue OnnxGraph::first(const OnnxValue& v) { return transposed(v, true); }
OnnxValue OnnxGraph::last(const OnnxValue& v) { return transposed(v, false); }
OnnxValue OnnxGraph::transposed(const OnnxValue& v, bool first) {
  if (v.rank < 3 || v.first == first) return v;
  std::vector<std::int64_t> order{0};
  if (first) order.push_back(v.rank - 1);
  for (int i = first ? 1 : 2; i < (first ? v.rank - 1 : v.rank); ++i) order.push_back(i);
  if (!first) order.push_back(1);
  return {node("Transpose", {v.name}, {onnx_attribute("perm", order)}), v.rank, first};
}

std::string OnnxGraph::node(std::string type, std::vector<std::string> inputs, std::vector<Protobuf> attributes) {
  std::string output = fresh(type);
  nodes_.push_back({std::move(type), std::move(inputs), output, std::move(attributes)});
  return output;
}

std::string OnnxGraph::constant(const Tensor& value) {
  initializers_.push_back({fresh("Constant"), value});
  return initializers_.back().name;
}
std::string OnnxGraph::constant(std::span<const std::int64_t> values) {
  const std::vector<double> numbers(values.begin(), values.end());
  return constant(Tensor::of(numbers, {static_cast<Index>(values.size())}, DType::i64));
}

std::string OnnxGraph::fresh(const std::string& stem) {
  for (;;)
    if (std::string name = fmt::format("{}_{}", stem, counts_[stem]++); taken_.insert(name).second) return name;
}

int OnnxGraph::uses(const Tensor& t) const {
  const auto at = uses_.find(t.id());
  return at == uses_.end() ? 0 : at->second;
}
OnnxNode* OnnxGraph::maker(const std::string& name) {
  const auto at = std::find_if(nodes_.begin(), nodes_.end(), [&](const OnnxNode& n) { return n.output == name; });
  return at == nodes_.end() ? nullptr : &*at;
}

}  // namespace trireme
