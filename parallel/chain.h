// Chain: a model as a row of parts that run one after another, which is what a plan knows of it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "framework/layer.h"
#include "parallel/plan.h"

namespace trireme {

/// The groups of the model's Sequential (fused neighbours are one), those of Sequentials inside it in their place
/// unless they stash something; or the model as the only part.
class Chain {
 public:
  explicit Chain(Module model);
  int size() const { return static_cast<int>(parts_.size()); }
  /// stashed: what Stash layers before this part have set aside; taken from and added to.
  Tensor run(int part, Tensor x, Stashed& stashed) const;
  /// Stashed tensors that cross a cut behind the part, beside its output.
  std::vector<std::string> stashed_behind(int part) const;
  /// The weights, biases and buffers that a part holds: their identity and name.
  std::vector<std::pair<const void*, std::string>> tensors(int part) const;
  /// Names are those of the layers ("0-2", "layer1.0"); slices follow one another and cover the block, and so do those
  /// of buffers.
  std::vector<PartInfo> parts(const Parameters&) const;

 private:
  struct Part {
    Sequential* row = nullptr;  // inside model_, or null: the model itself
    std::size_t group = 0;
    std::string prefix;          // of the row's names
    std::size_t root_group = 0;  // the group of the outermost row that holds it
  };
  void add(Sequential& row, const std::string& prefix, bool outermost);
  const Part& at(int part) const { return parts_[static_cast<std::size_t>(part)]; }
  std::string name(int part) const;
  bool holds(int part, const std::string& tensor) const;

  Module model_;
  std::vector<Part> parts_;
};

}  // namespace trireme
