// The multiprocessor: runs the blocks of a grid one after the other, each thread of a block on a fiber. A fiber that
// finishes its thread takes the next, so that a kernel without barriers costs one fiber.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "emulator/types.h"
#include "emulator/warp.h"
#include "fiber.h"
#include "settings.h"

namespace emulator {

constexpr int most_threads = 1024, lanes = 32;

class Engine {
 public:
  Engine();
  /// What went wrong, or nothing. Kernels must not throw; where one does, that is what went wrong.
  std::string run(dim3 blocks, dim3 threads, const std::function<void()>& thread);
  /// Forgets what its fibers hold of the host thread that they ran on.
  void reset();

  int meet_block(bool vote, const Site&);
  std::uint64_t meet_warp(unsigned mask, std::uint64_t value, int source, const Site&, bool ballot);
  int lane() const { return thread_ % lanes; }

 private:
  struct Lane {
    Fiber* fiber = nullptr;
    std::uint64_t value = 0, result = 0;
    int source = 0;
  };
  struct WarpRendezvous {
    unsigned mask, arrived;
    Site site;
  };
  struct Warp {
    std::array<WarpRendezvous, lanes> meetings;
    int count = 0;
  };

  static void entry();
  [[noreturn]] void serve();
  void run_thread();
  void start_block(unsigned long long place);
  void go(int thread);  // threadIdx and thread_ for it
  void wait();
  int take_ready();
  void release(int thread) { ready_[last_++ % most_threads] = static_cast<short>(thread); }
  Fiber& idle();
  void fail(std::string text);
  /// The place-th of n, in the order asked for.
  unsigned long long drawn(unsigned long long place, unsigned long long n) const;
  void settle(Warp&, int meeting, int first, bool ballot);
  std::string stuck() const;

  Fiber host_;
  std::vector<Fiber*> idle_, all_;
  Fiber* current_ = nullptr;
  const std::function<void()>* work_ = nullptr;
  std::string failure_;
  Order drawing_;
  unsigned draw_ = 0;

  // The block that runs
  int threads_ = 0, started_ = 0, finished_ = 0, thread_ = 0;
  std::array<short, most_threads> order_{}, ready_{};
  unsigned first_ = 0, last_ = 0;  // ready_[first_..last_): threads whose wait is over
  std::array<Lane, most_threads> lanes_;
  std::array<Warp, most_threads / lanes> warps_;
  int arrived_ = 0, votes_ = 0, result_ = 0;
  Site barrier_{};
};

}  // namespace emulator
