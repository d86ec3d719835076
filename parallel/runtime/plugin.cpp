#include "parallel/runtime/plugin.h"

#include <dlfcn.h>

#include <algorithm>

namespace trireme {

std::vector<StrategyRow> load_strategies(const std::string& path) {
  constexpr std::string_view op = "parallel.plugin";
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;  // dlopen would search in other
                                                                                      // folders
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, ErrorKind::file, op, "{} cannot be opened: {}", path, library ? "" : ::dlerror());
  auto* made_with = reinterpret_cast<const char* (*)()>(::dlsym(library, "trireme_plugin_version"));
  auto* fill = reinterpret_cast<void (*)(std::vector<StrategyRow>&)>(::dlsym(library, "trireme_plugin"));
  check(made_with && fill, op, "{} has no function trireme_plugin: define it as in parallel/runtime/plugin.h", path);
  check(std::string_view(made_with()) == library_version, op,
        "{} was compiled with the headers of trireme {}, but this is trireme {}: compile it again", path, made_with(),
        library_version);
  std::vector<StrategyRow> rows;
  fill(rows);
  check(!rows.empty(), op, "{} adds no strategy; add a row in trireme_plugin", path);
  std::vector<std::string> names;
  for (const StrategyRow& row : strategies()) names.push_back(row.name);
  for (const StrategyRow& row : rows) {
    check(std::ranges::find(names, row.name) == names.end(), op,
          "{}: there is a strategy '{}' already; use another name", path, row.name);
    names.push_back(row.name);
  }
  return rows;
}

}  // namespace trireme
