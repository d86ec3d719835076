// What the environment says, read once.
#pragma once
#include <cstddef>

namespace emulator {

struct Order {
  enum Kind { forward, backward, shuffled } kind = forward;
  unsigned seed = 0;
};
struct Settings {
  int devices = 2;
  std::size_t memory = std::size_t{4} << 30;  ///< bytes of each
  Order order;
  bool fence = true;  ///< keep the host from device memory, where the processor can
  bool async = false;
  int driver = 13000;          ///< the CUDA that the driver knows, as CUDA writes it; 0: there is no driver
  int card = 90;               ///< compute capability, times ten
  bool virtual_memory = true;  ///< devices have the driver's virtual memory management
  bool peers = false;          ///< devices may be given access to one another's memory
  bool alone = true;           ///< cuDNN has engines for a forward convolution with no step behind it
};
const Settings& settings();
/// For tests.
void set_order(Order);

}  // namespace emulator
