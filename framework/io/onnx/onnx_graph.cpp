#include "framework/io/onnx/onnx_graph.h"

#include <algorithm>
#include <cstring>

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

int onnx_type(DType t) {
  switch (t) {
    case DType::u8: return 2;
    case DType::i8: return 3;
    case DType::i16: return 5;
    case DType::i32: return 6;
    case DType::i64: return 7;
    case DType::boolean: return 9;
    default: return 1;
  }
}

Shape channels_first(const Shape& s) {
  if (s.rank() < 3) return s;
  Shape moved{s[0], s[-1]};
  for (int i = 1; i < s.rank() - 1; ++i) moved.push_back(s[i]);
  return moved;
}

OnnxGraph::OnnxGraph(const Parameters& parameters, const std::vector<TracedOp>& trace, const Tensor& input)
    : input_(input), taken_{"input", "output"} {
  for (const auto& [name, field] : input.fields()) {
    check(taken_.insert(name).second, "export",
          "a field is named '{}', a name that the graph uses itself: rename the field", name);
    known_[field.id()] = {name, field.rank(), field.rank() >= 3};
  }
  for (const StoredTensor& t : stored_weights(parameters)) {
    check(taken_.insert(t.name).second, "export",
          "a tensor of the model is named '{}', a name that the graph or a field uses: rename the tensor", t.name);
    named_.emplace(t.tensor.id(), t);
  }
  known_[input.id()] = {"input", input.rank(), input.rank() >= 3};
  for (const TracedOp& traced : trace)
    for (const Tensor& t : traced.inputs)
      if (t) ++uses_[t.id()];
}

void OnnxGraph::add(const TracedOp& traced, const TracedOp& twin) {
  const OnnxForm& form = onnx_form(traced.name);
  check(form != nullptr, "export",
        "op '{}' has no ONNX form; use other ops, or write one in framework/io/onnx/onnx_ops.cpp", traced.name);
  twin_ = &twin;
  known_[traced.output.id()] = form(*this, traced);
}

bool OnnxGraph::goes_on_as(const OnnxGraph& other, std::size_t nodes, std::size_t initializers) const {
  const auto same = [](const StoredTensor& a, const StoredTensor& b) {
    if (a.name != b.name || a.tensor.dtype() != b.tensor.dtype() || a.tensor.shape() != b.tensor.shape()) return false;
    if (a.tensor.id() == b.tensor.id() || a.tensor.numel() == 0) return true;
    const Tensor x = a.tensor.to(cpu()), y = b.tensor.to(cpu());
    return std::memcmp(x.view().data, y.view().data, static_cast<std::size_t>(x.view().bytes())) == 0;
  };
  const auto behind = [](const auto& all, std::size_t count) { return std::span(all).subspan(count); };
  return std::ranges::equal(behind(nodes_, nodes), behind(other.nodes_, nodes)) &&
         std::ranges::equal(behind(initializers_, initializers), behind(other.initializers_, initializers), same);
}

void OnnxGraph::finish(const Tensor& output) {
  const auto at = known_.find(output.id());
  check(at != known_.end(), "export",
        "the model's output comes from no op that is recorded (detach() and clone() are not): return their argument "
        "instead");
  check(output.rank() >= 1 && output.dim(0) == batch(), "export",
        "the output for {} samples is {}: its first axis must count the samples", batch(), output.shape());
  const OnnxValue value = channels_first_out() ? first(at->second) : last(at->second);
  output_ = output;
  if (maker(value.name) == nullptr) return nodes_.push_back({"Identity", {value.name}, {"output"}, {}});
  for (OnnxNode& n : nodes_)
    for (auto* names : {&n.inputs, &n.outputs})
      std::replace(names->begin(), names->end(), value.name, std::string("output"));
}

OnnxValue OnnxGraph::value(const TracedOp& reader, std::size_t input) {
  const Tensor& t = reader.inputs.at(input);
  if (const auto at = known_.find(t.id()); at != known_.end()) return at->second;
  const auto named = named_.find(t.id());
  check(named != named_.end(), "export",
        "input {} of '{}' ({}) is neither the model's input, nor named by visit(), nor the result of a recorded op "
        "(detach() and clone() are not): name a constant as a buffer",
        input, reader.name, t.shape());
  return known_[t.id()] = initializer(named->second);
}

OnnxValue OnnxGraph::initializer(const StoredTensor& stored) {
  initializers_.push_back(stored);
  // The graph has a matrix in memory's layout: ops would otherwise transpose it back.
  if (stored.layout == FileLayout::transposed) initializers_.back().layout = FileLayout::same;
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

std::string OnnxGraph::node(std::string type, std::vector<std::string> inputs, std::vector<Protobuf> attributes,
                            int outputs) {
  std::vector<std::string> names;
  while (outputs-- > 0) names.push_back(fresh(type));
  nodes_.push_back({std::move(type), std::move(inputs), std::move(names), std::move(attributes)});
  return nodes_.back().outputs.back();
}
std::string OnnxGraph::rows() {
  if (rows_.empty()) rows_ = node("Shape", {"input"}, {onnx_attribute("end", std::int64_t{1})});
  return rows_;
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
  const auto at =
      std::find_if(nodes_.begin(), nodes_.end(), [&](const OnnxNode& n) { return n.outputs.back() == name; });
  return at == nodes_.end() ? nullptr : &*at;
}

}  // namespace trireme
