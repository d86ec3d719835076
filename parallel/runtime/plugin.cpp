#include "parallel/runtime/plugin.h"

#include <dlfcn.h>

#include <algorithm>

namespace trireme {

std::vector<StrategyRow> load_strategies(const std::string& path) {
  constexpr std::string_view op = "parallel.plugin";
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;  // dlopen searches elsewhere
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, op, "{} cannot be opened: {}", path, library ? "" : ::dlerror());
  auto* fill = reinterpret_cast<void (*)(StrategyPlugin&)>(::dlsym(library, "trireme_plugin"));
  check(fill != nullptr, op, "{} has no function trireme_plugin (parallel/runtime/plugin.h)", path);
  StrategyPlugin plugin;
  fill(plugin);
  check(plugin.rows().empty() || plugin.version() == library_version, op,
        "{} was made with the headers of trireme {}, this is {}: compile it again", path, plugin.version(),
        library_version);
  for (const StrategyRow& row : plugin.rows())
    check(std::ranges::find(strategies(), row.name, &StrategyRow::name) == strategies().end(), op,
          "{}: there is a strategy '{}' already", path, row.name);
  return plugin.rows();
}

}  // namespace trireme
