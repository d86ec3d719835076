// StepTickets: trains the batches in tickets, so that workers of different speed can divide them
// (StepOptions::tickets).
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

  /// Starts the training of the next `batches` global batches; granted() returns this rank's shares of them. Until
  /// close(), which all ranks call, a rank may only call the step, once per ticket. If workers divide the batches
  /// (Plan::tickets), steps are counted by batches: a share of the k-th batch after open() belongs to the k-th step,
  /// from 0. Call on all ranks; sends nothing. Throws Error below 1, and if the previous batches are not closed.
  void open(std::int64_t batches);
  /// The tickets that this rank got since the last call, in training order: the first after open(), then at most one
  /// per step. A rank that gets none is done. Servers of Plan::tickets get none.
  std::vector<Ticket> granted();
  /// Waits until all ranks have trained their tickets. If each rank has a fixed share of every batch, some may be left
  /// out. If workers divide the batches, all workers then have the servers' weights, and each share counts once. A
  /// collective call.
  void close();

 private:
  Step::Impl& step_;
};

}  // namespace trireme
