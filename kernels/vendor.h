// Which vendor libraries the kernels run on, for people to read.
#pragma once
#include <string>

namespace trireme {

/// "oneDNN 2.6.3, OpenMP, avx512_core_bf16".
std::string cpu_library();

}  // namespace trireme
