// The example strategies and codec (models/examples/custom_strategies.h) as a plugin.
#include <trireme/parallel/runtime/plugin.h>

#include "custom_strategies.h"
using namespace custom_strategies;

extern "C" void trireme_plugin(std::vector<StrategyRow>& rows) {
  const auto every = [](StrategyOptions& given) {
    int steps = 4;
    given.read({{.name = "every", .value = &steps, .least = 1}});
    return diloco(steps);
  };
  rows.push_back({"rounded", [](StrategyOptions&) { return on_gradients(rounded); }, "data"});
  rows.push_back({"adasum", [](StrategyOptions&) { return adasum(); }, "data"});
  rows.push_back({"choco", [](StrategyOptions&) { return choco(); }, "data"});
  rows.push_back({"diloco", every, "data"});
}
