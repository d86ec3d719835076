#include "models/registry/models.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/core/suggest.h"

namespace trireme {
namespace {

std::vector<ModelRow>& rows() {
  static std::vector<ModelRow> all;
  return all;
}

}  // namespace

const std::vector<ModelRow>& models() { return rows(); }

bool add_model(ModelRow row) {
  const auto at = std::lower_bound(rows().begin(), rows().end(), row.name,
                                   [](const ModelRow& r, const std::string& name) { return r.name < name; });
  check(at == rows().end() || at->name != row.name, "model", "'{}' is there already", row.name);
  rows().insert(at, std::move(row));
  return true;
}

const ModelRow& model_row(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelRow& row : models()) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  fail("model", "{}", [&] { return unknown_name(name, names); });
}

}  // namespace trireme
