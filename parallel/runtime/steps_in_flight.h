// StepsInFlight: the steps whose micro-batches a program of an asynchronous pipeline has not run to their update yet.
#pragma once
#include <cstdint>

#include "parallel/plan/action_kind.h"

namespace trireme {

class StepsInFlight {
 public:
  StepsInFlight(const Plan& plan, const Program& program)
      : plan_(plan), is_asynchronous_(trireme::is_asynchronous(plan)), most_back_(most_steps_back(plan, program)) {}

  bool is_asynchronous() const { return is_asynchronous_; }
  /// Whether steps have come in since the last flush.
  bool any() const { return any_; }
  /// The number of the next step; updates: those done.
  std::int64_t next(std::int64_t updates) const { return any_ ? last_ + 1 : updates; }
  /// A step comes in.
  void begin(std::int64_t step) {
    if (!any_) first_ = step;
    last_ = step, any_ = is_asynchronous_;
  }
  /// The one that came in first behind the last flush; next: the next step, where that will be the one.
  std::int64_t first(std::int64_t next) const { return any_ ? first_ : next; }
  /// Nothing is in flight from now on.
  void clear() { any_ = false; }
  int most_back() const { return most_back_; }  ///< steps that a flush takes
  /// Whether an action has something to do in a step: what its micro-batch belongs to has come in.
  bool has(const Action& a, std::int64_t step) const {
    const std::int64_t from = step - steps_back(plan_, a);
    return first_ <= from && from <= last_;
  }

  /// Whether it is of the step that came in last.
  bool is_last(const Action& a, std::int64_t step) const { return step - steps_back(plan_, a) == last_; }

 private:
  const Plan& plan_;
  bool is_asynchronous_;
  int most_back_;
  bool any_ = false;
  std::int64_t first_ = 0, last_ = 0;
};

}  // namespace trireme
