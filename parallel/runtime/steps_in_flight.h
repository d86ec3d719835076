// StepsInFlight: the steps of an asynchronous pipeline whose micro-batches have not been updated yet.
#pragma once
#include <cstdint>

#include "parallel/plan/action_kind.h"

namespace trireme {

/// The steps in flight of one program.
class StepsInFlight {
 public:
  StepsInFlight(const Plan& plan, const Program& program)
      : is_asynchronous_(trireme::is_asynchronous(plan)), most_back_(most_steps_back(program)) {}

  bool is_asynchronous() const { return is_asynchronous_; }
  /// Whether steps have begun since the last flush.
  bool any() const { return any_; }
  /// The number of the next step; updates: number of updates done.
  std::int64_t next(std::int64_t updates) const { return any_ ? last_ + 1 : updates; }
  /// Begins a step.
  void begin(std::int64_t step) {
    if (!any_) first_ = step;
    last_ = step;
    any_ = is_asynchronous_;
  }
  /// The first step since the last flush; next (the next step) if there is none.
  std::int64_t first(std::int64_t next) const { return any_ ? first_ : next; }
  /// Ends all steps in flight.
  void clear() { any_ = refuses_last_ = false; }
  /// From now on until clear(), the micro-batches of the latest step update nothing.
  void refuse_last() { refuses_last_ = true; }
  int most_back() const { return most_back_; }  ///< number of steps that a flush runs
  /// Whether an action runs in a step: the step of its micro-batch has begun.
  bool has(const Action& a, std::int64_t step) const {
    const std::int64_t from = step - a.microbatch.steps_ago;
    return first_ <= from && from <= last_;
  }
  /// Whether an update in a step changes nothing: its micro-batch belongs to a step that was refused.
  bool refuses(const Action& a, std::int64_t step) const {
    return refuses_last_ && step - a.microbatch.steps_ago == last_;
  }

 private:
  bool is_asynchronous_;
  int most_back_;
  bool any_ = false, refuses_last_ = false;
  std::int64_t first_ = 0, last_ = 0;
};

}  // namespace trireme
