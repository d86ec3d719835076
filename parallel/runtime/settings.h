// What a rank is about to train, as text with a setting per line: for comparing ranks (parallel/comm/world/compare.h).
#pragma once
#include <string>

#include "parallel/runtime/step.h"

namespace trireme {

/// The name of a type as in source, from type_info::name(), or of a function's symbol.
std::string demangled(const char* symbol);
/// Of all but the model, and but for StepOptions::settings.
std::string settings_text(const Mesh&, const Strategy&, const Loss&, const OptimizerConfig&, const StepOptions&);
/// Every tensor's name, shape and type; of a Sequential (and those within it) also its layers' types, of plain
/// functions their names, with the options of layers that this library has.
std::string model_text(Module);

}  // namespace trireme
