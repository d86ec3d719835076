// StepsInFlight: the steps of an asynchronous pipeline whose micro-batches have not reached their updates yet
// (pipeline(schedule=pipedream) and 2bw). Other plans have none.
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
  /// The number of the next step, from 0. updates: number of steps that the optimizer has counted.
  std::int64_t next(std::int64_t updates) const { return any_ ? last_ + 1 : updates; }
  /// Begins a step.
  void begin(std::int64_t step) {
    if (!any_) first_ = step;
    last_ = step;
    any_ = is_asynchronous_;
  }
  /// The first step since the last flush; `next`, the number of the next step, if there is none.
  std::int64_t first(std::int64_t next) const { return any_ ? first_ : next; }
  /// Ends all steps in flight.
  void clear() { any_ = refuses_last_ = false; }
  /// From now on until clear(), the micro-batches of the latest step update nothing.
  void refuse_last() { refuses_last_ = true; }
  /// The largest MicroBatch::steps_ago of the program: the number of steps without new rows that a flush runs.
  int most_back() const { return most_back_; }
  /// Whether an action runs in a step: a step since the last flush has brought its micro-batch.
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
