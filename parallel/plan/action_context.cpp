#include "parallel/plan/action_context.h"

#include "parallel/plan/codec.h"

namespace trireme {

double ActionContext::argument(const std::string& name) const {
  const auto value = find_argument(action, name);
  check(
      value.has_value(), "executor", "{} has no argument '{}'", [&] { return to_string(action); }, name);
  return *value;
}

}  // namespace trireme
