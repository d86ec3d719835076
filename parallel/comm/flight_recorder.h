// FlightRecorder: what a rank did last, kept for the moment at which it fails (PyTorch's Flight Recorder): its calls of
// communicators and its actions, and what it is in the midst of. parallel/comm/crash_report.h writes it to a file.
#pragma once
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/kernel.h"

namespace trireme {

/// Of the thread that makes it, which is the rank's; others of the rank do not write to it. Writing takes no lock and
/// allocates nothing. Reading, from any thread or a signal handler, may find an entry half written.
class FlightRecorder {
 public:
  static constexpr int kept = 64;  ///< newest entries
  struct Entry {
    std::int64_t number = 0;            ///< from 1; 0: none yet
    std::int64_t begun = 0, ended = 0;  ///< microseconds since the recorder was made; ended 0: under way, or not told
    std::array<char, 120> text{};       ///< ends with 0; without quotes, backslashes and control characters
  };

  /// For profiles: one thing that took time on this thread.
  struct Event {
    enum Kind : int { call, wait, kernel, data, save, step };
    Kind kind = call;
    std::string name = {};            ///< of a call its text; of a wait what for
    std::int64_t begin = 0, end = 0;  ///< nanoseconds of the steady clock; end 0: not over
  };

  /// While it lives this thread's rank waits for others, for all that reports know.
  struct Wait {
    Wait();
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    bool outermost_;
  };
  /// While it lives, what this thread waits for, in words; else it is the newest entry.
  struct WaitFor {
    explicit WaitFor(const std::string& what);
    ~WaitFor();
    WaitFor(const WaitFor&) = delete;
    WaitFor& operator=(const WaitFor&) = delete;
  };

  FlightRecorder(int rank, int ranks);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  /// Of this thread; null: nobody records.
  static FlightRecorder* current();
  /// Of all ranks of this process, each of which stays as long as it is looked at.
  static void each(const std::function<void(const FlightRecorder&)>&);
  /// The same for a signal handler, which takes no lock; null where there was one that is gone.
  static std::span<const std::atomic<FlightRecorder*>> all();

  /// What the other ranks are in the midst of, a few words each: those of this process, else what set_others() said
  /// last. Empty: nobody knows.
  static std::string others();
  /// Of ranks of other processes.
  static void set_others(std::string);

  /// Puts down what begins: "all_reduce of 4096 f32 (sum)". Returns its number.
  std::int64_t begin(std::string_view text);
  /// It is over; nothing where it is no longer kept.
  void end(std::int64_t number);
  /// From now on calls and waits are also added there, by this thread; null: no more.
  void trace(std::vector<Event>* to) { events_ = to; }
  static std::int64_t nanoseconds();  ///< of the steady clock

  /// What the rank is in the midst of: "start", "step", "evaluate", "save". name lives as long as the program. step:
  /// optimizer steps done.
  void set_phase(const char* name, std::int64_t step);

  int rank() const { return rank_; }
  pthread_t thread() const { return thread_; }  ///< that made it
  int ranks() const { return ranks_; }          ///< of the job
  const char* phase() const { return phase_; }
  std::int64_t step() const { return step_; }
  std::int64_t count() const { return count_; }  ///< entries begun
  /// Grows with each entry and each kernel that the rank begins: the rank moves while this changes.
  std::uint64_t beats() const { return kernels_.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(count_); }
  std::int64_t waited() const { return waited_; }            ///< microseconds of all waits that are over
  std::int64_t waits_since() const { return waits_since_; }  ///< microseconds since it was made; 0: it does not wait
  std::int64_t now() const;                                  ///< microseconds since it was made
  const Entry& entry(std::int64_t number) const { return entries_[static_cast<std::size_t>(number % kept)]; }

 private:
  const int rank_, ranks_;
  const std::int64_t start_;
  const pthread_t thread_ = ::pthread_self();
  const std::atomic<std::uint64_t>& kernels_ = detail::kernels_asked;  // of that thread
  std::atomic<std::int64_t> count_ = 0, step_ = 0, waits_since_ = 0, waited_ = 0;
  std::atomic<const char*> phase_ = "start";
  std::array<Entry, kept> entries_;
  std::vector<Event>* events_ = nullptr;
};

/// An entry of this thread's recorder from here to the end of the block; nothing where there is none.
class FlightEntry {
 public:
  explicit FlightEntry(std::string_view text)
      : recorder_(FlightRecorder::current()), number_(recorder_ ? recorder_->begin(text) : 0) {}
  ~FlightEntry() {
    if (recorder_) recorder_->end(number_);
  }
  FlightEntry(const FlightEntry&) = delete;
  FlightEntry& operator=(const FlightEntry&) = delete;

 private:
  FlightRecorder* recorder_;
  std::int64_t number_;
};

}  // namespace trireme
