#include "parallel/chain.h"

namespace trireme {

std::string Chain::name(int part) const {
  if (!row_) return "model";
  auto [first, last] = row_->group(static_cast<std::size_t>(part));
  return row_->name(first) + (last - first > 1 ? "-" + row_->name(last - 1) : "");
}

bool Chain::holds(int part, const std::string& tensor) const {
  if (!row_) return true;
  auto [first, last] = row_->group(static_cast<std::size_t>(part));
  for (std::size_t i = first; i < last; ++i)
    if (tensor.starts_with(row_->name(i) + ".")) return true;
  return false;
}

std::vector<std::pair<const void*, std::string>> Chain::tensors(int part) const {
  std::vector<std::pair<const void*, std::string>> all;
  Module model = model_;  // a handle
  model.visit(Visit([&](const Leaf& leaf) {
    if (holds(part, leaf.name)) all.emplace_back(leaf.tensor->id(), leaf.name);
  }));
  return all;
}

std::vector<PartInfo> Chain::parts(const Parameters& parameters) const {
  std::vector<PartInfo> parts;
  auto& entries = parameters.entries();
  auto& buffers = parameters.buffers();
  std::size_t next = 0, buffer = 0;  // both come in the order of the layers
  Index packed = 0;
  for (int p = 0; p < size(); ++p) {
    PartInfo part{.name = name(p), .slice = {}};
    part.slice.begin = parts.empty() ? 0 : parts.back().slice.end;
    while (next < entries.size() && holds(p, entries[next].name)) ++next;
    const Index end = next < entries.size() ? entries[next].slice.begin : parameters.size();
    part.slice.end = next == 0 ? 0 : end;
    part.buffers.begin = packed;
    while (buffer < buffers.size() && holds(p, buffers[buffer].name)) packed += buffers[buffer++].tensor.numel();
    part.buffers.end = packed;
    parts.push_back(std::move(part));
  }
  check(next == entries.size(), "step", "parameter '{}' belongs to no layer of the model's chain",
        next < entries.size() ? entries[next].name : "");
  check(buffer == buffers.size(), "step", "buffer '{}' belongs to no layer of the model's chain",
        buffer < buffers.size() ? buffers[buffer].name : "");
  return parts;
}

}  // namespace trireme
