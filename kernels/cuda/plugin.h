// Functions of the plugin's parts that its entry point uses.
#pragma once
#include <string>

#include "kernels/core/runtime.h"

namespace trireme::gpu {

Runtime& device_runtime();
std::string cudnn_version();   ///< "cuDNN 9.19.0"
std::string cublas_version();  ///< "cuBLASLt 13.1.0"

}  // namespace trireme::gpu
