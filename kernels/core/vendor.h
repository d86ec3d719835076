// Which vendor libraries the kernels run on, for people to read.
#pragma once
#include <string>

namespace trireme {

/// "oneDNN 2.6.3, OpenMP, AVX-512 with bf16".
std::string cpu_library();

/// Seconds that this thread has spent inside the vendor's primitives.
struct VendorClock {
  bool on = false;     ///< whether time is counted
  double compute = 0,  ///< seconds in primitives other than reorders
      reorder = 0;     ///< seconds in reorders: changes of layout
};
VendorClock& vendor_clock();  ///< this thread's

}  // namespace trireme
