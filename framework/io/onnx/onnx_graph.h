// OnnxGraph: an ONNX graph (onnx.ai, opset 17) that is built op by op from a Trace of a model's forward, like the
// symbolic functions of torch.onnx. Only the exporter (framework/io/onnx/onnx.cpp) and the ONNX forms of ops use it.
//
// An ONNX form is a function that adds the nodes of one traced op and returns the value of the op's result:
//   OnnxValue sqrt_form(OnnxGraph& g, const TracedOp& op) {
//     const OnnxValue x = g.value(op, 0);            // the value of the op's first input
//     return {g.node("Sqrt", {x.name}), x.rank, x.first};
//   }
//
// Order of axes: traced tensors have channels last [N, H, W, C], ONNX ops on images need channels first [N, C, H, W].
// A value records its order. A form converts its inputs with first() or last(), which add a Transpose if the value has
// the other order. Between two convolutions there is none.
//
// Dynamic batch: an ONNX graph must accept any number of samples N. The exporter traces the model with 3 and with 4
// samples and builds a graph from each trace at the same time. A form compares an extent in the two traces: if they
// differ, the extent depends on N and is computed in the graph from rows(). Then both graphs must have equal nodes.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "framework/autograd/trace.h"
#include "framework/io/onnx/protobuf.h"
#include "framework/io/weights.h"
#include "framework/optim/parameters.h"

namespace trireme {

/// A value (a tensor) of the graph, and its order of axes.
struct OnnxValue {
  std::string name;    ///< of the graph's input, a node's output or an initializer
  int rank = 0;        ///< number of axes
  bool first = false;  ///< channels are on axis 1, not on the last axis as in the traced tensor; false below three axes
  /// The axis of this value that corresponds to axis of_tensor, 0 to rank - 1, of the traced tensor.
  int axis(int of_tensor) const {
    if (!first || of_tensor == 0) return of_tensor;
    return of_tensor == rank - 1 ? 1 : of_tensor + 1;
  }
};

/// A node of the graph: one call of an ONNX operator (NodeProto).
struct OnnxNode {
  std::string type;                                  ///< name of the operator: "Conv"
  std::vector<std::string> inputs;                   ///< names of values; "": an absent optional input
  std::vector<std::string> outputs;                  ///< names of values; other nodes read the last one only
  std::vector<Protobuf> attributes;                  ///< encoded AttributeProtos, see onnx_attribute()
  bool operator==(const OnnxNode&) const = default;  ///< all members are equal
};
/// The number of a type in TensorProto.DataType. All floating types are FLOAT (f32) in the graph.
int onnx_type(DType);
/// An encoded AttributeProto of type INT, FLOAT, STRING or INTS.
Protobuf onnx_attribute(std::string_view name, std::int64_t value);
Protobuf onnx_attribute(std::string_view name, float value);
Protobuf onnx_attribute(std::string_view name, const char* value);
Protobuf onnx_attribute(std::string_view name, std::span<const std::int64_t> values);

/// A graph under construction: add() each op of the trace in order, then finish().
class OnnxGraph {
 public:
  /// A graph without nodes. parameters: the model's, which become initializers when an op reads them. trace: all ops,
  /// to count the readers of a tensor. input: the traced batch [N, ...] with its fields; they are the graph's inputs.
  /// Throws Error if a tensor or field has a name that the graph uses.
  OnnxGraph(const Parameters& parameters, const std::vector<TracedOp>& trace, const Tensor& input);

  /// Adds the nodes of a traced op. twin: the same op in the trace with the other number of samples. Throws Error if
  /// the op has no ONNX form.
  void add(const TracedOp& op, const TracedOp& twin);
  /// Whether both graphs are equal from node number `nodes` and initializer number `initializers` on: types, names,
  /// attributes and numbers.
  bool goes_on_as(const OnnxGraph& other, std::size_t nodes, std::size_t initializers) const;
  /// Makes the value of this traced tensor the graph's output "output". Throws Error if no recorded op made the tensor,
  /// and if its first axis is not the batch.
  void finish(const Tensor& output);

  // For the ONNX forms of ops (framework/io/onnx/onnx_ops.cpp).
  /// The value of input number `input` of an op. Throws Error if the tensor is neither the model's input, nor a named
  /// parameter or buffer, nor the result of a recorded op.
  OnnxValue value(const TracedOp& reader, std::size_t input);
  OnnxValue first(const OnnxValue&);  ///< the value with channels first [N, C, ...]; adds a Transpose if necessary
  OnnxValue last(const OnnxValue&);   ///< the value with channels last [N, ..., C]; adds a Transpose if necessary
  /// Adds a node with this number of outputs and new names for them. Returns the name of the last output.
  std::string node(std::string type, std::vector<std::string> inputs, std::vector<Protobuf> attributes = {},
                   int outputs = 1);
  /// Adds a constant as an initializer and returns its name: any tensor, an f32 scalar [], or i64 [values.size()].
  std::string constant(const Tensor& value);
  std::string constant(double value) { return constant(Tensor::scalar(value)); }
  std::string constant(std::span<const std::int64_t> values);
  Index batch() const { return input_.dim(0); }  ///< number of samples in the traced batch: 3 or 4
  /// The op that add() is adding, in the trace with the other number of samples. An extent that differs depends on N.
  const TracedOp& twin() const { return *twin_; }
  std::string rows();             ///< name of the value N, i64 [1]: the number of samples when the graph runs
  int uses(const Tensor&) const;  ///< how many times ops of the trace read the tensor
  OnnxNode* maker(const std::string& name);  ///< the node whose last output has this name; null: none (an input)

  const std::vector<OnnxNode>& nodes() const { return nodes_; }                    ///< in the order of execution
  const std::vector<StoredTensor>& initializers() const { return initializers_; }  ///< weights and constants
  const Tensor& output() const { return output_; }  ///< the tensor of finish(); axis 0 is the batch
  /// Whether "output" has channels first. False for models of token ids [N, T], whose logits are [N, T, V] in PyTorch,
  /// too.
  bool channels_first_out() const { return input_.dtype() != DType::i64 || input_.rank() > 2; }

 private:
  std::string fresh(const std::string& stem);
  OnnxValue initializer(const StoredTensor&);
  OnnxValue transposed(const OnnxValue&, bool first);

  Tensor input_;
  std::map<const void*, StoredTensor> named_;  // parameters and buffers, by tensor
  std::map<const void*, OnnxValue> known_;     // values in the graph so far, by tensor
  std::map<const void*, int> uses_;
  std::map<std::string, int> counts_;  // number of names made, by stem
  std::set<std::string> taken_;        // names that must not be made
  std::vector<OnnxNode> nodes_;
  std::vector<StoredTensor> initializers_;
  Tensor output_;
  const TracedOp* twin_ = nullptr;
  std::string rows_;
};

/// Channels last to channels first: [N, H, W, C] -> [N, C, H, W]; unchanged below three axes.
Shape channels_first(const Shape&);

/// An ONNX form: adds the nodes of one op to the graph, and returns the value of the op's output.
using OnnxForm = std::function<OnnxValue(OnnxGraph&, const TracedOp&)>;
/// The ONNX form of an op; empty if there is none.
const OnnxForm& onnx_form(const std::string& op);

}  // namespace trireme
