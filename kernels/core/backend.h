// Backends that are not part of the library: the CUDA one is a plugin, opened when a CUDA device is first asked for, so
// that one binary serves machines with and without CUDA's libraries.
#pragma once
#include <string>
#include <vector>

#include "kernels/core/device.h"

namespace trireme {

/// Devices of one kind on this machine.
struct Backend {
  int devices = 0;                 ///< number of them; 1 for the CPU
  std::string absent;              ///< why there are none
  std::string library;             ///< what it runs on, for people to read; empty: not opened
  std::vector<std::string> names;  ///< of the devices: "NVIDIA H200, 141 GB"
};

/// What the machine offers of this kind; the first call opens the plugin (libtrireme_cuda.so beside the library, or the
/// file that TRIREME_CUDA_PLUGIN names: its code runs, so a program with raised rights ignores it). Never throws.
const Backend& open_backend(DeviceKind kind);

/// How f32 products are taken on devices that have a faster, coarser way: in f32 throughout, or with 10 bits of
/// mantissa (TF32). PyTorch's torch.set_float32_matmul_precision.
enum class MatmulPrecision { highest, tf32 };
/// For the process; kernels that start later follow it.
void set_f32_product(MatmulPrecision);
MatmulPrecision f32_product();  ///< as set; highest at first

/// For the process: whether a call must give the same bits every time (the default; compare
/// torch.use_deterministic_algorithms), or may add up in the order in which a device happens to finish, where that is
/// faster.
void set_deterministic(bool);
bool deterministic();  ///< as set; true at first

}  // namespace trireme
