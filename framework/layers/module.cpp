#include "framework/layers/module.h"

#include <set>

#include "kernels/core/random.h"

namespace trireme {

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
