// Sequential: a chain of layers (PyTorch's nn.Sequential), with skip connections that may cross pipeline stages.
#pragma once
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/layers/module.h"

namespace trireme {

/// What a Sequential's layers get in addition to the output of the layer before: tensors that Stash layers have stored
/// and AddStashed has not yet used, by name, and the fields of the Sequential's input.
struct Stashed : std::map<std::string, Tensor> {
  std::shared_ptr<const std::map<std::string, Tensor>> fields = {};  ///< null: none
};

struct ConvNd;
struct Linear;
struct BatchNorm;
struct MaxPool;
struct Dropout;

/// A skip connection between layers of one Sequential: Stash stores its input under a name and returns it. AddStashed
/// adds the stored tensor, after a shortcut layer if given, to its input. Unlike a block that contains
/// both ends, the layers between them may be cut into pipeline stages; the stored tensor is then sent along.
struct Stash {
  std::string name;                          ///< name of the stored tensor; free again after AddStashed
  Tensor operator()(const Tensor& x) const;  ///< throws Error: only a Sequential can run it
};
/// The end of a skip connection: x + shortcut(stored tensor of this name), or their concatenation (ConcatStashed());
/// see Stash.
struct AddStashed {
  /// Without a shortcut the stored tensor itself is added.
  explicit AddStashed(std::string name, Module shortcut = {}) : name(std::move(name)), shortcut(std::move(shortcut)) {}
  Tensor operator()(const Tensor& x) const;  ///< throws Error: only a Sequential can run it
  /// Visits "shortcut." and its tensors.
  void visit(const StateVisitor& v) {
    if (shortcut) v("shortcut", shortcut);
  }
  std::string name;     ///< name of an earlier Stash
  Module shortcut;      ///< applied to the stored tensor; empty: identity
  bool concat = false;  ///< concatenates x and the stored tensor along the channels (a U-Net's skip connections)
                        ///< instead of adding them
};
/// An AddStashed that concatenates: [N, ..., A] and a stored [N, ..., B] -> [N, ..., A + B].
inline AddStashed ConcatStashed(std::string name, Module shortcut = {}) {
  AddStashed join(std::move(name), std::move(shortcut));
  join.concat = true;
  return join;
}

/// A chain of layers with names "0", "1", ... (PyTorch's nn.Sequential) or given names. Adjacent layers that one kernel
/// can compute are fused (conv+relu, linear+relu, batch_norm+relu, conv+batch_norm+relu, conv+relu+max_pool+dropout);
/// names, values, gradients and dropout masks stay the same. Copies share the layers.
class Sequential {
 public:
  Sequential() = default;
  /// Sequential{Conv2d(1, 8, 3), relu, flatten}. With a single Sequential it is a copy of it.
  Sequential(std::initializer_list<Module> layers);  // NOLINT: implicit
  /// Appends a layer whose name is its index.
  Sequential& add(Module layer) { return add(std::to_string(parts_.size()), std::move(layer)); }
  /// Appends a layer; returns *this. Throws Error for an empty layer, a name that is taken, empty or contains a dot, a
  /// Stash whose name is in use, and an AddStashed without an earlier Stash.
  Sequential& add(std::string name, Module layer);
  /// Runs all layers in order. Throws Error if a stored tensor is not used.
  Tensor operator()(Tensor x) const;
  void visit(const StateVisitor& v);  ///< visits each layer under its name

  std::size_t size() const { return parts_.size(); }  ///< number of layers
  /// Layer i. Throws Error if it does not exist, as the other functions for layers, groups and names do.
  const Module& operator[](std::size_t i) const { return part(i).second; }
  /// Name of layer i.
  const std::string& name(std::size_t i) const { return part(i).first; }

  /// Number of groups: single layers, or a few fused ones. Running groups 0, 1, ... is running the whole. They are the
  /// parts of a plan.
  std::size_t groups() const { return groups_.size(); }
  /// Runs group g on x. A Stash in it adds to stashed, an AddStashed removes from it. Throws Error if that is
  /// impossible.
  Tensor run_group(std::size_t g, Tensor x, Stashed& stashed) const { return run(group_at(g), std::move(x), stashed); }
  /// Names of the tensors that are stored up to the end of group g and used after it: with the output, they cross a cut
  /// there.
  std::vector<std::string> stashed_behind(std::size_t g) const;
  /// Runs one layer without fusion.
  Tensor run_layer(std::size_t i, Tensor x, Stashed& stashed) const;
  /// Group g consists of layers [first, last).
  std::pair<std::size_t, std::size_t> group(std::size_t g) const {
    return {group_at(g).first, group_at(g).first + group_at(g).count};
  }

 private:
  /// Parts [first, first + count) that run as one call. The pointers refer to layers that parts_ keeps alive.
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
    check(i < parts_.size(), "sequential", "there is no layer {}, the number of layers is {}", i, parts_.size());
    return parts_[i];
  }
  const Group& group_at(std::size_t g) const {
    check(g < groups_.size(), "sequential", "there is no group {}, the number of groups is {}", g, groups_.size());
    return groups_[g];
  }
  Tensor run(const Group&, Tensor x, Stashed&) const;

  std::vector<std::pair<std::string, Module>> parts_;
  std::vector<Group> groups_;
};

}  // namespace trireme
