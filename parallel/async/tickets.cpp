#include "parallel/async/tickets.h"

#include <algorithm>

#include "parallel/plan/plan.h"

namespace trireme {

Ticket ticket_of(const Plan& plan, std::int64_t number) {
  const int shares = plan.tickets;
  return {number / shares, {static_cast<int>(number % shares), shares, plan.microbatches}};
}

std::deque<std::int64_t> TicketQueue::first(std::int64_t count, int place, int workers, int ahead) {
  std::deque<std::int64_t> numbers;
  for (std::int64_t t = place; t < count && std::ssize(numbers) < ahead; t += workers) numbers.push_back(t);
  return numbers;
}

void TicketQueue::open(std::int64_t count, const std::vector<int>& workers, int ahead) {
  check(left() == 0, ErrorKind::internal, "tickets", "{} of {} are not done", left(), count_);
  const int all = static_cast<int>(workers.size());
  count_ = count;
  fresh_ = std::min<std::int64_t>(count, std::int64_t{all} * ahead);
  for (int place = 0; place < all; ++place)
    held_[workers[static_cast<std::size_t>(place)]] = first(count, place, all, ahead);
}

std::int64_t TicketQueue::take(int worker) {
  if (returned_.empty() && fresh_ == count_) return -1;
  const std::int64_t number = returned_.empty() ? fresh_++ : returned_.extract(returned_.begin()).value();
  held_[worker].push_back(number);
  return number;
}

void TicketQueue::finish(int worker) {
  auto& held = held_[worker];
  check(!held.empty(), ErrorKind::internal, "tickets", "rank {} has sent a gradient, but has no ticket", worker);
  held.pop_front();
}

void TicketQueue::give_back(int worker) {
  auto& held = held_[worker];
  returned_.insert(held.begin(), held.end());
  held.clear();
}

void TicketQueue::give_back_all() {
  for (const auto& [worker, held] : held_) returned_.insert(held.begin(), held.end());
  for (auto& [worker, held] : held_) held.clear();
}

std::int64_t TicketQueue::left() const {
  std::int64_t left = count_ - fresh_ + std::ssize(returned_);
  for (const auto& [worker, held] : held_) left += std::ssize(held);
  return left;
}

}  // namespace trireme
