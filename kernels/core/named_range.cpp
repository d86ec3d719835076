#include "kernels/core/named_range.h"

#include <atomic>
#include <mutex>
#include <set>

namespace trireme {
namespace {
std::atomic<const NamedRange::Listener*> listener = nullptr;
}

thread_local constinit NamedRange* NamedRange::innermost_ = nullptr;

void NamedRange::enter() {
  innermost_ = this;
  if (const Listener* l = listener.load(std::memory_order_acquire)) l->enter(name_);
}
void NamedRange::leave() {
  innermost_ = outer_;
  if (const Listener* l = listener.load(std::memory_order_acquire)) l->leave();
}

std::string NamedRange::place() {
  std::string path;
  for (const NamedRange* r = innermost_; r != nullptr; r = r->outer_)
    path = r->name_ + (path.empty() ? "" : ", " + path);
  return path.empty() ? path : " in " + path;
}

const char* NamedRange::intern(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string>& all = *new std::set<std::string>;
  std::lock_guard lock(mutex);
  return all.insert(name).first->c_str();
}

void NamedRange::listen(const Listener* l) { listener.store(l, std::memory_order_release); }

}  // namespace trireme
