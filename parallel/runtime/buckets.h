// Buckets: collectives over slices of the gradient block that overlap with backward (as in PyTorch DDP). Each starts as
// soon as its slice is complete, in the same order on every rank. The executor and Reducer use it.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "framework/optim/parameters.h"
#include "parallel/comm/communicator.h"

namespace trireme {

/// The gradient buckets of one rank.
class Buckets {
 public:
  /// Starts the collective of bucket i on its part of the gradient block.
  using Init = std::function<Work(std::size_t i, const Tensor& gradients)>;
  /// Hooks into the gradients of parameters, which must outlive it. Buckets start in the given order. backwards: for
  /// each entry, the number of backwards that add to its gradient between arm() and flush(); empty: one each.
  Buckets(Parameters& parameters, std::vector<Slice> slices, Init start, std::vector<int> backwards = {});
  ~Buckets();
  Buckets(const Buckets&) = delete;
  Buckets& operator=(const Buckets&) = delete;

  /// Called when the gradients of the first n buckets are complete.
  using Complete = std::function<void(std::size_t n)>;
  /// Call before a step's backwards. listen: buckets start as backward completes them, and a gradient completed twice
  /// before flush() throws Error; else all start in flush(). instead: called for completed buckets, none of which
  /// starts (while a graph is captured).
  void arm(bool listen = true, Complete instead = {});
  /// Call between arm() and flush(): whether the next backward completes gradients, or only adds to gradients that
  /// another backward completes.
  void listen(bool on) { listening_ = on; }
  /// Call after backward: sets gradients that this rank did not produce to zero and starts the remaining buckets.
  void flush();
  /// As flush(), for this bucket and earlier ones: no later backward produces their gradients.
  void start_through(std::size_t bucket);
  /// Waits for bucket i.
  void wait(std::size_t i) { works_[i].wait(); }
  /// Waits for all buckets, in order.
  void finish();

 private:
  void completed(std::size_t entry);
  void start_next() {
    if (!instead_) works_[next_] = start_(next_, views_[next_]);
    ++next_;
  }

  Parameters& parameters_;
  std::vector<Slice> slices_;
  std::vector<Tensor> views_;  // of the gradient block, one per bucket
  Init start_;
  std::vector<std::vector<std::size_t>> members_;  // entries in each bucket
  std::vector<int> backwards_, left_;              // by entry: all backwards; backwards still to come since arm()
  std::vector<std::uint64_t> hooks_;
  std::vector<Work> works_;
  std::size_t next_ = 0;  // first bucket that has not started
  Complete instead_;
  bool listening_ = false;
};

}  // namespace trireme
