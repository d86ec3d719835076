#include "models/registry/models.h"

#include "framework/io/rows.h"

namespace trireme {
namespace {

std::vector<ModelRow>& rows() {
  static std::vector<ModelRow> all;
  return all;
}

}  // namespace

const std::vector<ModelRow>& models() { return rows(); }

bool add_model(ModelRow row) {
  const auto at = std::ranges::lower_bound(rows(), row.name, {}, &ModelRow::name);
  check(at == rows().end() || at->name != row.name, "model", "'{}' is there already", row.name);
  rows().insert(at, std::move(row));
  return true;
}

const ModelRow& model_row(const std::string& name) { return find_row(models(), name, "model"); }

}  // namespace trireme
