// Chain: a model as a row of parts that run one after another, which is what a plan knows of it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "framework/layers/lm_head.h"
#include "framework/layers/sequential.h"
#include "kernels/core/named_range.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// The groups (fused neighbours are one) of the model's Sequential and of those within it, or the model as the only
/// part.
class Chain {
 public:
  explicit Chain(Module model);
  int size() const { return static_cast<int>(parts_.size()); }
  /// stashed: what Stash layers before this part have set aside; taken from and added to.
  Tensor run(int part, Tensor x, Stashed& stashed) const try {
    const Part& p = parts_[part];
    const NamedRange range(p.range);
    return p.row ? p.row->run_group(p.group, std::move(x), stashed) : model_(std::move(x));
  } catch (const Error& e) { rethrow(part, e); }
  /// The last part, where it is an LmHead alone; else null.
  const LmHead* head() const {
    const auto& [row, group, name, prefixes, stashed, range] = parts_.back();
    if (!row) return nullptr;
    const auto [first, end] = row->group(group);
    return end - first == 1 ? (*row)[first].as<LmHead>() : nullptr;
  }
  /// Stashed tensors that cross a cut behind the part, beside its output.
  const std::vector<std::string>& stashed_behind(int part) const { return parts_[part].stashed; }
  /// The weights, biases and buffers that a part holds: their identity and name.
  std::vector<std::pair<const void*, std::string>> tensors(int part) const;
  /// The random layers that a part holds: the identity of their key, and their name.
  std::vector<std::pair<const void*, std::string>> random_layers(int part) const;
  /// Names are those of the layers ("0-2", "layer1.0"); slices follow one another and cover the block, and so do those
  /// of buffers.
  std::vector<PartInfo> parts(const Parameters&) const;

 private:
  struct Part {
    const Sequential* row;  // null: the model as a whole
    std::size_t group;
    std::string name;
    std::vector<std::string> prefixes;  // of the names of its tensors
    std::vector<std::string> stashed;   // in its row and those that hold it, and taken behind the part
    const char* range = nullptr;        // its name
  };
  void enter(const Sequential& row, const std::string& prefix, const std::vector<std::string>& around);
  bool holds(int part, const std::string& tensor) const;
  [[noreturn]] void rethrow(int part, const Error&) const;

  Module model_;
  bool divided_ = false;     // ranks hold parts of its tensors, which errors of its layers then say
  std::vector<Part> parts_;  // pointers reach into model_
};

}  // namespace trireme
