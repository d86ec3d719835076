// MemoryTracker: bytes of live tensors by kind of use. Tensors made by a thread while its MemoryScope is open are
// counted until they are freed, by whichever thread.
#pragma once
#include <array>
#include <atomic>
#include <memory>

#include "framework/tensor/tensor.h"

namespace trireme {

/// Use of a tensor's memory, as MemoryTracker counts it.
enum class MemoryKind : std::uint8_t {
  activations,  ///< all but the other kinds: activations, their gradients, workspaces of ops
  halos,        ///< borders received from neighbour ranks for spatially sharded layers
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
  /// Bytes of live tensors of a kind.
  Index now(MemoryKind kind) const { return of(kind).now.load(std::memory_order_relaxed); }
  /// Largest now(kind) since the last reset_peaks(), in bytes.
  Index peak(MemoryKind kind) const { return of(kind).peak.load(std::memory_order_relaxed); }
  void reset_peaks();  ///< each peak becomes the present count

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
  /// Counts by this tracker, as MemoryKind::activations.
  explicit MemoryScope(const MemoryTracker&);
  /// Counts by the tracker of the scope around this one, if there is one, under another kind.
  explicit MemoryScope(MemoryKind);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  static const MemoryScope* current();  ///< the innermost scope of this thread; null: nothing is counted
  /// Of the tracker; null for a MemoryScope(MemoryKind) without a scope around it.
  const std::shared_ptr<detail::MemoryCounts>& counts() const { return counts_; }
  MemoryKind kind() const { return kind_; }  ///< the kind that new tensors are counted as

 private:
  const MemoryScope* around_;
  std::shared_ptr<detail::MemoryCounts> counts_;
  MemoryKind kind_ = MemoryKind::activations;
};

}  // namespace trireme
