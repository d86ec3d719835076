// Ledger: what tensors take, by use. It counts the bytes of those that a thread makes while a LedgerScope is open,
// until they are gone, wherever that is.
#pragma once
#include <array>
#include <atomic>
#include <memory>

#include "framework/tensor.h"

namespace trireme {

enum class MemoryUse : std::uint8_t {
  activations,  ///< what is not one of the others: activations, their gradients, what ops need for a call
  halos,        ///< what came from neighbours for layers that are cut over ranks
  packed,       ///< copies made to be sent or summed together, and filters that an Inference keeps packed
};

class Ledger {
 public:
  void add(MemoryUse, Index bytes) noexcept;  ///< below 0: gone
  Index now(MemoryUse use) const { return of(use).now.load(std::memory_order_relaxed); }
  Index peak(MemoryUse use) const { return of(use).peak.load(std::memory_order_relaxed); }
  void reset_peaks();

 private:
  struct Account {
    std::atomic<Index> now = 0, peak = 0;
  };
  const Account& of(MemoryUse use) const { return accounts_[static_cast<std::size_t>(use)]; }
  std::array<Account, 3> accounts_;
};

/// Charges a ledger with what this thread makes while the scope lives. The innermost counts.
class LedgerScope {
 public:
  explicit LedgerScope(std::shared_ptr<Ledger>);
  /// Charges the ledger of the scope around it, if there is one, under another use.
  explicit LedgerScope(MemoryUse);
  ~LedgerScope();
  LedgerScope(const LedgerScope&) = delete;
  LedgerScope& operator=(const LedgerScope&) = delete;

  static const LedgerScope* current();
  const std::shared_ptr<Ledger>& ledger() const { return ledger_; }
  MemoryUse use() const { return use_; }

 private:
  const LedgerScope* around_;
  std::shared_ptr<Ledger> ledger_;
  MemoryUse use_ = MemoryUse::activations;
};

}  // namespace trireme
