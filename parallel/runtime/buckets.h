// Buckets: collectives over slices of the flat gradient block that overlap with backward (as in PyTorch DDP). A bucket
// is a slice. Its collective starts when backward has completed its gradients, in the same order on every rank. The
// executor and Reducer use it.
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
  /// Starts the collective of bucket i on its gradients [elements of the slice].
  using Init = std::function<Work(std::size_t i, const Tensor& gradients)>;
  /// Adds a hook to the gradient of each parameter; parameters must outlive it. start: called for each bucket, in the
  /// order of slices. backwards: for each entry of parameters, the number of backward passes that add to its gradient
  /// between arm() and flush(); empty: one each.
  Buckets(Parameters& parameters, std::vector<Slice> slices, Init start, std::vector<int> backwards = {});
  ~Buckets();
  Buckets(const Buckets&) = delete;
  Buckets& operator=(const Buckets&) = delete;

  /// Called when the gradients of the first n buckets are complete.
  using Complete = std::function<void(std::size_t n)>;
  /// Call before a step's first backward. listen: buckets start during backward, and a gradient that is completed twice
  /// before flush() throws Error. False: all buckets start in flush(). instead: while a device captures the step,
  /// called for completed buckets in place of their collectives.
  void arm(bool listen = true, Complete instead = {});
  /// Call between arm() and flush(). on: the next backward completes its gradients. False: a later backward adds to the
  /// same gradients, which are not complete before.
  void listen(bool on) { listening_ = on; }
  /// Call after the last backward: sets gradients that this rank did not produce to zero, and starts the buckets that
  /// have not started.
  void flush();
  /// As flush(), for this bucket and earlier ones. Call when no later backward produces their gradients.
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
  std::vector<int> backwards_, left_;              // by entry: backward passes of a step; those still to come
  std::vector<std::uint64_t> hooks_;
  std::vector<Work> works_;
  std::size_t next_ = 0;  // first bucket that has not started
  Complete instead_;
  bool listening_ = false;
};

}  // namespace trireme
