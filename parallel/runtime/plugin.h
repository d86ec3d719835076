// Strategies from outside of the tree: a shared library, made with the installed headers alone, that the trireme binary
// opens (setting parallel.plugin): its strategies then stand beside the library's own in train, plan, verify and
// simulate, with the kinds of actions and the codecs that they bring.
//
//   extern "C" void trireme_plugin(std::vector<trireme::StrategyRow>& rows) {
//     rows.push_back({"mine", [](trireme::StrategyOptions& given) { ... return trireme::Strategy(...); }, "data"});
//   }
#pragma once
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/runtime/version.h"
#include "parallel/strategies/rebuild.h"

/// Compiled into the plugin: which version's headers made it.
extern "C" [[gnu::used]] inline const char* trireme_plugin_version() { return trireme::library_version; }

namespace trireme {

/// The strategies of the library at a path, which stays open until the process ends. Throws Error where it cannot be
/// opened, is no plugin or that of another version, brings no strategy, and for a name that there is already.
std::vector<StrategyRow> load_strategies(const std::string& path);

}  // namespace trireme
