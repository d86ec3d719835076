#include "parallel/chain.h"

#include "framework/layers.h"

namespace trireme {

namespace {
bool stashes(const Sequential& row) {
  for (std::size_t i = 0; i < row.size(); ++i)
    if (row[i].as<Stash>()) return true;
  return false;
}
}  // namespace

Chain::Chain(Module model) : model_(std::move(model)) {
  if (auto* row = model_.as<Sequential>())
    add(*row, "", true);
  else
    parts_.emplace_back();
}

void Chain::add(Sequential& row, const std::string& prefix, bool outermost) {
  for (std::size_t g = 0; g < row.groups(); ++g) {
    auto [first, last] = row.group(g);
    auto* inner = last - first == 1 ? row[first].as<Sequential>() : nullptr;
    const std::size_t before = parts_.size();
    // What an inner row stashes is its own: another may use the same name.
    if (inner && inner->groups() > 0 && !stashes(*inner))
      add(*inner, prefix + row.name(first) + ".", false);
    else
      parts_.push_back({&row, g, prefix});
    if (outermost)
      for (std::size_t i = before; i < parts_.size(); ++i) parts_[i].root_group = g;
  }
}

Tensor Chain::run(int part, Tensor x, Stashed& stashed) const {
  const Part& p = at(part);
  return p.row ? p.row->run_group(p.group, std::move(x), stashed) : model_(x);
}

std::vector<std::string> Chain::stashed_behind(int part) const {
  if (!at(part).row) return {};
  return model_.as<Sequential>()->stashed_behind(at(part).root_group);
}

std::string Chain::name(int part) const {
  const Part& p = at(part);
  if (!p.row) return "model";
  auto [first, last] = p.row->group(p.group);
  return p.prefix + p.row->name(first) + (last - first > 1 ? "-" + p.row->name(last - 1) : "");
}

bool Chain::holds(int part, const std::string& tensor) const {
  const Part& p = at(part);
  if (!p.row) return true;
  auto [first, last] = p.row->group(p.group);
  for (std::size_t i = first; i < last; ++i)
    if (tensor.starts_with(p.prefix + p.row->name(i) + ".")) return true;
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
