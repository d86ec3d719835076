#include "parallel/plan/action_context.h"

#include <algorithm>

namespace trireme {

double ActionContext::argument(const std::string& name) const {
  const auto at = std::ranges::find(action.arguments, name, &std::pair<std::string, double>::first);
  check(
      at != action.arguments.end(), "executor", "{} has no argument '{}'", [&] { return to_string(action); }, name);
  return at->second;
}

}  // namespace trireme
