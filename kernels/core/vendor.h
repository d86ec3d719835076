// Which vendor libraries the kernels run on, for people to read.
#pragma once
#include <string>

namespace trireme {

/// "oneDNN 2.6.3, OpenMP, avx512_core_bf16".
std::string cpu_library();

/// Seconds that this thread has spent inside the vendor's primitives, counted while on: compute, and changes of layout.
struct VendorClock {
  bool on = false;
  double compute = 0, reorder = 0;
};
VendorClock& vendor_clock();

}  // namespace trireme
