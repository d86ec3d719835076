// FlightRecorder: the last actions of a rank, kept for error reports (like PyTorch's Flight Recorder): its communicator
// calls, its actions, and its current activity. parallel/comm/crash_report.h writes it to a file.
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

/// Records the actions of the thread that constructs it, the rank's main thread; other threads of the rank do not write
/// to it. Writing takes no lock and allocates nothing. Any thread or signal handler may read it, and may see an entry
/// that is half written.
class FlightRecorder {
 public:
  static constexpr int kept = 64;  ///< number of newest entries that are kept
  /// One action.
  struct Entry {
    std::int64_t number = 0;            ///< from 1; 0: none yet
    std::int64_t begun = 0, ended = 0;  ///< microseconds since construction; ended 0: in progress or unknown
    std::array<char, 120> text{};       ///< 0-terminated; has no quotes, backslashes or control characters
  };

  /// For profiles: one interval of this thread.
  struct Event {
    enum Kind : int { call, wait, kernel, data, save, step };  ///< what the thread did
    Kind kind = call;                                          ///< what this interval is
    std::string name = {};                                     ///< text of a call; what a wait waits for
    std::int64_t begin = 0, end = 0;                           ///< nanoseconds of the steady clock; end 0: in progress
  };

  /// While it lives, reports show this thread's rank as waiting for other ranks.
  struct Wait {
    Wait();
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    bool outermost_;
  };
  /// While it lives, reports show `what` as what this thread waits for; otherwise they show the newest entry.
  struct WaitFor {
    explicit WaitFor(const std::string& what);
    ~WaitFor();
    WaitFor(const WaitFor&) = delete;
    WaitFor& operator=(const WaitFor&) = delete;
  };

  /// rank: of this thread, among `ranks` of the job.
  FlightRecorder(int rank, int ranks);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  /// This thread's recorder; null: none.
  static FlightRecorder* current();
  /// Calls the function for the recorders of all ranks of this process. A recorder lives at least until its call
  /// returns.
  static void each(const std::function<void(const FlightRecorder&)>&);
  /// As each(), for a signal handler: takes no lock. Destroyed recorders are null.
  static std::span<const std::atomic<FlightRecorder*>> all();

  /// The activities of the other ranks, a few words each: ranks of this process, else the last text of set_others().
  /// Empty: unknown.
  static std::string others();
  /// Sets the text of others() for ranks of other processes.
  static void set_others(std::string);

  /// Records the start of an action: "all_reduce of 4096 f32 (sum)". Returns its number.
  std::int64_t begin(std::string_view text);
  /// Records the end of that action; does nothing if the entry is no longer kept.
  void end(std::int64_t number);
  /// From now on also appends this thread's calls and waits to `to`; null: stop.
  void trace(std::vector<Event>* to) { events_ = to; }
  static std::int64_t nanoseconds();  ///< time of the steady clock

  /// Sets the phase of the rank: "start", "step", "evaluate", "save". name must be a string literal. step: optimizer
  /// steps done.
  void set_phase(const char* name, std::int64_t step);

  int rank() const { return rank_; }             ///< of this recorder's thread
  pthread_t thread() const { return thread_; }   ///< the thread that made it
  int ranks() const { return ranks_; }           ///< ranks of the job
  const char* phase() const { return phase_; }   ///< as set_phase() set it
  std::int64_t step() const { return step_; }    ///< as set_phase() set it
  std::int64_t count() const { return count_; }  ///< entries begun
  /// A number that grows with each entry and each kernel of the rank: while it changes, the rank makes progress.
  std::uint64_t beats() const { return kernels_.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(count_); }
  std::int64_t waited() const { return waited_; }            ///< total of all finished waits in microseconds
  std::int64_t waits_since() const { return waits_since_; }  ///< start of the current wait, as now(); 0: not waiting
  std::int64_t now() const;                                  ///< microseconds since it was made
  /// The entry of this number, one of the newest `kept`.
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

/// Records an action from here to the end of the block in this thread's recorder, if there is one.
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
