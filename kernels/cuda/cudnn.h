// A thin layer over cuDNN's graph interface: tensors, operations on them, the engines that can run a graph of
// operations, and the plan of one engine. Planning needs no GPU when the device is described instead (Target).
#pragma once
#include <cudnn.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/view.h"

namespace trireme::gpu {

/// Throws Error("op: cuDNN says: ...") unless status is success.
void ok(cudnnStatus_t status, std::string_view op);

/// Owner of one of cuDNN's descriptors.
class Descriptor {
 public:
  Descriptor(cudnnBackendDescriptorType_t type, std::string_view op);
  ~Descriptor();
  Descriptor(Descriptor&& o) noexcept : raw_(std::exchange(o.raw_, nullptr)), op_(o.op_) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(raw_, o.raw_), std::swap(op_, o.op_);
    return *this;
  }
  cudnnBackendDescriptor_t raw() const { return raw_; }

  void set(cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, Index count, const void* values);
  void set(cudnnBackendAttributeName_t name, Index v) { set(name, CUDNN_TYPE_INT64, 1, &v); }
  void set(cudnnBackendAttributeName_t name, std::span<const Index> v) {
    set(name, CUDNN_TYPE_INT64, std::ssize(v), v.data());
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& d) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d.raw_);
  }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t v) { set(name, CUDNN_TYPE_DATA_TYPE, 1, &v); }
  /// Throws when cuDNN finds what was set at fault.
  void finish();
  /// For what may well not be supported.
  cudnnStatus_t try_finish();

  Index get_index(cudnnBackendAttributeName_t, cudnnBackendAttributeType_t = CUDNN_TYPE_INT64) const;
  /// The values of a list, at most `most` of them.
  template <class T>
  std::vector<T> get_list(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t most) const {
    std::vector<T> values(most);
    values.resize(get(name, type, most, values.data()));
    return values;
  }
  std::string get_text(cudnnBackendAttributeName_t) const;
  /// Fills descriptors of the kind that the attribute holds, as many as there are.
  std::vector<Descriptor> get_descriptors(cudnnBackendAttributeName_t, cudnnBackendDescriptorType_t,
                                          std::size_t most) const;

 private:
  std::size_t get(cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, std::size_t most, void* values) const;

  cudnnBackendDescriptor_t raw_ = nullptr;
  std::string_view op_;
};

/// What is planned for: a device of this process by its handle, or any device by its description.
class Target {
 public:
  explicit Target(cudnnHandle_t handle) : handle_(handle) {}
  /// json: as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION takes it.
  Target(const std::string& json, std::string_view op);
  /// Names the device in a descriptor, by that of its attributes which fits.
  void put_handle(Descriptor& d, cudnnBackendAttributeName_t name) const {
    if (handle_ != nullptr) d.set(name, CUDNN_TYPE_HANDLE, 1, &handle_);
  }
  void put_description(Descriptor& d, cudnnBackendAttributeName_t name) const {
    if (handle_ == nullptr) d.set(name, described_.front());
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::vector<Descriptor> described_;  // one or none
};

/// How a tensor lies in memory; dims in cuDNN's order: N, C, spatial.
struct Layout {
  std::vector<Index> dims, strides;
  DType type;
  int alignment = 16;  ///< bytes
};

/// One graph of operations. A tensor is named by the number that the call which made it returned; its memory is given
/// by that number when a plan runs.
class Graph {
 public:
  using Tensor = int;
  enum class Pass { forward, backward_input, backward_weight };
  struct Window {  ///< one number per spatial axis
    std::vector<Index> pad_begin, pad_end, stride, dilation;
  };

  /// compute: the type that operations compute in.
  explicit Graph(std::string_view op, DType compute) : op_(op), compute_(compute) {}
  std::string_view op() const { return op_; }

  Tensor tensor(const Layout&);
  /// A value between operations, which need not be stored.
  Tensor passing(const Layout&);
  /// x (forward: read; backward_input: written), w, y likewise; what is written: beta times itself plus the result.
  void convolve(Pass, Tensor x, Tensor w, Tensor y, const Window&, double beta = 0);
  /// y = mode(x) or mode(x, b); axes of b with extent 1 are repeated.
  void pointwise(cudnnPointwiseMode_t mode, Tensor y, Tensor x, Tensor b = -1);
  /// dx = dy where x > 0.
  void relu_backward(Tensor dx, Tensor dy, Tensor x);
  /// Over all axes but C.
  void sums(Tensor x, Tensor sum, Tensor sum_of_squares);
  /// Over the axes where y has extent 1.
  void reduce(cudnnReduceTensorOp_t mode, Tensor y, Tensor x);
  struct BatchNormGradient {
    Tensor x, dy, mean, inverse_deviation, scale;   ///< read
    Tensor dscale, dbias, of_dy, of_x, of_nothing;  ///< written; dx = of_dy * dy + of_x * x + of_nothing
  };
  void batch_norm_backward(const BatchNormGradient&);

  /// Ends the graph: no operations after that.
  void finish(const Target&);
  const Descriptor& descriptor() const { return graph_.front(); }
  const std::vector<Index>& stored() const { return stored_; }

 private:
  Tensor add(const Layout&, bool passing);
  const Descriptor& at(Tensor t) const { return tensors_[static_cast<std::size_t>(t)]; }
  Descriptor& pointwise_setting(cudnnPointwiseMode_t);
  void keep(Descriptor&& operation);

  std::string_view op_;
  DType compute_;
  std::vector<Descriptor> tensors_, settings_, operations_, graph_;  // graph_: one, once finished
  std::vector<Index> stored_;
};

/// Which engine runs a graph, and how it is set.
struct Engine {
  Index number = 0;
  std::vector<std::pair<Index, Index>> knobs;  ///< kind, value
  /// cuDNN compiles it when a plan is made, which takes it a second or more.
  bool compiled = false;
  bool operator==(const Engine&) const = default;
};

struct EngineRules {
  bool deterministic = true;  ///< only those that give the same bits every time
  /// Only those whose products are those of the operands' own numbers: no rounding of f32 as tensor cores do, and no
  /// transforms that cost digits.
  bool whole = true;
  /// The graph has sums over all places. Engines that cuDNN compiles keep nothing for them beside the result, so their
  /// blocks must add to it as they end: not repeatable, though no note says so.
  bool sums = false;
  std::size_t alike = 3;  ///< at most so many settings of one engine
  Index workspace = Index{256} << 20;
};

/// A graph ready to run on one engine. The graph must outlive it.
class Plan {
 public:
  Plan(const Graph&, const Target&, const Engine&);
  /// From what json() gave of a plan for an equal graph, which need not be finished; what cuDNN compiled is in there.
  Plan(const Graph&, const Target&, const std::string& json);
  std::string json() const;
  Index workspace() const { return workspace_; }
  /// memory[t]: of tensor t of the graph; ignored for passing ones.
  cudnnStatus_t run(cudnnHandle_t, std::span<void* const> memory, void* workspace) const;

 private:
  std::string_view op_;
  std::vector<Index> stored_;  // numbers of the tensors that lie in memory
  Descriptor plan_;
  Index workspace_ = 0;
};

/// The engines that cuDNN thinks best for the graph, its favourite first, then those it falls back to. Empty when there
/// are none; why then says what cuDNN said.
std::vector<Engine> engines(const Graph&, const Target&, const EngineRules&, std::string& why);

}  // namespace trireme::gpu
