// Backends of devices. The CPU backend is part of the library. The CUDA backend is a plugin, opened at the first use of
// a CUDA device, so that one binary runs on machines with and without CUDA's libraries.
#pragma once
#include <string>
#include <vector>

#include "kernels/core/device.h"

namespace trireme {

/// The devices of one kind on this machine.
struct Backend {
  int devices = 0;                 ///< number of them; 1 for the CPU
  std::string absent;              ///< if there are none: the reason
  std::string library;             ///< vendor libraries, for display; empty: the backend is not opened
  std::vector<std::string> names;  ///< of each device: "NVIDIA H200, 141 GB"
};

/// The devices of a kind. The first call for CUDA opens the plugin: libtrireme_cuda.so next to the library, or the file
/// that TRIREME_CUDA_PLUGIN names. A process with raised rights (setuid) ignores that variable, since it runs the
/// file's code. Never throws.
const Backend& open_backend(DeviceKind kind);

/// How devices multiply f32 matrices: in f32 (highest), or rounded to 10 bits of mantissa (tf32), which is faster where
/// the hardware has it. As torch.set_float32_matmul_precision.
enum class MatmulPrecision { highest, tf32 };
/// Sets the precision of the process, for kernels that start after the call.
void set_f32_product(MatmulPrecision);
MatmulPrecision f32_product();  ///< the current precision; default highest

/// Whether equal calls of this process must give equal bits (true, the default), or may sum in any order where that is
/// faster (false). As torch.use_deterministic_algorithms.
void set_deterministic(bool);
bool deterministic();  ///< the current setting; default true

}  // namespace trireme
