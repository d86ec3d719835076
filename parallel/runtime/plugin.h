// Plugins: custom strategies in a shared library that is built with the installed headers only. The trireme binary
// loads it (setting parallel.plugin). Its strategies, kinds of actions and codecs can then be used in train, plan,
// verify and simulate like the library's.
//
//   extern "C" void trireme_plugin(std::vector<trireme::StrategyRow>& rows) {
//     rows.push_back({"mine", [](trireme::StrategyOptions& given) { ... return trireme::Strategy(...); }, "data"});
//   }
#pragma once
#include "parallel/async/channel_plan.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/runtime/version.h"
#include "parallel/strategies/custom.h"
#include "parallel/strategies/rebuild.h"

/// Compiled into the plugin: the version of the headers that it was built with.
extern "C" [[gnu::used]] inline const char* trireme_plugin_version() { return trireme::library_version; }

namespace trireme {

/// Loads the plugin at a path and returns its strategies. It stays loaded until the process exits. Throws Error if the
/// file cannot be opened, has no function trireme_plugin, was compiled with headers of another version, adds no
/// strategy, or adds one whose name is taken.
std::vector<StrategyRow> load_strategies(const std::string& path);

}  // namespace trireme
