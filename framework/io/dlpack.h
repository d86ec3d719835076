// DLPack (dmlc.github.io/dlpack): exchanges tensors with other libraries (NumPy, PyTorch, JAX) in one process, without
// a copy.
#pragma once
#include "framework/tensor/tensor.h"

struct DLManagedTensor;  // <dlpack/dlpack.h>

namespace trireme {

/// The tensor's memory, which lives until the consumer calls the result's deleter. The consumer's writes change the
/// tensor, unnoticed by backward. Throws Error for an undefined tensor.
DLManagedTensor* to_dlpack(const Tensor&);
/// Takes over a managed tensor of the host or of a CUDA device. The result shares its memory if that is dense and
/// row-major, else it is a copy. The deleter is called when the last tensor of that memory ends, or after the copy.
/// Bool becomes boolean. Throws Error for other devices, element types without a DType, and more axes than Shape
/// supports; the caller then still owns the managed tensor.
Tensor from_dlpack(DLManagedTensor*);

}  // namespace trireme
