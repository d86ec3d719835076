// Sequential: layers in a row (PyTorch's nn.Sequential), with skip connections that may cross a cut into stages.
#pragma once
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/layers/module.h"

namespace trireme {

/// What Stash layers have set aside and AddStashed has not yet taken, by name.
using Stashed = std::map<std::string, Tensor>;

struct ConvNd;
struct Linear;
struct BatchNorm;
struct MaxPool;
struct Dropout;

/// A skip connection between layers of one Sequential: Stash sets its input aside under a name and hands it on,
/// AddStashed adds it, through the shortcut if there is one, to its input. Unlike a block that holds both ends, the
/// layers between may be cut apart into pipeline stages; the stashed tensor then travels along.
struct Stash {
  std::string name;                          ///< of the stashed tensor; free again once it has been added
  Tensor operator()(const Tensor& x) const;  ///< throws Error: a Sequential serves it
};
/// The end of a skip connection: x + shortcut(stashed tensor of this name), or (ConcatStashed()) both behind each
/// other; see Stash.
struct AddStashed {
  /// Without a shortcut the stashed tensor itself is added.
  explicit AddStashed(std::string name, Module shortcut = {}) : name(std::move(name)), shortcut(std::move(shortcut)) {}
  Tensor operator()(const Tensor& x) const;  ///< throws Error: a Sequential serves it
  /// Names "shortcut." and its tensors.
  void visit(const StateVisitor& v) {
    if (shortcut) v("shortcut", shortcut);
  }
  std::string name;     ///< of a Stash before it
  Module shortcut;      ///< applied to the stashed tensor; empty: identity
  bool concat = false;  ///< {x, stashed} along the channels, instead of their sum (a U-Net's skip connections)
};
/// AddStashed that concatenates: [N, ..., A] and a stashed [N, ..., B] -> [N, ..., A + B].
inline AddStashed ConcatStashed(std::string name, Module shortcut = {}) {
  AddStashed join(std::move(name), std::move(shortcut));
  join.concat = true;
  return join;
}

/// Layers in a row, named "0", "1", ... (PyTorch's nn.Sequential) or by the caller. Neighbours that one
/// kernel serves are fused when it runs (conv+relu, linear+relu, batch_norm+relu, conv+batch_norm+relu,
/// conv+relu+max_pool+dropout): names, values, gradients and dropout masks stay the same. Copies share the
/// layers.
class Sequential {
 public:
  Sequential() = default;
  /// Sequential{Conv2d(1, 8, 3), relu, flatten}. Of a single Sequential it is a copy.
  Sequential(std::initializer_list<Module> layers);  // NOLINT: implicit
  /// Appends a layer named by its index.
  Sequential& add(Module layer) { return add(std::to_string(parts_.size()), std::move(layer)); }
  /// Appends a layer; returns *this. Throws Error for an empty layer, a name that is taken, empty or has a dot, a Stash
  /// of a name that is stashed already, and an AddStashed without a Stash before it.
  Sequential& add(std::string name, Module layer);
  /// Runs all layers in order. Throws Error when a stashed tensor is not added.
  Tensor operator()(Tensor x) const;
  void visit(const StateVisitor& v);  ///< each layer under its name

  std::size_t size() const { return parts_.size(); }  ///< number of layers
  /// Throws Error when there is no layer i; so do the others for layers, groups and names that are not there.
  const Module& operator[](std::size_t i) const { return part(i).second; }
  /// Name of layer i.
  const std::string& name(std::size_t i) const { return part(i).first; }

  /// Running the whole is running groups 0, 1, ...: one layer or a fused few each. A plan's parts are these
  /// groups.
  std::size_t groups() const { return groups_.size(); }
  /// Runs group g on x. A Stash in it puts into stashed, an AddStashed takes out; Error where that cannot be.
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
