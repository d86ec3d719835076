#include "framework/launch.h"

namespace trireme::detail {

void Placement::refuse(const View& v) const {
  fail(op, "operands lie on {} and {}: bring them together with to(Device)", first->device, v.device);
}

}  // namespace trireme::detail
