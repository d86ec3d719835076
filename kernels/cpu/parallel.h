// parallel_for: the OpenMP loop of all CPU kernels. It uses threads() of the calling thread and never nests.
#pragma once
#include <algorithm>
#include <concepts>

#include "kernels/core/runtime.h"
#include "kernels/core/view.h"

namespace trireme {

/// Below this number of elementary operations a second thread does not pay.
constexpr Index parallel_grain = 16384;

namespace detail {
/// Runs call(f, begin, end, chunk) on a team of OpenMP threads and rethrows the first exception. (It is compiled in the
/// library, so that programs with their own kernels do not need -fopenmp.)
void run_team(int team, Index n, void (*call)(const void* f, Index begin, Index end, int chunk), const void* f);
}  // namespace detail

/// Calls f(begin, end), or f(begin, end, chunk) with chunk < threads(), on contiguous, disjoint chunks that cover [0,
/// n). Chunk k runs on thread k, so that equal calls touch equal memory. cost: elementary operations per item. Rethrows
/// the first exception.
template <class F>
void parallel_for(Index n, Index cost, F&& f) {
  if (n <= 0) return;
  const auto call = [&f](Index begin, Index end, int chunk) {
    if constexpr (std::invocable<F&, Index, Index, int>)
      f(begin, end, chunk);
    else
      f(begin, end);
  };
  Index wanted = std::max<Index>(1, n * std::max<Index>(cost, 1) / parallel_grain);
  wanted = std::min(wanted, n);
  const int team = static_cast<int>(wanted > 1 ? std::min(wanted, static_cast<Index>(threads())) : wanted);
  if (team == 1) return call(0, n, 0);  // inside of a parallel region, too
  using Call = decltype(call);
  detail::run_team(
      team, n, [](const void* c, Index begin, Index end, int chunk) { (*static_cast<Call*>(c))(begin, end, chunk); },
      &call);
}

}  // namespace trireme
