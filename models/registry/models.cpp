#include "models/registry/models.h"

#include "kernels/core/rows.h"

namespace trireme {
namespace {

std::vector<ModelRow>& rows() {
  static std::vector<ModelRow> all;
  return all;
}

}  // namespace

const std::vector<ModelRow>& models() { return rows(); }

bool add_model(ModelRow row) { return add_row(rows(), std::move(row), "model"); }

const ModelRow& model_row(const std::string& name) { return find_row(models(), name, "model"); }

Module make_model(const std::string& name, const ModelOptions& options) {
  const ModelRow& row = model_row(name);
  check(row.sized || options.arch == ArchOptions{}, "model",
        "{} has one size: the settings arch.* are for transformers (gpt2, llama, bert, vit_b_16 and their like)", name);
  return row.make(options);
}

}  // namespace trireme
