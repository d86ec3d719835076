// Chain: a model as a row of parts that run one after another, which is what a plan knows of it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "framework/layer.h"
#include "parallel/plan.h"

namespace trireme {

/// The groups of the model's Sequential (fused neighbours are one), or the model as the only part.
class Chain {
 public:
  explicit Chain(Module model) : model_(std::move(model)), row_(model_.as<Sequential>()) {}
  int size() const { return row_ ? static_cast<int>(row_->groups()) : 1; }
  /// stashed: what Stash layers before this part have set aside; taken from and added to.
  Tensor run(int part, Tensor x, Stashed& stashed) const {
    return row_ ? row_->run_group(static_cast<std::size_t>(part), std::move(x), stashed) : model_(x);
  }
  /// Stashed tensors that cross a cut behind the part, beside its output.
  std::vector<std::string> stashed_behind(int part) const {
    return row_ ? row_->stashed_behind(static_cast<std::size_t>(part)) : std::vector<std::string>{};
  }
  /// The weights, biases and buffers that a part holds: their identity and name.
  std::vector<std::pair<const void*, std::string>> tensors(int part) const;
  /// Names are those of the layers ("0-2"); slices follow one another and cover the block, and so do those of buffers.
  std::vector<PartInfo> parts(const Parameters&) const;

 private:
  std::string name(int part) const;
  bool holds(int part, const std::string& tensor) const;

  Module model_;
  Sequential* row_;  // inside model_, or null
};

}  // namespace trireme
