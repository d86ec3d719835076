// A thin layer over cuDNN's graph interface: tensors, operations, the engines that can run a graph, and the plan of one
// engine. Planning needs no GPU if the device is given as a description (Target).
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

/// Owns one cuDNN descriptor.
class Descriptor {
 public:
  Descriptor(cudnnBackendDescriptorType_t type, std::string_view op);
  ~Descriptor();
  Descriptor(Descriptor&& o) noexcept : raw_(std::exchange(o.raw_, nullptr)), op_(o.op_) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(raw_, o.raw_);
    std::swap(op_, o.op_);
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
  /// Throws Error if cuDNN rejects the attributes.
  void finish();
  /// As finish(), for attributes that cuDNN may not support: returns the status.
  cudnnStatus_t try_finish();

  Index get_index(cudnnBackendAttributeName_t, cudnnBackendAttributeType_t = CUDNN_TYPE_INT64) const;
  /// The values of a list attribute, at most `most` values.
  template <class T>
  std::vector<T> get_list(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t most) const {
    std::vector<T> values(most);
    values.resize(get(name, type, most, values.data()));
    return values;
  }
  std::string get_text(cudnnBackendAttributeName_t) const;
  /// Descriptors of the attribute's kind, one per value.
  std::vector<Descriptor> get_descriptors(cudnnBackendAttributeName_t, cudnnBackendDescriptorType_t,
                                          std::size_t most) const;

 private:
  std::size_t get(cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, std::size_t most, void* values) const;

  cudnnBackendDescriptor_t raw_ = nullptr;
  std::string_view op_;
};

/// The device to plan for: a device of this process by its handle, or any device by its description.
class Target {
 public:
  explicit Target(cudnnHandle_t handle) : handle_(handle) {}
  /// json: in the format of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
  Target(const std::string& json, std::string_view op);
  /// Sets the device in a descriptor, by the attribute that fits: handle or description.
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

/// Memory layout of a tensor; dims in cuDNN's order: N, C, spatial.
struct Layout {
  std::vector<Index> dims, strides;
  DType type;
  int alignment = 16;  ///< bytes
};

/// A graph of operations. A tensor is identified by the number that the call which created it returned. Its memory is
/// given by that number when a plan runs.
class Graph {
 public:
  using Tensor = int;
  enum class Pass { forward, backward_input, backward_weight };
  struct Window {  ///< one number per spatial axis
    std::vector<Index> pad_begin, pad_end, stride, dilation;
  };

  /// compute: the type of the operations' arithmetic.
  explicit Graph(std::string_view op, DType compute) : op_(op), compute_(compute) {}
  std::string_view op() const { return op_; }

  Tensor tensor(const Layout&);
  /// A value between operations, which need not be stored in memory.
  Tensor passing(const Layout&);
  /// x, w and y are read or written according to the pass. The output is beta times its old contents plus the result.
  void convolve(Pass, Tensor x, Tensor w, Tensor y, const Window&, double beta = 0);
  /// y = mode(x) or mode(x, b); axes of b with extent 1 are repeated.
  void pointwise(cudnnPointwiseMode_t mode, Tensor y, Tensor x, Tensor b = -1);
  /// dx = dy where x > 0.
  void relu_backward(Tensor dx, Tensor dy, Tensor x);
  /// Sums over all axes except C.
  void sums(Tensor x, Tensor sum, Tensor sum_of_squares);
  /// Reduces over the axes where y has extent 1.
  void reduce(cudnnReduceTensorOp_t mode, Tensor y, Tensor x);
  struct BatchNormGradient {
    Tensor x, dy, mean, inverse_deviation, scale;   ///< read
    Tensor dscale, dbias, of_dy, of_x, of_nothing;  ///< written; dx = of_dy * dy + of_x * x + of_nothing
  };
  void batch_norm_backward(const BatchNormGradient&);

  /// Finishes the graph: no operations may be added after this.
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

/// The engine that runs a graph, with its settings.
struct Engine {
  Index number = 0;
  std::vector<std::pair<Index, Index>> knobs;  ///< kind, value
  /// Whether cuDNN compiles the engine when a plan is made, which takes a second or more.
  bool compiled = false;
  bool operator==(const Engine&) const = default;
};

struct EngineRules {
  bool deterministic = true;  ///< only engines that give the same bits every time
  /// Only engines that multiply the operands exactly: no rounding of f32 as in tensor cores, and no transforms that
  /// lose digits.
  bool whole = true;
  /// The graph has sums over all positions. Engines that cuDNN compiles add to such sums in the order in which their
  /// blocks finish. So they are not repeatable, although cuDNN's notes do not say so.
  bool sums = false;
  std::size_t alike = 3;               ///< maximum number of settings per engine
  Index workspace = Index{256} << 20;  ///< maximum workspace in bytes
};

/// A graph that is ready to run on one engine. The graph must outlive the plan.
class Plan {
 public:
  Plan(const Graph&, const Target&, const Engine&);
  /// From the json() of a plan for an equal graph, which need not be finished. The JSON contains what cuDNN compiled.
  Plan(const Graph&, const Target&, const std::string& json);
  std::string json() const;
  Index workspace() const { return workspace_; }
  /// memory[t]: of tensor t of the graph; ignored for passing tensors.
  cudnnStatus_t run(cudnnHandle_t, std::span<void* const> memory, void* workspace) const;

 private:
  std::string_view op_;
  std::vector<Index> stored_;  // numbers of the tensors in memory
  Descriptor plan_;
  Index workspace_ = 0;
};

/// Engines for the graph, in the order of cuDNN's heuristics, followed by its fallbacks. If empty, `why` has cuDNN's
/// reason.
std::vector<Engine> engines(const Graph&, const Target&, const EngineRules&, std::string& why);

}  // namespace trireme::gpu
