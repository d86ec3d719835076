// For tests of the CUDA backend, which machines without a GPU skip.
#pragma once
#include "kernels/core/backend.h"
#include "tests/support/oracle.h"

namespace trireme::test {

/// True, with the reason noted, where there is no device; the program then counts as skipped.
inline bool no_device() {
  const Backend& gpus = open_backend(DeviceKind::cuda);
  if (gpus.devices > 0) return false;
  note_missing("no GPU: " + gpus.absent);
  return true;
}

}  // namespace trireme::test
