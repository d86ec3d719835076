// MemoryTracker: bytes of live tensors by kind of use. Tensors that a thread creates inside a MemoryScope are counted
// until they are freed, by any thread.
#pragma once
#include <array>
#include <atomic>
#include <memory>

#include "framework/tensor/tensor.h"

namespace trireme {

/// The use of a tensor's memory.
enum class MemoryKind : std::uint8_t {
  activations,  ///< all other uses: activations, their gradients, workspaces of ops
  halos,        ///< borders received from neighbour ranks by spatially sharded layers
  packed,       ///< copies for sending or summing together, and filters that an Inference keeps packed
  offloaded,    ///< activations of a device that wait in host memory (RecomputeOptions::offload)
};

namespace detail {
/// The bytes of one MemoryTracker, by kind.
class MemoryCounts {
 public:
  void add(MemoryKind, Index bytes) noexcept;  ///< negative bytes: freed
  struct Count {
    std::atomic<Index> now = 0, peak = 0;
  };
  std::array<Count, 4> counts;
  Count all;
};
}  // namespace detail

/// A handle: copies share the counts.
class MemoryTracker {
 public:
  /// Bytes of live tensors of a kind.
  Index now(MemoryKind kind) const { return of(kind).now.load(std::memory_order_relaxed); }
  /// Largest now(kind) since the last reset_peaks(), in bytes.
  Index peak(MemoryKind kind) const { return of(kind).peak.load(std::memory_order_relaxed); }
  /// Largest sum of the kinds at one time, in bytes.
  Index peak() const { return counts_->all.peak.load(std::memory_order_relaxed); }
  void reset_peaks();  ///< sets each kind's peak to the current count

 private:
  friend class MemoryScope;
  const detail::MemoryCounts::Count& of(MemoryKind kind) const {
    return counts_->counts[static_cast<std::size_t>(kind)];
  }
  std::shared_ptr<detail::MemoryCounts> counts_ = std::make_shared<detail::MemoryCounts>();
};

/// Counts the tensors that this thread creates while the scope lives. The innermost scope counts.
class MemoryScope {
 public:
  /// Counts in this tracker, as MemoryKind::activations.
  explicit MemoryScope(const MemoryTracker&);
  /// Counts in the enclosing scope's tracker, if there is one, as another kind.
  explicit MemoryScope(MemoryKind);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  static const MemoryScope* current();  ///< innermost scope of this thread; null: nothing is counted
  /// Counts of the tracker; null for a MemoryScope(MemoryKind) without an enclosing scope.
  const std::shared_ptr<detail::MemoryCounts>& counts() const { return counts_; }
  MemoryKind kind() const { return kind_; }  ///< kind of new tensors

 private:
  const MemoryScope* around_;
  std::shared_ptr<detail::MemoryCounts> counts_;
  MemoryKind kind_ = MemoryKind::activations;
};

}  // namespace trireme
