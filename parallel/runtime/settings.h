// The settings of a rank's training as text, one per line, for comparing ranks (parallel/comm/world/compare.h).
#pragma once
#include <string>

#include "parallel/runtime/step.h"

namespace trireme {

/// All settings except the model and StepOptions::settings.
std::string settings_text(const Mesh&, const Strategy&, const Loss&, const OptimizerConfig&, const StepOptions&);
/// Every tensor's name, shape and type. For a Sequential, also nested ones: the types of its layers, the names of plain
/// functions, and the options of this library's layers.
std::string model_text(Module);

}  // namespace trireme
