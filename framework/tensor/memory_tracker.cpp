#include "framework/tensor/memory_tracker.h"

namespace trireme {
namespace {

constinit thread_local const MemoryScope* current_scope = nullptr;

}  // namespace

void detail::MemoryCounts::add(MemoryKind kind, Index bytes) noexcept {
  for (Count* c : {&counts[static_cast<std::size_t>(kind)], &all}) {
    const Index now = c->now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    for (Index peak = c->peak.load(std::memory_order_relaxed);
         now > peak && !c->peak.compare_exchange_weak(peak, now, std::memory_order_relaxed);) {}
  }
}

void MemoryTracker::reset_peaks() {
  for (auto& c : counts_->counts) c.peak.store(c.now.load());
}

MemoryScope::MemoryScope(const MemoryTracker& tracker) : around_(current_scope), counts_(tracker.counts_) {
  current_scope = this;
}
MemoryScope::MemoryScope(MemoryKind kind) : around_(current_scope), kind_(kind) {
  if (!around_) return;
  counts_ = around_->counts_;
  current_scope = this;
}
MemoryScope::~MemoryScope() {
  if (current_scope == this) current_scope = around_;
}
const MemoryScope* MemoryScope::current() { return current_scope; }

}  // namespace trireme
