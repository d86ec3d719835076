// Layer: anything that maps a tensor to a tensor: relu, a lambda, a struct. Module holds any layer by value
// (copies share the weights); Sequential chains them. State is named by one member function:
//   void visit(const StateVisitor& v) { v("conv1", conv1), v("conv2", conv2); }
#pragma once
#include <concepts>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

template <class F>
concept Layer = requires(F f, const Tensor& x) {
  { f(x) } -> std::convertible_to<Tensor>;
};

/// What a named tensor of a layer is.
enum class StateKind : std::uint8_t {
  weight,    ///< trained, with weight decay
  no_decay,  ///< trained, exempt from weight decay in the usual recipes: biases, scales of norms
  buffer,    ///< not trained: running statistics
};
/// How a tensor is laid out in memory, so that the file boundary can write PyTorch's form. A filter is
/// O,spatial...,I here and O,I,spatial... in files.
enum class FileLayout : std::uint8_t { same, filter };

/// What initialize() draws a weight from (framework/layers/init.h); a bias beside one that is not `pytorch_default`
/// becomes 0.
enum class Init : std::uint8_t {
  pytorch_default,  ///< kaiming_uniform(a = sqrt(5)), PyTorch's default of its layers
  kaiming_normal,   ///< normal, std sqrt(2 / fan_out) (He et al., arXiv 1502.01852): torchvision's ResNet and VGG
  small_normal,     ///< normal, std 0.01: Linear in torchvision's VGG
  zeros,
};

struct NamedState {
  std::string name;  ///< full: "layer1.0.conv1.weight"
  Tensor* tensor;
  StateKind use;
  FileLayout layout = FileLayout::same;
  Init start = Init::pytorch_default;
};

/// Walks a model's named state. Passed to visit() members; also hands each random layer (dropout) its key.
class StateVisitor {
 public:
  StateVisitor(std::function<void(const NamedState&)> leaf,
               std::function<void(const std::string&, std::uint64_t&)> key = {}, std::string prefix = "")
      : leaf_(std::move(leaf)), key_(std::move(key)), prefix_(std::move(prefix)) {}
  /// A walk that leaves out what an on() has placed (framework/layers/on.h).
  static StateVisitor unplaced(std::function<void(const NamedState&)> leaf) {
    StateVisitor v(std::move(leaf));
    v.placed_ = false;
    return v;
  }
  bool placed() const { return placed_; }  ///< whether it goes there, too

  /// A tensor of this layer. Undefined tensors (no bias) are skipped.
  void operator()(const std::string& name, Tensor& tensor, StateKind use, FileLayout layout = FileLayout::same,
                  Init start = Init::pytorch_default) const {
    if (tensor) leaf_({prefix_ + name, &tensor, use, layout, start});
  }
  /// A part with a visit() member; parts without state are passed over.
  template <class Part>
  void operator()(const std::string& name, Part& part) const {
    if constexpr (requires { part.visit(*this); }) {
      StateVisitor within = *this;
      within.prefix_ += name + ".";
      part.visit(within);
    }
  }
  /// The key of a random layer, derived from its name, so that masks do not depend on how the model is cut
  /// into stages.
  void random(std::uint64_t& key) const {
    if (key_) key_(prefix_, key);
  }

 private:
  std::function<void(const NamedState&)> leaf_;
  std::function<void(const std::string&, std::uint64_t&)> key_;
  std::string prefix_;
  bool placed_ = true;
};

/// Any layer, by value. Copies share it.
class Module {
 public:
  Module() = default;
  template <Layer F>
  requires(!std::same_as<std::remove_cvref_t<F>, Module>) Module(F&& layer)
      : self_(std::make_shared<Model<std::decay_t<F>>>(std::forward<F>(layer))) {}  // NOLINT: implicit
  /// An op. Of an overloaded name (tanh, which the C library has too) the one on tensors is taken.
  Module(Tensor (*op)(const Tensor&)) : self_(std::make_shared<Model<Tensor (*)(const Tensor&)>>(op)) {}  // NOLINT

  explicit operator bool() const { return self_ != nullptr; }
  /// x is handed on: a layer that takes its input by value may write over what nobody else holds. Throws Error when
  /// there is no layer.
  Tensor operator()(Tensor x) const { return inner().forward(std::move(x)); }
  void visit(const StateVisitor& v) { inner().visit(v); }
  const std::type_info& type() const { return inner().type(); }  ///< of the layer inside
  /// The layer inside, if it is an F; else null.
  template <class F>
  F* as() const {
    auto* m = dynamic_cast<Model<F>*>(self_.get());
    return m ? &m->layer : nullptr;
  }

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual Tensor forward(Tensor x) = 0;
    virtual void visit(const StateVisitor& v) = 0;
    virtual const std::type_info& type() const = 0;
  };
  template <class F>
  struct Model final : Concept {
    explicit Model(F f) : layer(std::move(f)) {}
    Tensor forward(Tensor x) override { return layer(std::move(x)); }
    void visit(const StateVisitor& v) override {
      if constexpr (requires { layer.visit(v); }) layer.visit(v);
    }
    const std::type_info& type() const override { return typeid(F); }
    F layer;
  };
  Concept& inner() const {
    if (self_ == nullptr) [[unlikely]]
      fail("module", "it is empty: give it a layer before it is called or visited");
    return *self_;
  }
  std::shared_ptr<Concept> self_;
};

/// What Stash layers have set aside and AddStashed has not yet taken, by name.
using Stashed = std::map<std::string, Tensor>;

struct ConvNd;  // framework/layers/layers.h
struct Linear;
struct BatchNorm;
struct MaxPool;
struct Dropout;
struct Stash;
struct AddStashed;

/// Layers in a row, named "0", "1", ... (PyTorch's nn.Sequential) or by the caller. Neighbours that one
/// kernel serves are fused when it runs (conv+relu, linear+relu, batch_norm+relu, conv+batch_norm+relu,
/// conv+relu+max_pool+dropout): names, values, gradients and dropout masks stay the same. Copies share the
/// layers.
class Sequential {
 public:
  Sequential() = default;
  /// Sequential{Conv2d(1, 8, 3), relu, flatten}. Of a single Sequential it is a copy.
  Sequential(std::initializer_list<Module> layers) {  // NOLINT: implicit
    if (const Sequential* only = layers.size() == 1 ? layers.begin()->as<Sequential>() : nullptr)
      *this = *only;
    else
      for (const Module& layer : layers) add(layer);
  }
  Sequential& add(Module layer) { return add(std::to_string(parts_.size()), std::move(layer)); }
  Sequential& add(std::string name, Module layer);
  Tensor operator()(Tensor x) const;
  void visit(const StateVisitor& v);

  std::size_t size() const { return parts_.size(); }
  /// Throws Error when there is no layer i; so do the others for layers, groups and names that are not there.
  const Module& operator[](std::size_t i) const { return part(i).second; }
  const std::string& name(std::size_t i) const { return part(i).first; }

  /// Running the whole is running groups 0, 1, ...: one layer or a fused few each. A plan's parts are these
  /// groups.
  std::size_t groups() const { return groups_.size(); }
  Tensor run_group(std::size_t g, Tensor x, Stashed& stashed) const { return run(group_at(g), std::move(x), stashed); }
  /// What is stashed before the end of group g and taken behind it: tensors that cross a cut there, beside the output.
  std::vector<std::string> stashed_behind(std::size_t g) const;
  /// One layer by itself, without fusion.
  Tensor run_layer(std::size_t i, Tensor x, Stashed& stashed) const;
  /// The layers [first, last) of group g.
  std::pair<std::size_t, std::size_t> group(std::size_t g) const {
    return {group_at(g).first, group_at(g).first + group_at(g).count};
  }

 private:
  /// Parts [first, first + count) that run as one call. The pointers reach into layers that parts_ keeps
  /// alive.
  struct Group {
    std::size_t first = 0, count = 1;
    ConvNd* conv = nullptr;
    Linear* linear = nullptr;
    BatchNorm* norm = nullptr;
    bool relu = false;
    MaxPool* pool = nullptr;
    Dropout* dropout = nullptr;
    const Stash* stash = nullptr;
    const AddStashed* add = nullptr;
  };
  void fuse();
  const std::pair<std::string, Module>& part(std::size_t i) const {
    check(i < parts_.size(), "sequential", "layer {} of {} was asked for", i, parts_.size());
    return parts_[i];
  }
  const Group& group_at(std::size_t g) const {
    check(g < groups_.size(), "sequential", "group {} of {} was asked for", g, groups_.size());
    return groups_[g];
  }
  Tensor run(const Group&, Tensor x, Stashed&) const;

  std::vector<std::pair<std::string, Module>> parts_;
  std::vector<Group> groups_;
};

}  // namespace trireme
