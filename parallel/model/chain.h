// Chain: a model as a sequence of parts, which is how plans see it.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/autograd/step_context.h"
#include "framework/layers/lm_head.h"
#include "framework/layers/sequential.h"
#include "framework/ops/loss.h"
#include "framework/tensor/fields.h"
#include "kernels/core/named_range.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// The parts are the groups (fused neighbours form one) of the model's Sequential and of Sequentials inside it; any
/// other model is a single part.
class Chain {
 public:
  /// loss: of the last part's output. If it takes divided predictions, the model does not gather them.
  explicit Chain(Module model, const Loss& loss = {});
  int size() const { return static_cast<int>(parts_.size()); }
  bool divided_outputs() const { return divided_outputs_; }  ///< whether the model may leave its predictions divided
  /// stashed: tensors of Stash layers before this part; the part adds and removes tensors. Part 0 sets its fields.
  Tensor run(int part, Tensor x, Stashed& stashed) const try {
    const Part& p = parts_[part];
    const NamedRange range(p.range);
    std::optional<StepScope> scope;
    if (divided_outputs_ && part + 1 == size()) scope.emplace(with_divided_outputs());
    if (part == 0) stashed.fields = fields_beside(x);
    return p.row ? p.row->run_group(p.group, std::move(x), stashed) : model_(std::move(x));
  } catch (const Error& e) { rethrow(part, e); }
  /// The last part if it is a single LmHead; else null.
  const LmHead* head() const { return head(size() - 1); }
  /// A part if it is a single LmHead; else null. If ranks divide layers, a part that gathers the logits follows it.
  const LmHead* head(int part) const {
    const auto& [row, group, name, prefixes, stashed, range] = parts_[part];
    if (!row) return nullptr;
    const auto [first, end] = row->group(group);
    return end - first == 1 ? (*row)[first].as<LmHead>() : nullptr;
  }
  /// A tensor that comes into a part as a leaf, as the part uses it. Where ranks divide layers it is no leaf, so that
  /// one sum serves the gradients of all ops that read it (replicated()).
  Tensor entering(const Tensor& leaf) const;
  /// Names of stashed tensors that cross a cut after the part, in addition to its output.
  const std::vector<std::string>& stashed_behind(int part) const { return parts_[part].stashed; }
  /// Identity and name of the weights, biases and buffers of a part.
  std::vector<std::pair<const void*, std::string>> tensors(int part) const;
  /// Key identity and name of the random layers of a part.
  std::vector<std::pair<const void*, std::string>> random_layers(int part) const;
  /// Parts with the names of their layers ("0-2", "layer1.0"). Their slices are consecutive and cover the block; so do
  /// those of buffers.
  std::vector<PartInfo> parts(const Parameters&) const;

 private:
  struct Part {
    const Sequential* row;  // null: the whole model
    std::size_t group;
    std::string name;
    std::vector<std::string> prefixes;  // of the names of its tensors
    std::vector<std::string> stashed;   // in its Sequential and outer ones, and read after the part
    const char* range = nullptr;        // name of its range in profiles
  };
  void enter(const Sequential& row, const std::string& prefix, const std::vector<std::string>& around);
  bool holds(int part, const std::string& tensor) const;
  static StepContext with_divided_outputs();
  [[noreturn]] void rethrow(int part, const Error&) const;

  Module model_;
  bool divided_ = false;  // whether ranks hold parts of tensors, which errors of layers then mention
  bool divided_outputs_ = false;
  std::vector<Part> parts_;  // pointers refer to model_
};

}  // namespace trireme
