// Local SGD (Stich, arXiv 1805.09767) as a plugin: weights become their mean every few steps.
#include <trireme/parallel/runtime/plugin.h>
#include <trireme/trireme.h>
using namespace trireme;

Strategy local_means(int every) {
  const auto average = [](ActionContext& now) { now.all_reduce(now.values(), ReduceOp::average); };
  return periodically({.name = "local_means", .every = every, .sends = {CallKind::all_reduce}, .run = average});
}

extern "C" void trireme_plugin(std::vector<StrategyRow>& rows) {
  const auto parse = [](StrategyOptions& given) {
    int every = 4;
    given.read({{.name = "every", .value = &every, .least = 1}});
    return local_means(every);
  };
  rows.push_back({"local_means", parse, "data"});
}
