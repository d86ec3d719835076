#include "framework/layers/module.h"

#include <set>

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

void StateVisitor::operator()(const std::string& name, Tensor& tensor, StateKind use, Init init,
                              FileLayout layout) const {
  if (tensor) leaf_({prefix_ + name, &tensor, use, layout, std::move(init)});
}

Module::Module(Tensor (*op)(const Tensor&)) : self_(std::make_shared<Model<Tensor (*)(const Tensor&)>>(op)) {}

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
