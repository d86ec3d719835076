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

namespace detail {
/// Bytes of one MemoryTracker, by kind.
class MemoryCounts {
 public:
  void add(MemoryKind, Index bytes) noexcept;  ///< below 0: freed
  struct Count {
    std::atomic<Index> now = 0, peak = 0;
  };
  std::array<Count, 3> counts;
};
}  // namespace detail

/// A handle: copies share the counts.
class MemoryTracker {
 public:
  /// Bytes of live tensors of a kind; the most of them since the last reset_peaks().
  Index now(MemoryKind kind) const { return of(kind).now.load(std::memory_order_relaxed); }
  Index peak(MemoryKind kind) const { return of(kind).peak.load(std::memory_order_relaxed); }
  void reset_peaks();

 private:
  friend class MemoryScope;
  const detail::MemoryCounts::Count& of(MemoryKind kind) const {
    return counts_->counts[static_cast<std::size_t>(kind)];
  }
  std::shared_ptr<detail::MemoryCounts> counts_ = std::make_shared<detail::MemoryCounts>();
};

/// While it lives, the tensors that this thread makes are counted by a tracker. The innermost scope counts.
class MemoryScope {
 public:
  explicit MemoryScope(const MemoryTracker&);
  /// Counts by the tracker of the scope around this one, if there is one, under another kind.
  explicit MemoryScope(MemoryKind);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  static const MemoryScope* current();
  const std::shared_ptr<detail::MemoryCounts>& counts() const { return counts_; }
  MemoryKind kind() const { return kind_; }

 private:
  const MemoryScope* around_;
  std::shared_ptr<detail::MemoryCounts> counts_;
  MemoryKind kind_ = MemoryKind::activations;
};

}  // namespace trireme
