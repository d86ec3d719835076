// The vendor libraries of the CPU kernels, and the time spent in them.
#pragma once
#include <string>

namespace trireme {

/// For display: "oneDNN 2.6.3, OpenMP, AVX-512 with bf16".
std::string cpu_library();

/// Seconds that this thread has spent in the vendor's primitives.
struct VendorClock {
  bool on = false;     ///< whether time is counted
  double compute = 0,  ///< seconds in primitives other than reorders
      reorder = 0;     ///< seconds in reorders (changes of memory layout)
};
VendorClock& vendor_clock();  ///< the clock of this thread

}  // namespace trireme
