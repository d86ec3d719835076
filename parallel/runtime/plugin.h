// Strategies from outside of the tree: a shared library, made with the installed headers alone, that the trireme binary
// opens (setting parallel.plugin): its strategies then stand beside the library's own in train, plan, verify and
// simulate, with the kinds of actions and the codecs that they bring.
//
//   extern "C" void trireme_plugin(trireme::StrategyPlugin& plugin) {
//     plugin.add({"mine", [](trireme::StrategyOptions& given) { ... return trireme::Strategy(...); }, "data"});
//   }
#pragma once
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/runtime/action_context.h"
#include "parallel/runtime/version.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {

class StrategyPlugin {
 public:
  /// Compiled into the plugin: it says which version's headers made it.
  void add(StrategyRow row) {
    version_ = library_version;
    rows_.push_back(std::move(row));
  }
  const std::string& version() const { return version_; }
  const std::vector<StrategyRow>& rows() const { return rows_; }

 private:
  std::string version_;
  std::vector<StrategyRow> rows_;
};

/// The strategies of the library at a path, which stays open until the process ends. Throws Error where it cannot be
/// opened, is no plugin or that of another version, and for names that there are already.
std::vector<StrategyRow> load_strategies(const std::string& path);

}  // namespace trireme
