// Layer: anything that maps a tensor to a tensor: relu, a lambda, a struct. Module holds any layer by value (PyTorch's
// nn.Module; copies share the weights). A layer names its tensors and parts in one member function:
//   void visit(const StateVisitor& v) { v("conv1", conv1), v("weight", weight, StateKind::weight, Init::normal(0.02));
// }
#pragma once
#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "framework/layers/init.h"
#include "framework/tensor/shard_spec.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// A type that a Module can hold: a function or object that takes a Tensor and returns one.
template <class F>
concept Layer = requires(F f, const Tensor& x) {
  { f(x) } -> std::convertible_to<Tensor>;
};

/// The use of a named tensor of a layer.
enum class StateKind : std::uint8_t {
  weight,    ///< trained, with weight decay
  no_decay,  ///< trained, without weight decay in the usual recipes: biases, scales of norms
  buffer,    ///< not trained: running statistics
};
/// The memory layout of a tensor compared with PyTorch's files. filter: O,spatial...,I here, O,I,spatial... in files.
/// transposed: [in, out] in files (Hugging Face's Conv1D, GPT-2). listed: the experts of a
/// layer, one for each index of axis 0. The name has a *; files have a tensor for each index, with the index in its
/// place.
enum class FileLayout : std::uint8_t { same, filter, transposed, listed };

/// A tensor of a model with its full name (an entry of PyTorch's state_dict).
struct NamedState {
  std::string name;                      ///< defined; owned by the layer, and valid as long as it
  Tensor* tensor;                        ///< trained with or without weight decay, or a buffer
  StateKind kind;                        ///< trained with or without weight decay, or a buffer
  FileLayout layout = FileLayout::same;  ///< filter, transposed: axes are permuted in files
  Init init = {};                        ///< distribution from which initialize() draws it
  /// How ranks may share each dimension: in whole heads, or in each part of a fused weight. Missing or empty: evenly.
  /// Several ranges are for the first dimension only.
  std::vector<Shares> shares = {};
};

/// Visits all named tensors of a model. It is passed to visit() members, and also gives each random layer (dropout) its
/// key.
class StateVisitor {
 public:
  /// leaf: called for each defined tensor. key: called for each random layer with its prefix ("3.") and the key to set.
  /// prefix: beginning of all names.
  StateVisitor(std::function<void(const NamedState&)> leaf,
               std::function<void(const std::string&, std::uint64_t&)> key = {}, std::string prefix = "");
  /// A visitor that skips layers that an on() has placed (framework/layers/on.h).
  static StateVisitor unplaced(std::function<void(const NamedState&)> leaf);
  bool placed() const { return placed_; }  ///< whether it visits placed layers too
  /// A visitor that copies a model (Module::clone()): it replaces each Module that it visits. A layer that keeps
  /// pointers into its parts must set them again after the visit.
  bool copies() const { return copies_; }

  /// Visits a tensor of this layer; initialize() draws it from init. Undefined tensors (no bias) are skipped. shares:
  /// as in NamedState.
  void operator()(const std::string& name, Tensor& tensor, StateKind kind, Init init = {},
                  FileLayout layout = FileLayout::same, std::vector<Shares> shares = {}) const;
  /// Visits a part that has a visit() member; parts without state are skipped.
  template <class Part>
  void operator()(const std::string& name, Part& part) const {
    if constexpr (requires { part.visit(*this); }) { part.visit(within(name)); }
  }
  /// Visits several parts: v("conv1", conv1, "bn1", bn1).
  template <class Part, class... More>
  void operator()(const std::string& name, Part& part, const char* next, More&... more) const {
    (*this)(name, part);
    (*this)(next, more...);
  }
  /// Sets the key of a random layer. It is derived from the layer's name, so that masks do not depend on how the model
  /// is cut into stages.
  void random(std::uint64_t& key) const {
    if (key_) key_(prefix_, key);
  }

 private:
  StateVisitor within(const std::string& part) const;  ///< the visitor for the part of this name
  std::function<void(const NamedState&)> leaf_;
  std::function<void(const std::string&, std::uint64_t&)> key_;
  friend class Module;
  std::string prefix_;
  bool placed_ = true, copies_ = false;
};

/// Any layer, by value. Copies share the layer.
class Module {
 public:
  Module() = default;  ///< empty: calling or visiting it throws Error
  /// Holds a layer, moved or copied. Throws Error for a null function.
  template <Layer F>
  requires(!std::same_as<std::remove_cvref_t<F>, Module>) Module(F&& layer)
      : self_(std::make_shared<Model<std::decay_t<F>>>(std::forward<F>(layer))) {}  // NOLINT: implicit
  /// Holds an op. Selects the overload on tensors for a name such as tanh, which the C library has too.
  Module(Tensor (*op)(const Tensor&));  // NOLINT

  explicit operator bool() const { return self_ != nullptr; }  ///< whether there is a layer
  /// Calls the layer with x, moved: a layer that takes its input by value may overwrite it if nothing else holds it.
  /// Throws Error if there is no layer.
  Tensor operator()(Tensor x) const { return inner().forward(std::move(x)); }
  /// Visits the layer, if it has state. Throws Error if there is no layer.
  void visit(const StateVisitor& v) {
    if (v.copies()) self_ = inner().copy();
    inner().visit(v);
  }
  /// A deep copy with separate weights and buffers (copy.deepcopy). Tensors that layers share are shared in the copy
  /// too. Tensors that visit() does not name, such as a lambda's captures, stay shared with the original. Throws Error
  /// for a layer that cannot be copied.
  Module clone() const;
  /// Type of the layer inside. Throws Error if there is none.
  const std::type_info& type() const { return inner().type(); }
  /// The layer inside if it is an F, else null.
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
    virtual std::shared_ptr<Concept> copy() const = 0;
  };
  template <class F>
  struct Model final : Concept {
    explicit Model(F f) : layer(std::move(f)) {
      if constexpr (requires { layer == nullptr; })
        check(!(layer == nullptr), "module", "the function is null, expected one that maps a Tensor to a Tensor");
    }
    Tensor forward(Tensor x) override { return layer(std::move(x)); }
    void visit(const StateVisitor& v) override {
      if constexpr (requires { layer.visit(v); }) layer.visit(v);
    }
    const std::type_info& type() const override { return typeid(F); }
    std::shared_ptr<Concept> copy() const override {
      if constexpr (std::copy_constructible<F>)
        return std::make_shared<Model>(layer);
      else
        fail("module", "a layer of type {} cannot be copied", typeid(F).name());
    }
    F layer;
  };
  Concept& inner() const {
    if (self_ == nullptr) [[unlikely]]
      fail("module", "it is empty: give it a layer before it is called or visited");
    return *self_;
  }
  std::shared_ptr<Concept> self_;
};

/// Draws every parameter and buffer of a model from its Init, keyed by seed and full name. So a tensor's values do not
/// depend on other layers, on the rank, or on the element type (f64 has the f32 numbers). A tensor that two layers
/// share is drawn under its first name. Without initialize(), the n-th tensor that a thread makes has the n-th draw.
void initialize(Module& model, std::uint64_t seed);

/// Every weight, bias and buffer of a model by its full name, in visit order (torch.nn.Module's named_parameters() and
/// named_buffers()). A tensor that two layers share appears under both names.
std::vector<NamedState> named_tensors(Module& model);
/// Excludes the tensors whose full names match from training: a ParameterStore (or Step) made from the model later
/// treats them as buffers. pattern: a name in which * matches any characters ("layer1.*", "*.bias"). Returns the number
/// of matches. Throws Error if none matches, and for a tensor that is in a ParameterStore.
Index freeze(Module& model, std::string_view pattern = "*");
Index unfreeze(Module& model, std::string_view pattern = "*");  ///< includes them in training again
/// Whether the whole name matches; * matches any number of characters, including none.
bool matches(std::string_view pattern, std::string_view name);

/// A key from a full name (FNV-1a): for a tensor's initial values and a dropout layer's masks.
std::uint64_t key_of_name(std::string_view name);

}  // namespace trireme
