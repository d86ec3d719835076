// Axis: a named direction of a mesh of ranks.
#pragma once
#include <string>
#include <vector>

namespace trireme {

struct Axis {
  std::string name;                              ///< "data", "pipe", "tensor", "h", ...
  int size = 1;                                  ///< ranks along it
  bool operator==(const Axis&) const = default;  ///< equal name and size
};

/// The names in "data+h".
std::vector<std::string> names_in(const std::string& joined);
/// Ranks along an axis, or several joined by + ("data+h"); 1 where there is none of the name.
int size_along(const std::vector<Axis>&, const std::string& axis);

}  // namespace trireme
