#include "framework/pass.h"

#include <utility>

namespace trireme {
namespace {
thread_local const Pass* innermost = nullptr;
}

const Pass& Pass::current() {
  if (innermost) return *innermost;
  thread_local const Pass none;
  return none;
}

PassScope::PassScope(Pass pass) : pass_(std::move(pass)), before_(std::exchange(innermost, &pass_)) {}
PassScope::~PassScope() { innermost = before_; }

}  // namespace trireme
