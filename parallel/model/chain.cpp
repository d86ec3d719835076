#include "parallel/model/chain.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/autograd/tape.h"
#include "framework/tensor/division_error.h"

namespace trireme {

Chain::Chain(Module model, const Loss& loss) : model_(std::move(model)) {
  model_.visit(StateVisitor([&](const NamedState& leaf) { divided_ = divided_ || leaf.tensor->shard_spec(); }));
  if (auto* row = model_.as<Sequential>()) enter(*row, "", {});
  if (parts_.empty()) parts_.push_back({nullptr, 0, "model", {""}, {}});
  divided_outputs_ = divided_ && loss.cross_entropy();
}

void Chain::enter(const Sequential& row, const std::string& prefix, const std::vector<std::string>& around) {
  for (std::size_t g = 0; g < row.groups(); ++g) {
    const auto [first, last] = row.group(g);
    const auto* inner = last - first == 1 ? row[first].as<Sequential>() : nullptr;
    auto outside = around;
    if (g > 0)
      for (auto& name : row.stashed_behind(g - 1)) outside.push_back(name);
    // A Sequential that stashes under a name in use around it is one part, because its names are local.
    for (std::size_t i = 0; inner && i < inner->groups(); ++i)
      for (auto& name : inner->stashed_behind(i))
        if (std::find(outside.begin(), outside.end(), name) != outside.end()) inner = nullptr;
    if (inner && inner->groups() > 0) {
      enter(*inner, prefix + row.name(first) + ".", outside);
      continue;
    }
    Part part{&row, g, prefix + row.name(first) + (last - first > 1 ? "-" + row.name(last - 1) : ""), {}, around};
    part.range = NamedRange::intern(part.name);
    for (std::size_t i = first; i < last; ++i) part.prefixes.push_back(prefix + row.name(i) + ".");
    for (auto& name : row.stashed_behind(g)) part.stashed.push_back(name);
    std::ranges::sort(part.stashed);
    parts_.push_back(std::move(part));
  }
}

bool Chain::holds(int part, const std::string& tensor) const {
  return std::ranges::any_of(parts_[part].prefixes, [&](auto& prefix) { return (tensor + ".").starts_with(prefix); });
}

std::vector<std::pair<const void*, std::string>> Chain::tensors(int part) const {
  std::vector<std::pair<const void*, std::string>> all;
  Module model = model_;  // a copy that shares the layers
  model.visit(StateVisitor([&](const NamedState& leaf) {
    if (holds(part, leaf.name)) all.emplace_back(leaf.tensor->id(), leaf.name);
  }));
  return all;
}

std::vector<std::pair<const void*, std::string>> Chain::random_layers(int part) const {
  std::vector<std::pair<const void*, std::string>> all;
  Module model = model_;  // a copy that shares the layers
  const auto key = [&](const std::string& prefix, const std::uint64_t& k) {
    const std::string name = prefix.substr(0, prefix.size() - 1);
    if (holds(part, name)) all.emplace_back(&k, name);
  };
  model.visit(StateVisitor([](const NamedState&) {}, key));
  return all;
}

Tensor Chain::entering(const Tensor& leaf) const {
  if (!divided_ || !leaf.requires_grad()) return leaf;
  Tensor inside = leaf.detach();
  inside.impl()->batch = leaf.impl()->batch;
  return record("part", std::move(inside), {leaf}, [](const Tensor& dy, Gradients& g) { g.set_grad(0, dy); });
}

StepContext Chain::with_divided_outputs() {
  StepContext context = StepContext::current();
  context.divided_outputs = true;
  return context;
}

/// Explains errors of ops on divided tensors: an op may fail on part of a tensor, for example a view with the whole
/// extents.
void Chain::rethrow(int part, const Error& e) const {
  if (!divided_ || e.kind() != ErrorKind::usage) throw;
  const std::string& layer = parts_[static_cast<std::size_t>(part)].name;
  if (dynamic_cast<const DivisionError*>(&e))
    throw DivisionError(fmt::format("{} (in layer '{}')", e.what(), layer), e.where());
  throw DivisionError(
      fmt::format("{}; ranks hold parts of the tensors in layer '{}': leave its weights "
                  "whole, place(NAME.*, whole=true), or use a strategy that divides no layers (data_parallel)",
                  e.what(), layer),
      e.where());
}

std::vector<PartInfo> Chain::parts(const Parameters& parameters) const {
  std::vector<PartInfo> parts;
  auto& entries = parameters.entries();
  auto& buffers = parameters.buffers();
  std::size_t next = 0, buffer = 0;  // both are in the order of the layers
  Index packed = 0;
  for (int p = 0; p < size(); ++p) {
    PartInfo part{.name = parts_[p].name, .slice = {}};
    part.slice.begin = parts.empty() ? 0 : parts.back().slice.end;
    for (; next < entries.size() && holds(p, entries[next].name); ++next)
      if (entries[next].slice.size() > 0) part.tensors.emplace(entries[next].slice.begin, entries[next].tensor.shape());
    const Index end = next < entries.size() ? entries[next].slice.begin : parameters.size();
    part.slice.end = next == 0 ? 0 : end;
    // A part without weights is on the device of the part before it; parts before all weights are on the first device.
    part.device =
        part.slice.size() > 0 || parts.empty() ? parameters.values().device_of(part.slice.begin) : parts.back().device;
    part.buffers.begin = packed;
    for (; buffer < buffers.size() && holds(p, buffers[buffer].name); ++buffer) {
      const Index n = buffers[buffer].tensor.numel();
      packed += n;
      part.buffer_tensors += n > 0;
    }
    part.buffers.end = packed;
    parts.push_back(std::move(part));
  }
  check(next == entries.size(), "step", "parameter '{}' belongs to no layer of the model's chain",
        next < entries.size() ? entries[next].name : "");
  for (const auto& [other, entered] : parameters.ties()) {
    const auto entry = std::ranges::find(entries, entered, &Parameters::Entry::name);
    if (entry == entries.end()) continue;
    const Slice slice{entry->slice.begin, entry + 1 == entries.end() ? parameters.size() : (entry + 1)->slice.begin};
    for (int p = 0; p < size(); ++p) {
      auto& tied = parts[static_cast<std::size_t>(p)].tied;
      if (holds(p, other) && !holds(p, entered) && std::ranges::find(tied, slice) == tied.end()) tied.push_back(slice);
    }
  }
  for (PartInfo& part : parts) std::ranges::sort(part.tied, {}, &Slice::begin);
  check(buffer == buffers.size(), "step", "buffer '{}' belongs to no layer of the model's chain",
        buffer < buffers.size() ? buffers[buffer].name : "");
  return parts;
}

}  // namespace trireme
