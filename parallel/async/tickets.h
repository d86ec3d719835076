// Tickets: shares of global batches that workers at their own pace train one by one, out of a queue that one rank keeps
// (as the dynamic sharding of tf.data service), so that each sample of an epoch counts once however fast who is.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "framework/tensor/batch.h"

namespace trireme {

struct Plan;

/// What a rank trains in a step.
struct Ticket {
  std::int64_t batch = 0;  ///< number of the global batch, 0 for the first behind Step::open()
  RankShare share;         ///< its rows of that
};
/// The ticket of this number: TicketPlan::shares of the first batch come first, then those of the second.
Ticket ticket_of(const Plan&, std::int64_t number);

/// Numbers of tickets: each is in the queue, held by a worker, or done.
class TicketQueue {
 public:
  /// What the worker at a place among `workers` has at first of so many tickets: place, place + workers, ...: `ahead`
  /// numbers, or as many as there are.
  static std::deque<std::int64_t> first(std::int64_t count, int place, int workers, int ahead);

  /// Tickets 0 to count - 1 of these workers, which have their first(), in their order. Throws Error where some of
  /// those before are not done.
  void open(std::int64_t count, const std::vector<int>& workers, int ahead);
  /// The lowest in the queue is the worker's now; -1: there is none.
  std::int64_t take(int worker);
  /// The gradient of the ticket that the worker has had longest is in the weights.
  void finish(int worker);
  /// What the worker has is in the queue again: it is late, or dead.
  void give_back(int worker);
  /// The same of all workers.
  void give_back_all();
  std::int64_t left() const;  ///< that are not done

 private:
  std::int64_t fresh_ = 0, count_ = 0;            // numbers from fresh_ on have been nobody's yet
  std::set<std::int64_t> returned_;               // in the queue, too
  std::map<int, std::deque<std::int64_t>> held_;  // by worker, in the order in which it trains them
};

}  // namespace trireme
