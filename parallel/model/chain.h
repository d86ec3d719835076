// Chain: a model as a row of parts that run one after another, which is what a plan knows of it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "framework/layers/sequential.h"
#include "kernels/core/named_range.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// The groups (fused neighbours are one) of the model's Sequential and of those within it, or the model as the only
/// part.
class Chain {
 public:
  explicit Chain(Module model);
  int size() const { return parts_.empty() ? 1 : static_cast<int>(parts_.size()); }
  /// stashed: what Stash layers before this part have set aside; taken from and added to.
  Tensor run(int part, Tensor x, Stashed& stashed) const {
    if (parts_.empty()) return model_(std::move(x));
    const Part& p = parts_[static_cast<std::size_t>(part)];
    const NamedRange range(p.range);
    return p.row->run_group(p.group, std::move(x), stashed);
  }
  /// Stashed tensors that cross a cut behind the part, beside its output.
  std::vector<std::string> stashed_behind(int part) const;
  /// The weights, biases and buffers that a part holds: their identity and name.
  std::vector<std::pair<const void*, std::string>> tensors(int part) const;
  /// Names are those of the layers ("0-2", "layer1.0"); slices follow one another and cover the block, and so do those
  /// of buffers.
  std::vector<PartInfo> parts(const Parameters&) const;

 private:
  struct Part {
    const Sequential* row;
    std::size_t group;
    std::string prefix;               // of the row's names
    std::vector<std::string> around;  // stashed in rows that hold this one, and taken behind it
    const char* range = nullptr;      // its name
  };
  void enter(const Sequential& row, const std::string& prefix, const std::vector<std::string>& around);
  std::string name(int part) const;
  bool holds(int part, const std::string& tensor) const;

  Module model_;
  std::vector<Part> parts_;  // pointers reach into model_; empty: it is no Sequential
};

}  // namespace trireme
