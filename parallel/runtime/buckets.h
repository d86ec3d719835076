// Buckets: collectives over slices of the gradient block that start in the midst of backward, each as soon as
// its slice is complete, and always in the same order on every rank. The executor and Reducer share it.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "framework/optim/parameters.h"
#include "parallel/comm/communicator.h"

namespace trireme {

class Buckets {
 public:
  /// Starts the collective of bucket i on its part of the gradient block.
  using Init = std::function<Work(std::size_t i, const Tensor& gradients)>;
  /// Listens to the gradients of parameters, which must outlive it. Buckets start in the order given. backwards: by
  /// entry, how many backwards add to its gradient, each of which completes it once between arm() and flush(); empty:
  /// one to each.
  Buckets(Parameters& parameters, std::vector<Slice> slices, Init start, std::vector<int> backwards = {});
  ~Buckets();
  Buckets(const Buckets&) = delete;
  Buckets& operator=(const Buckets&) = delete;

  /// Of the first n buckets the gradients are complete.
  using Complete = std::function<void(std::size_t n)>;
  /// Before a step's backwards. listen: buckets start as backward completes them, and a gradient completed twice before
  /// flush() throws Error; else all start in flush(). instead: is told of buckets that backward completes, and none
  /// starts (while a graph is captured).
  void arm(bool listen = true, Complete instead = {});
  /// Between arm() and flush(): whether the backward to come completes gradients, or adds to some that others complete.
  void listen(bool on) { listening_ = on; }
  /// After backward: gradients that this rank did not produce become zero, and the buckets that have not
  /// started start.
  void flush();
  /// The same of one bucket and those before it: no backward to come produces their gradients.
  void start_through(std::size_t bucket);
  void wait(std::size_t i) { works_[i].wait(); }
  /// Waits for all, in order.
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
  std::vector<std::vector<std::size_t>> members_;  // the entries that lie in each bucket
  std::vector<int> backwards_, left_;              // by entry: all, and those that have not completed it since arm()
  std::vector<std::uint64_t> hooks_;
  std::vector<Work> works_;
  std::size_t next_ = 0;  // first bucket that has not started
  Complete instead_;
  bool listening_ = false;
};

}  // namespace trireme
