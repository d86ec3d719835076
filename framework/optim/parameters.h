// Parameters: what a training program calls the ParameterStore of its model.
#pragma once
#include "framework/optim/parameter_store.h"

namespace trireme {

/// Parameters parameters(model): the model's store, bound to it.
using Parameters = ParameterStore;

/// Converts every floating weight, bias and buffer of a model to dtype (buffers to f32 when it is bf16 or f16) in
/// place, as torch.nn.Module.to. Throws Error for a dtype that is not floating, and for a tensor that lives in
/// Parameters already. Returns the model: Module model = convert(Net(), DType::f64).
Module convert(Module model, DType);

}  // namespace trireme
