// Ceilings: the rates that a device reaches at its best, to compare others with.
#pragma once
#include "framework/tensor/tensor.h"

namespace trireme {

struct Ceilings {
  double bytes = 0,    ///< bytes per second of a large copy, read and written
      operations = 0;  ///< multiplications and additions per second of a large matrix product
};
/// Measures them, with products of this type. Takes a fraction of a second.
Ceilings measure_ceilings(Device, DType);

}  // namespace trireme
