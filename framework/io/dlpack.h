// DLPack (dmlc.github.io/dlpack): tensors handed to other libraries (NumPy, PyTorch, JAX) and taken from them within
// one process, without a copy.
#pragma once
#include "framework/tensor/tensor.h"

struct DLManagedTensor;  // <dlpack/dlpack.h>

namespace trireme {

/// The tensor's memory, which lives until the consumer calls the result's deleter. What is written there is the
/// tensor's, too, and no backward notices. Throws Error for an undefined tensor.
DLManagedTensor* to_dlpack(const Tensor&);
/// Takes over a managed tensor of the host or of a CUDA device: its memory where that is dense and row-major, a copy
/// where not; its deleter is called when the last tensor of that memory ends, or behind the copy. Bool becomes boolean.
/// Throws Error, the managed tensor still being the caller's, for other devices, for element types that no DType is,
/// and for more axes than Shape holds.
Tensor from_dlpack(DLManagedTensor*);

}  // namespace trireme
