#include "framework/ledger.h"

namespace trireme {
namespace {

constinit thread_local const LedgerScope* current_scope = nullptr;

}  // namespace

void Ledger::add(MemoryUse use, Index bytes) noexcept {
  Account& a = accounts_[static_cast<std::size_t>(use)];
  const Index now = a.now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  for (Index peak = a.peak.load(std::memory_order_relaxed);
       now > peak && !a.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed);) {}
}

void Ledger::reset_peaks() {
  for (Account& a : accounts_) a.peak.store(a.now.load());
}

LedgerScope::LedgerScope(std::shared_ptr<Ledger> ledger) : around_(current_scope), ledger_(std::move(ledger)) {
  current_scope = this;
}
LedgerScope::LedgerScope(MemoryUse use) : around_(current_scope), use_(use) {
  if (!around_) return;
  ledger_ = around_->ledger_;
  current_scope = this;
}
LedgerScope::~LedgerScope() {
  if (current_scope == this) current_scope = around_;
}
const LedgerScope* LedgerScope::current() { return current_scope; }

}  // namespace trireme
