// parallel_for: one loop over OpenMP for all CPU kernels. Uses threads() of the calling thread, never nests.
#pragma once
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <exception>

#include "kernels/core/runtime.h"
#include "kernels/core/view.h"

namespace trireme {

/// Work below this many elementary operations is not worth waking a second thread.
constexpr Index parallel_grain = 16384;

/// Calls f(begin, end), or f(begin, end, chunk) with chunk < threads(), on contiguous, disjoint chunks that
/// cover [0, n). Chunk k runs on thread k, so equal calls touch equal memory. cost: elementary operations per
/// item. The first exception is rethrown here.
template <class F>
void parallel_for(Index n, Index cost, F&& f) {
  if (n <= 0) return;
  auto call = [&f](Index begin, Index end, int chunk) {
    if constexpr (std::invocable<F&, Index, Index, int>)
      f(begin, end, chunk);
    else
      f(begin, end);
  };
  Index wanted = std::max<Index>(1, n * std::max<Index>(cost, 1) / parallel_grain);
  wanted = std::min(wanted, n);
  const int team = static_cast<int>(wanted > 1 ? std::min(wanted, static_cast<Index>(threads())) : wanted);
  if (team == 1) {  // inside of a parallel region, too
    call(0, n, 0);
    return;
  }
  std::exception_ptr error;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
#pragma omp parallel num_threads(team)
  {
    Index count = omp_get_num_threads(), me = omp_get_thread_num();
    Index begin = n * me / count, end = n * (me + 1) / count;
    try {
      if (begin < end) call(begin, end, static_cast<int>(me));
    } catch (...) {
      if (!failed.test_and_set()) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace trireme
