// OnnxGraph: an ONNX graph under construction. Values with three or more axes have their channels first, as in PyTorch,
// or last, as in the traced tensors. Each op asks for the order that it needs, and a Transpose is inserted if they
// differ.
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

/// A value of the graph. first: channels are on axis 1 instead of the last; always false below three axes.
struct OnnxValue {
  std::string name;
  int rank = 0;
  bool first = false;
  /// The axis of this value for an axis of the traced tensor.
  int axis(int of_tensor) const {
    if (!first || of_tensor == 0) return of_tensor;
    return of_tensor == rank - 1 ? 1 : of_tensor + 1;
  }
};

struct OnnxNode {
  std::string type;
  std::vector<std::string> inputs;   ///< "": an absent input
  std::vector<std::string> outputs;  ///< the last one is used
  std::vector<Protobuf> attributes;
  bool operator==(const OnnxNode&) const = default;
};
/// TensorProto.DataType of a tensor: every floating type is f32 in the graph.
int onnx_type(DType);
Protobuf onnx_attribute(std::string_view name, std::int64_t value);
Protobuf onnx_attribute(std::string_view name, float value);
Protobuf onnx_attribute(std::string_view name, const char* value);
Protobuf onnx_attribute(std::string_view name, std::span<const std::int64_t> values);

class OnnxGraph {
 public:
  /// input: the traced batch.
  OnnxGraph(const Parameters&, const std::vector<TracedOp>& trace, const Tensor& input);

  /// Adds the nodes of a traced op. twin: the same op in the trace with another number of samples. Throws Error if the
  /// op has no ONNX form.
  void add(const TracedOp&, const TracedOp& twin);
  /// Whether the other graph has the same nodes and constants after the given numbers of common ones.
  bool goes_on_as(const OnnxGraph& other, std::size_t nodes, std::size_t initializers) const;
  /// Finishes the graph; its output is the value of a traced tensor. Throws Error if no op made it.
  void finish(const Tensor& output);

  // For the ONNX forms of ops (framework/io/onnx/onnx_ops.cpp).
  /// The value of an op's input. Throws Error if its origin is unknown.
  OnnxValue value(const TracedOp& reader, std::size_t input);
  OnnxValue first(const OnnxValue&);  ///< the same value with channels first
  OnnxValue last(const OnnxValue&);
  /// Adds a node with this number of outputs, and returns the name of the last one.
  std::string node(std::string type, std::vector<std::string> inputs, std::vector<Protobuf> attributes = {},
                   int outputs = 1);
  /// Adds an initialiser: any tensor, an f32 scalar [], or i64 [values.size()].
  std::string constant(const Tensor& value);
  std::string constant(double value) { return constant(Tensor::scalar(value)); }
  std::string constant(std::span<const std::int64_t> values);
  Index batch() const { return input_.dim(0); }  ///< rows of the traced batch
  /// The current op in the trace with another number of samples: extents that differ depend on the batch.
  const TracedOp& twin() const { return *twin_; }
  std::string rows();  ///< i64 [1]: N
  /// Number of times that the trace reads a tensor.
  int uses(const Tensor&) const;
  /// The node that made a value, or null.
  OnnxNode* maker(const std::string& name);

  const std::vector<OnnxNode>& nodes() const { return nodes_; }
  const std::vector<StoredTensor>& initializers() const { return initializers_; }
  const Tensor& output() const { return output_; }  ///< as traced; axis 0 is the batch
  /// Whether the output has channels first: not for ids [N, T], since such models have logits [N, T, V] everywhere.
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

/// Adds the nodes of one op to the graph, and returns the value of its output.
using OnnxForm = std::function<OnnxValue(OnnxGraph&, const TracedOp&)>;
/// The ONNX form of an op; empty if there is none.
const OnnxForm& onnx_form(const std::string& op);

}  // namespace trireme
