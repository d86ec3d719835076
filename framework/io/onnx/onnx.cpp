#include "framework/io/onnx/onnx.h"

#include <algorithm>
#include <set>

#include "framework/autograd/step_context.h"
#include "framework/io/onnx/onnx_graph.h"

namespace trireme {
namespace {

// Field numbers and types of onnx.proto (github.com/onnx/onnx), IR version 8, which came with opset 17.
constexpr int ir_version = 8, opset = 17;

/// ValueInfoProto: name 1, type 2 { tensor_type 1 { elem_type 1, shape 2 { dim 1 { dim_value 1 | dim_param 2 } } } }.
Protobuf value_info(const std::string& name, const Tensor& traced, bool first) {
  const Shape shape = first ? channels_first(traced.shape()) : traced.shape();
  Protobuf dims;
  for (int i = 0; i < shape.rank(); ++i)
    dims.message(1, i == 0 ? Protobuf().text(2, "N") : Protobuf().integer(1, shape[i]));
  const Protobuf tensor = Protobuf().integer(1, onnx_type(traced.dtype())).message(2, dims);
  return Protobuf().text(1, name).message(2, Protobuf().message(1, tensor));
}
/// NodeProto: input 1, output 2, name 3, op_type 4, attribute 5.
Protobuf node_proto(const OnnxNode& n) {
  Protobuf proto;
  for (const std::string& input : n.inputs) proto.text(1, input);
  for (const std::string& output : n.outputs) proto.text(2, output);
  proto.text(3, n.outputs.back()).text(4, n.type);
  for (const Protobuf& attribute : n.attributes) proto.message(5, attribute);
  return proto;
}

/// TensorProto: dims 1, data_type 2, name 8, raw_data 9; head ends where the raw data begins.
struct TensorProto {
  explicit TensorProto(const StoredTensor& stored) : from(stored) {
    const Tensor& t = stored.tensor;
    const Shape shape = in_file(t.shape(), stored.layout);
    for (Index extent : shape) head.integer(1, extent);
    raw = static_cast<std::size_t>(t.numel() * (is_float(t.dtype()) ? 4 : size_of(t.dtype())));
    head.integer(2, onnx_type(t.dtype())).text(8, stored.name).announce(9, raw);
  }
  std::size_t size() const { return head.bytes().size() + raw; }
  void write(FileWriter& file) const {
    const Tensor here = export_tensors({from})[0].tensor;
    const Tensor numbers = is_float(here.dtype()) ? here.to(DType::f32) : here;
    file.write(std::as_bytes(std::span(head.bytes())));
    file.write({numbers.data<const std::byte>(), raw});
  }
  StoredTensor from;
  Protobuf head;
  std::size_t raw = 0;
};

/// A forward pass.
struct Pass {
  Tensor input, output;
  std::vector<TracedOp> ops;
  Pass(const Module& model, Tensor batch) : input(std::move(batch)) {
    Trace trace;
    output = model(input);
    ops = std::move(trace.ops);
  }
};
/// The ops that the output needs, in their order.
std::vector<const TracedOp*> needed(const std::vector<TracedOp>& trace, const Tensor& output) {
  std::set<const void*> wanted{output.id()};
  std::vector<const TracedOp*> ops;
  for (auto op = trace.rbegin(); op != trace.rend(); ++op) {
    if (wanted.erase(op->output.id()) == 0) continue;
    ops.push_back(&*op);
    for (const Tensor& input : op->inputs)
      if (input) wanted.insert(input.id());
  }
  return {ops.rbegin(), ops.rend()};
}

/// Adds the ops of two forward passes to their graphs. Throws Error where these differ.
void add_both(OnnxGraph& graph, const std::vector<const TracedOp*>& ops, OnnxGraph& twin,
              const std::vector<const TracedOp*>& twins) {
  const auto same_kind = [](const TracedOp* a, const TracedOp* b) {
    return a->inputs.size() == b->inputs.size() && a->output.rank() == b->output.rank() &&
           std::string_view(a->name) == b->name;
  };
  check(std::ranges::equal(ops, twins, same_kind), "export",
        "the model runs different ops for {} samples ({}) and {} samples ({}), expected the same ops for every batch "
        "size",
        graph.batch(), ops.size(), twin.batch(), twins.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::size_t nodes = graph.nodes().size(), initializers = graph.initializers().size();
    graph.add(*ops[i], *twins[i]);
    twin.add(*twins[i], *ops[i]);
    check(graph.goes_on_as(twin, nodes, initializers), "export",
          "op '{}', whose result is {} for {} samples, has other options for {} samples, so the graph would have a "
          "fixed batch size: keep the batch the first axis, and let mean() and reduce() count it",
          ops[i]->name, ops[i]->output.shape(), graph.batch(), twin.batch());
  }
}

/// Protobuf messages around tensors that are written one after another, never all in memory.
void write_model(const OnnxGraph& graph, const Tensor& input, const std::string& path, const OnnxOptions& o) {
  // GraphProto: node 1, name 2, initializer 5, input 11, output 12.
  Protobuf small;
  for (const OnnxNode& n : graph.nodes()) small.message(1, node_proto(n));
  small.text(2, "trireme");
  small.message(11, value_info("input", input, true));
  for (const auto& [name, field] : o.fields) small.message(11, value_info(name, input.at(name), true));
  small.message(12, value_info("output", graph.output(), graph.channels_first_out()));
  std::vector<std::pair<Protobuf, TensorProto>> tensors;  // each after its tag and length
  std::size_t size = small.bytes().size();
  for (const StoredTensor& stored : graph.initializers()) {
    const TensorProto tensor(stored);
    tensors.emplace_back(Protobuf().announce(5, tensor.size()), tensor);
    size += tensors.back().first.bytes().size() + tensor.size();
  }
  // ModelProto: ir_version 1, producer_name 2, graph 7, opset_import 8 { version 2 }, metadata_props 14 { key 1, value
  // 2 }.
  Protobuf head;
  head.integer(1, ir_version).text(2, "trireme").message(8, Protobuf().integer(2, opset));
  for (const auto& [key, value] : o.metadata) head.message(14, Protobuf().text(1, key).text(2, value));
  head.announce(7, size);
  size += head.bytes().size();
  check(size <= o.at_most, "export",
        "{}: the model takes {} bytes, an ONNX file holds at most {}: export a smaller one", path, size, o.at_most);
  replace_file(path, size, [&](FileWriter& file) {
    file.write(std::as_bytes(std::span(head.bytes())));
    file.write(std::as_bytes(std::span(small.bytes())));
    for (const auto& [prefix, tensor] : tensors) {
      file.write(std::as_bytes(std::span(prefix.bytes())));
      tensor.write(file);
    }
  });
}

}  // namespace

void export_onnx(const Module& model, const Parameters& parameters, const Shape& sample, const std::string& path,
                 const OnnxOptions& options) {
  check(options.input == DType::f32 || options.input == DType::i64, "export", "the input is {}, expected f32 or i64",
        options.input);
  for (const auto& [name, field] : options.fields)
    check(field.dtype == DType::f32 || field.dtype == DType::i64, "export", "field '{}' of {}: it is f32 or i64", name,
          field.dtype);
  const StepScope evaluation(StepContext{.batch = {.training = false}});
  const auto pass_of = [&](Index rows) {
    const auto zeros = [&](const Shape& one, DType type) {
      Shape shape{rows};
      for (Index extent : one) shape.push_back(extent);
      return Tensor::zeros(shape, type == DType::i64 ? type : parameters.dtype());
    };
    Tensor batch = zeros(sample, options.input);
    for (const auto& [name, field] : options.fields) batch = batch.with(name, zeros(field.sample, field.dtype));
    try {
      return Pass(model, batch);
    } catch (const Error& e) {
      fail(e.kind(), "export", "the model, with {} samples of {}: {}", rows, sample, e.what());
    }
  };
  // Whatever is the same for two numbers of samples is the same for all.
  const Pass pass = pass_of(3), other = pass_of(4);
  OnnxGraph graph(parameters, pass.ops, pass.input), twin(parameters, other.ops, other.input);
  add_both(graph, needed(pass.ops, pass.output), twin, needed(other.ops, other.output));
  graph.finish(pass.output);
  twin.finish(other.output);
  for (int i = 1; i < pass.output.rank(); ++i)
    check(pass.output.dim(i) == other.output.dim(i), "export",
          "the output for {} samples is {}, for {} samples {}: only the first axis may depend on the number of samples",
          pass.input.dim(0), pass.output.shape(), other.input.dim(0), other.output.shape());
  write_model(graph, pass.input, path, options);
}

}  // namespace trireme
