#include "models/models.h"

#include <fmt/format.h>

#include "framework/suggest.h"
#include "models/resnet.h"

namespace trireme {

const std::vector<ModelRow>& models() {
  static const std::vector<ModelRow> rows{
      {"mlp", mlp},           {"lenet5", lenet5},     {"mnist_cnn", mnist_cnn}, {"resnet18", resnet18},
      {"resnet34", resnet34}, {"resnet50", resnet50}, {"resnet101", resnet101}, {"resnet152", resnet152}};
  return rows;
}

Module make_model(const std::string& name, const ModelOptions& options) {
  std::vector<std::string> names;
  for (const ModelRow& row : models()) {
    if (row.name == name) return row.make(options);
    names.push_back(row.name);
  }
  const std::string near = suggestion(name, names);
  fail("model", "'{}' is unknown; {} {}", name, near.empty() ? "known are" : "did you mean",
       near.empty() ? fmt::format("{}", fmt::join(names, ", ")) : "'" + near + "'?");
}

}  // namespace trireme
