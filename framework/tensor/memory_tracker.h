// MemoryTracker: bytes of live tensors by kind of use. Tensors made by a thread while its MemoryScope is open are
// counted until they are freed, by whichever thread.
#pragma once
#include <array>
#include <atomic>
#include <memory>

#include "framework/tensor/tensor.h"

namespace trireme {

enum class MemoryKind : std::uint8_t {
  activations,  ///< what is not one of the others: activations, their gradients, what ops need for a call
  halos,        ///< what came from neighbours for layers that are cut over ranks
  packed,       ///< copies made to be sent or summed together, and filters that an Inference keeps packed
};

class MemoryTracker {
 public:
  void add(MemoryKind, Index bytes) noexcept;  ///< below 0: gone
  Index now(MemoryKind use) const { return of(use).now.load(std::memory_order_relaxed); }
  Index peak(MemoryKind use) const { return of(use).peak.load(std::memory_order_relaxed); }
  void reset_peaks();

 private:
  struct Account {
    std::atomic<Index> now = 0, peak = 0;
  };
  const Account& of(MemoryKind use) const { return accounts_[static_cast<std::size_t>(use)]; }
  std::array<Account, 3> accounts_;
};

/// Charges a ledger with what this thread makes while the scope lives. The innermost counts.
class MemoryScope {
 public:
  explicit MemoryScope(std::shared_ptr<MemoryTracker>);
  /// Charges the ledger of the scope around it, if there is one, under another use.
  explicit MemoryScope(MemoryKind);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  static const MemoryScope* current();
  const std::shared_ptr<MemoryTracker>& ledger() const { return ledger_; }
  MemoryKind use() const { return use_; }

 private:
  const MemoryScope* around_;
  std::shared_ptr<MemoryTracker> ledger_;
  MemoryKind use_ = MemoryKind::activations;
};

}  // namespace trireme
