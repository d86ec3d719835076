// StepTickets: tickets are shares of global batches. Workers ask for them, so that a fast worker trains more shares
// than a slow one (StepOptions::tickets).
#pragma once
#include <cstdint>
#include <vector>

#include "parallel/async/tickets.h"
#include "parallel/runtime/step.h"

namespace trireme {

/// The tickets of a step, which must outlive the handle.
class StepTickets {
 public:
  /// step: must outlive the handle.
  explicit StepTickets(Step& step) : step_(*step.impl_) {}

  /// Starts the training of the next `batches` global batches, at least 1; granted() returns this rank's shares of
  /// them. Until close(), a rank may only call the step, once per ticket. If workers divide the batches
  /// (Plan::tickets), a share of the k-th batch after open() belongs to the k-th step after it. Call on all ranks;
  /// sends nothing. Throws Error for batches below 1, and for a second open() without close() between.
  void open(std::int64_t batches);
  /// The tickets that this rank has got since the last call, in the order in which to train them. After open(): the
  /// first ones; all of them if each rank has a fixed share of every batch. After a step: at most one more. Empty: this
  /// rank has no ticket left. Servers get none if Plan::tickets is set.
  std::vector<Ticket> granted();
  /// Ends the training of these batches. If workers divide them, waits until all tickets are trained: all workers then
  /// have the servers' weights, and each share has been used once. Throws Error if this rank has a ticket that it has
  /// not trained. A collective call.
  void close();

 private:
  Step::Impl& step_;
};

}  // namespace trireme
