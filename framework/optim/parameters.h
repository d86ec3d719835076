// Parameters: the name of ParameterStore in training programs.
#pragma once
#include "framework/optim/parameter_store.h"

namespace trireme {

/// Parameters parameters(model): the model's store, bound to it.
using Parameters = ParameterStore;

/// Converts every floating weight, bias and buffer of a model to dtype in place, as torch.nn.Module.to (buffers to f32
/// if dtype is bf16 or f16). Returns the model: Module model = convert(Net(), DType::f64). Throws Error for a dtype
/// that is not floating, and for a tensor that is in a ParameterStore.
Module convert(Module model, DType);

}  // namespace trireme
