// Axis: a named direction of a mesh of ranks.
#pragma once
#include <string>

namespace trireme {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

}  // namespace trireme
