// Tickets: shares of global batches. One rank keeps them in a queue, and each worker takes the next one when it is
// ready (like the dynamic sharding of the tf.data service). So each sample of an epoch counts once, and fast workers
// train more samples.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "framework/tensor/batch.h"

namespace trireme {

struct Plan;

/// The rows that a worker trains in a step.
struct Ticket {
  std::int64_t batch = 0;  ///< number of the global batch; 0 is the first batch after tickets were opened
  RankShare share;         ///< rows of the batch
};
/// The ticket with this number: first the Plan::tickets of the first batch, then the shares of the second.
Ticket ticket_of(const Plan&, std::int64_t number);

/// Numbers of tickets: each is in the queue, held by a worker, or done.
class TicketQueue {
 public:
  /// The first tickets of a worker, of `count` tickets: place, place + workers, ...; at most `ahead` numbers. place:
  /// index of the worker.
  static std::deque<std::int64_t> first(std::int64_t count, int place, int workers, int ahead);

  /// Opens tickets 0 to count - 1 and gives each worker its first(). Throws Error if earlier tickets are not done.
  void open(std::int64_t count, const std::vector<int>& workers, int ahead);
  /// Gives the worker the lowest ticket in the queue; -1: the queue is empty.
  std::int64_t take(int worker);
  /// The worker's oldest ticket is done: its gradient is in the weights.
  void finish(int worker);
  /// Returns the worker's tickets to the queue, since the worker is late or has failed.
  void give_back(int worker);
  /// Returns the tickets of all workers to the queue.
  void give_back_all();
  std::int64_t left() const;  ///< number of tickets that are not done

 private:
  std::int64_t fresh_ = 0, count_ = 0;            // no worker has had the numbers from fresh_ on
  std::set<std::int64_t> returned_;               // also in the queue
  std::map<int, std::deque<std::int64_t>> held_;  // by worker, in the order in which it trains them
};

}  // namespace trireme
