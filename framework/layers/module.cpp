#include "framework/layers/module.h"

#include <map>
#include <set>

#include "framework/autograd/node.h"
#include "framework/tensor/storage.h"
#include "kernels/core/random.h"

namespace trireme {

StateVisitor::StateVisitor(std::function<void(const NamedState&)> leaf,
                           std::function<void(const std::string&, std::uint64_t&)> key, std::string prefix)
    : leaf_(std::move(leaf)), key_(std::move(key)), prefix_(std::move(prefix)) {}

StateVisitor StateVisitor::unplaced(std::function<void(const NamedState&)> leaf) {
  StateVisitor v(std::move(leaf));
  v.placed_ = false;
  return v;
}

StateVisitor StateVisitor::within(const std::string& part) const {
  StateVisitor v = *this;
  v.prefix_ += part + ".";
  return v;
}

void StateVisitor::operator()(const std::string& name, Tensor& tensor, StateKind kind, Init init, FileLayout layout,
                              std::vector<Shares> shares) const {
  if (!tensor) return;
  // A layer that consists of one tensor gives it an empty name: the tensor has the layer's name.
  std::string full = name.empty() && !prefix_.empty() ? prefix_.substr(0, prefix_.size() - 1) : prefix_ + name;
  leaf_({std::move(full), &tensor, tensor.impl()->frozen ? StateKind::buffer : kind, layout, std::move(init),
         std::move(shares)});
}

Module::Module(Tensor (*op)(const Tensor&)) : self_(std::make_shared<Model<Tensor (*)(const Tensor&)>>(op)) {}

Module Module::clone() const {
  Module copy = *this;
  std::map<const void*, Tensor> copied;
  StateVisitor walk([&](const NamedState& leaf) {
    auto [at, fresh] = copied.try_emplace(leaf.tensor->id());
    if (fresh) {
      at->second = leaf.tensor->clone();
      at->second.impl()->frozen = leaf.tensor->impl()->frozen;
    }
    *leaf.tensor = at->second;
  });
  walk.copies_ = true;
  copy.visit(walk);
  return copy;
}

std::vector<NamedState> named_tensors(Module& model) {
  std::vector<NamedState> all;
  model.visit(StateVisitor([&](const NamedState& leaf) { all.push_back(leaf); }));
  return all;
}

bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  for (std::size_t at = star; at <= name.size(); ++at)
    if (matches(pattern.substr(star + 1), name.substr(at))) return true;
  return false;
}

namespace {
Index set_frozen(const char* what, Module& model, std::string_view pattern, bool frozen) {
  Index count = 0;
  for (const NamedState& t : named_tensors(model)) {
    if (!matches(pattern, t.name)) continue;
    check(
        !detail::owner_of(*t.tensor), what,
        "'{}' is in Parameters already, which train all their weights: call this before creating Parameters or a Step",
        t.name);
    t.tensor->impl()->frozen = frozen;
    if (frozen) t.tensor->require_grad(false);
    ++count;
  }
  check(count > 0, what, "no tensor's name matches '{}'", pattern);
  return count;
}
}  // namespace

Index freeze(Module& model, std::string_view pattern) { return set_frozen("freeze", model, pattern, true); }
Index unfreeze(Module& model, std::string_view pattern) { return set_frozen("unfreeze", model, pattern, false); }

std::uint64_t key_of_name(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

void initialize(Module& model, std::uint64_t seed) {
  std::set<const void*> drawn;
  model.visit(StateVisitor([&](const NamedState& leaf) {
    if (drawn.insert(leaf.tensor->id()).second) leaf.init(*leaf.tensor, mix(seed, key_of_name(leaf.name)));
  }));
}

}  // namespace trireme
