#include "framework/tensor/memory_tracker.h"

namespace trireme {
namespace {

constinit thread_local const MemoryScope* current_scope = nullptr;

}  // namespace

void MemoryTracker::add(MemoryKind use, Index bytes) noexcept {
  Account& a = accounts_[static_cast<std::size_t>(use)];
  const Index now = a.now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  for (Index peak = a.peak.load(std::memory_order_relaxed);
       now > peak && !a.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed);) {}
}

void MemoryTracker::reset_peaks() {
  for (Account& a : accounts_) a.peak.store(a.now.load());
}

MemoryScope::MemoryScope(std::shared_ptr<MemoryTracker> ledger) : around_(current_scope), ledger_(std::move(ledger)) {
  current_scope = this;
}
MemoryScope::MemoryScope(MemoryKind use) : around_(current_scope), use_(use) {
  if (!around_) return;
  ledger_ = around_->ledger_;
  current_scope = this;
}
MemoryScope::~MemoryScope() {
  if (current_scope == this) current_scope = around_;
}
const MemoryScope* MemoryScope::current() { return current_scope; }

}  // namespace trireme
