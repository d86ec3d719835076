// stub
#include "kernels/cuda/plugin.h"
namespace trireme::gpu {
std::string cudnn_version() { return "cuDNN"; }
}  // namespace trireme::gpu
