#include "framework/io/onnx/onnx.h"

#include <optional>
#include <set>

#include "framework/autograd/step_context.h"
#include "framework/io/onnx/onnx_graph.h"

namespace trireme {
namespace {

// Field numbers and types of onnx.proto (github.com/onnx/onnx), IR version 8, which came with opset 17.
constexpr int ir_version = 8, opset = 17;
enum Type : int { float_type = 1, int64_type = 7 };

/// ValueInfoProto: name 1, type 2 { tensor_type 1 { elem_type 1, shape 2 { dim 1 { dim_value 1 | dim_param 2 } } } }.
Protobuf value_info(const char* name, const Shape& shape) {
  Protobuf dims;
  for (int i = 0; i < shape.rank(); ++i)
    dims.message(1, i == 0 ? Protobuf().text(2, "N") : Protobuf().integer(1, shape[i]));
  const Protobuf tensor = Protobuf().integer(1, float_type).message(2, dims);
  return Protobuf().text(1, name).message(2, Protobuf().message(1, tensor));
}
/// NodeProto: input 1, output 2, name 3, op_type 4, attribute 5.
Protobuf node_proto(const OnnxNode& n) {
  Protobuf proto;
  for (const std::string& input : n.inputs) proto.text(1, input);
  proto.text(2, n.output).text(3, n.output).text(4, n.type);
  for (const Protobuf& attribute : n.attributes) proto.message(5, attribute);
  return proto;
}

/// TensorProto: dims 1, data_type 2, name 8, raw_data 9; head ends where the raw data begins.
struct TensorProto {
  explicit TensorProto(const StoredTensor& stored) : from(stored) {
    const Tensor& t = stored.tensor;
    const Shape shape = stored.layout == FileLayout::filter ? channels_first(t.shape()) : t.shape();
    for (Index extent : shape) head.integer(1, extent);
    raw = static_cast<std::size_t>(t.numel() * (t.dtype() == DType::i64 ? 8 : 4));
    head.integer(2, t.dtype() == DType::i64 ? int64_type : float_type).text(8, stored.name).announce(9, raw);
  }
  std::size_t size() const { return head.bytes().size() + raw; }
  void write(FileWriter& file) const {
    const Tensor here = export_tensors({from})[0].tensor;
    const Tensor numbers = here.dtype() == DType::i64 ? here : here.to(DType::f32);
    file.write(std::as_bytes(std::span(head.bytes())));
    file.write({numbers.data<const std::byte>(), raw});
  }
  StoredTensor from;
  Protobuf head;
  std::size_t raw = 0;
};

/// The ops that the output needs, in their order.
std::vector<const TracedOp*> needed(const std::vector<TracedOp>& trace, const Tensor& output) {
  std::set<const void*> wanted{output.id()};
  std::vector<const TracedOp*> ops;
  for (auto op = trace.rbegin(); op != trace.rend(); ++op) {
    if (!wanted.contains(op->output.id())) continue;
    ops.push_back(&*op);
    for (const Tensor& input : op->inputs)
      if (input) wanted.insert(input.id());
  }
  return {ops.rbegin(), ops.rend()};
}

/// Protobuf messages around tensors that are written one after another, never all in memory.
void write_model(const OnnxGraph& graph, const Tensor& input, const std::string& path, const OnnxOptions& o) {
  // GraphProto: node 1, name 2, initializer 5, input 11, output 12.
  Protobuf small;
  for (const OnnxNode& n : graph.nodes()) small.message(1, node_proto(n));
  small.text(2, "trireme");
  small.message(11, value_info("input", channels_first(input.shape())));
  small.message(12, value_info("output", graph.output_shape()));
  std::vector<std::pair<Protobuf, TensorProto>> tensors;  // each behind its tag and length
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
  Shape shape{5};  // an unlikely extent, so that an axis as long as the batch is the batch
  for (Index extent : sample) shape.push_back(extent);
  const Tensor input = Tensor::zeros(shape, parameters.dtype());
  const StepScope evaluation(StepContext{.batch = {.training = false}});
  std::optional<Trace> trace(std::in_place);
  const Tensor output = model(input);
  const std::vector<TracedOp> ops = std::move(trace->ops);
  trace.reset();

  OnnxGraph graph(parameters, ops, input);
  for (const TracedOp* op : needed(ops, output)) graph.add(*op);
  graph.finish(output);
  write_model(graph, input, path, options);
}

}  // namespace trireme
