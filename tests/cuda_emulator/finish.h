#pragma once
#include "emulator/api.h"

namespace emulator {
/// What a call returns: its own status or, where that is success, the failure of earlier work.
cudaError_t finish(cudaError_t status);
}  // namespace emulator
