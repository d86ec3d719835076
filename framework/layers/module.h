// Layer: anything that maps a tensor to a tensor: relu, a lambda, a struct. Module holds any layer by value (PyTorch's
// nn.Module; copies share the weights). A layer names its tensors and parts by one member function:
//   void visit(const StateVisitor& v) { v("conv1", conv1), v("weight", weight, StateKind::weight, Init::normal(0.02));
//   }
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
#include "framework/tensor/tensor.h"

namespace trireme {

/// What a Module may hold: a function or object that takes a Tensor and returns one.
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
/// O,spatial...,I here and O,I,spatial... in files; transposed: a matrix that files have as [in, out] (Hugging Face's
/// Conv1D, GPT-2).
enum class FileLayout : std::uint8_t { same, filter, transposed };

/// A tensor of a model under its full name (an entry of PyTorch's state_dict).
struct NamedState {
  std::string name;                      ///< full: "layer1.0.conv1.weight"
  Tensor* tensor;                        ///< within the layer, whose life it shares; defined
  StateKind use;                         ///< trained with or without weight decay, or a buffer
  FileLayout layout = FileLayout::same;  ///< filter, transposed: axes are reordered in files
  Init init = {};                        ///< what initialize() draws it from
};

/// Walks a model's named state. Passed to visit() members; also hands each random layer (dropout) its key.
class StateVisitor {
 public:
  /// leaf is called for each defined tensor; key for each random layer, with its prefix ("3.") and the key to set;
  /// prefix stands before all names.
  StateVisitor(std::function<void(const NamedState&)> leaf,
               std::function<void(const std::string&, std::uint64_t&)> key = {}, std::string prefix = "");
  /// A walk that leaves out what an on() has placed (framework/layers/on.h).
  static StateVisitor unplaced(std::function<void(const NamedState&)> leaf);
  bool placed() const { return placed_; }  ///< whether it goes there, too
  /// A walk that gives a copy of a model layers of its own (Module::clone()): a Module is another one when it is
  /// visited, and one that keeps pointers into its parts takes them anew behind it.
  bool copies() const { return copies_; }

  /// A tensor of this layer; initialize() draws it from init. Undefined tensors (no bias) are skipped.
  void operator()(const std::string& name, Tensor& tensor, StateKind use, Init init = {},
                  FileLayout layout = FileLayout::same) const;
  /// A part with a visit() member; parts without state are passed over.
  template <class Part>
  void operator()(const std::string& name, Part& part) const {
    if constexpr (requires { part.visit(*this); }) { part.visit(within(name)); }
  }
  /// Several parts: v("conv1", conv1, "bn1", bn1).
  template <class Part, class... More>
  void operator()(const std::string& name, Part& part, const char* next, More&... more) const {
    (*this)(name, part);
    (*this)(next, more...);
  }
  /// The key of a random layer, derived from its name, so that masks do not depend on how the model is cut
  /// into stages.
  void random(std::uint64_t& key) const {
    if (key_) key_(prefix_, key);
  }

 private:
  StateVisitor within(const std::string& part) const;  ///< names below that part
  std::function<void(const NamedState&)> leaf_;
  std::function<void(const std::string&, std::uint64_t&)> key_;
  friend class Module;
  std::string prefix_;
  bool placed_ = true, copies_ = false;
};

/// Any layer, by value. Copies share it.
class Module {
 public:
  Module() = default;  ///< empty: a call or a visit throws Error
  /// A layer, moved or copied. Throws Error for a null function.
  template <Layer F>
  requires(!std::same_as<std::remove_cvref_t<F>, Module>) Module(F&& layer)
      : self_(std::make_shared<Model<std::decay_t<F>>>(std::forward<F>(layer))) {}  // NOLINT: implicit
  /// An op. Of an overloaded name (tanh, which the C library has too) the one on tensors is taken.
  Module(Tensor (*op)(const Tensor&));  // NOLINT

  explicit operator bool() const { return self_ != nullptr; }  ///< whether there is a layer
  /// x is handed on: a layer that takes its input by value may write over what nobody else holds. Throws Error when
  /// there is no layer.
  Tensor operator()(Tensor x) const { return inner().forward(std::move(x)); }
  /// Visits the layer, if it has state. Throws Error when there is no layer.
  void visit(const StateVisitor& v) {
    if (v.copies()) self_ = inner().copy();
    inner().visit(v);
  }
  /// The same layers with weights and buffers of their own (copy.deepcopy): tensors that layers share are shared in the
  /// copy, too. A layer keeps what its visit() does not name: a lambda's captured weights stay shared. Throws Error for
  /// a layer that cannot be copied.
  Module clone() const;
  /// Of the layer inside. Throws Error when there is none.
  const std::type_info& type() const { return inner().type(); }
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

/// Draws every parameter and buffer of a model from its Init, keyed by seed and full name: so a tensor's values do not
/// depend on other layers, on the rank, or on the element type (f64 holds the f32 numbers). A tensor that two layers
/// share is drawn under its first name. Without initialize() the n-th tensor that a thread makes has the n-th draw.
void initialize(Module& model, std::uint64_t seed);

/// Every weight, bias and buffer of a model by its full name, in visit order (named_parameters() and named_buffers() of
/// torch.nn.Module); one that two layers share comes under both names.
std::vector<NamedState> named_tensors(Module& model);
/// From now on the tensors whose full names match are not trained: Parameters (and a Step) made of the model take them
/// for buffers. pattern: a name in which * stands for any characters ("layer1.*", "*.bias"). Returns how many matched.
/// Throws Error for none, and for one that lives in Parameters.
Index freeze(Module& model, std::string_view pattern = "*");
Index unfreeze(Module& model, std::string_view pattern = "*");  ///< trained again
/// Whether the whole name matches; * stands for any characters, none among them.
bool matches(std::string_view pattern, std::string_view name);

/// The key that a full name stands for (FNV-1a): of a tensor's initial values, of a dropout layer's masks.
std::uint64_t key_of_name(std::string_view name);

}  // namespace trireme
