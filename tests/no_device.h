// For tests of the CUDA backend, which machines without a GPU skip.
#pragma once
#include "kernels/backend.h"
#include "tests/catch.h"
#include "tests/oracle.h"

namespace trireme::test {

/// True, with the reason on stderr, where there is no device; the program then counts as skipped.
inline bool no_device() {
  const Backend& gpus = open_backend(DeviceKind::cuda);
  if (gpus.devices > 0) return false;
  WARN("skipped: " << gpus.absent);
  note_missing();
  return true;
}

}  // namespace trireme::test
