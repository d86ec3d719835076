// Emulated machines: ranks as threads in real time, whose links are as slow as those of a described cluster (a network
// emulator, as netem is one), and whose computations sleep. What ranks do between is real, and takes what it takes.
//
// A rank's link carries its operations one at a time, in the order in which the rank starts them. A message leaves when
// its sender has started it and its link is free, and has arrived after message_time; a collective begins when the last
// of its ranks has started it and has its link free, and takes collective_time of all their links. Data move at once,
// into copies; that they have come is told when the time is over.
//
// Each rank has a clock of its own: from the end of one sleep or wait on it goes by what the rank's thread computes, by
// the processor's time, and the next sleep ends at a moment of that clock. So what many ranks wait for the few cores
// here, and what sleeps come late, makes the next sleep shorter, and does not add up, as long as there is enough to
// sleep; what the executor itself takes does.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "parallel/comm/world/world.h"

namespace trireme::test {

/// Of one rank, used by its thread alone; never ahead of real time.
class EmulatedClock {
 public:
  EmulatedClock();
  Nanoseconds now() const { return at_ + processor() - processor_at_; }  ///< of the steady clock
  /// Until then, if it is not later already.
  void sleep_until(Nanoseconds then);
  /// Sleeps until then, from which it goes on, whatever it has lagged behind real time before.
  void restart(Nanoseconds then);
  /// What a sleep came late, mean since restart().
  Nanoseconds lateness() const { return sleeps_ == 0 ? 0 : late_ / sleeps_; }
  static Nanoseconds real();  ///< the steady clock

 private:
  static Nanoseconds processor();  // of this thread
  Nanoseconds at_, processor_at_, late_ = 0;
  std::int64_t sleeps_ = 0;
};

/// Runs body on `ranks` threads, rank r on the cluster's device r. The first error of a rank is rethrown. Throws Error
/// for an impossible cluster, and for one with fewer devices than ranks.
void emulate(int ranks, const Cluster&, const std::function<void(World&, EmulatedClock&)>& body);

}  // namespace trireme::test
