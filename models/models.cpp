#include "models/models.h"

#include <fmt/format.h>

#include "framework/suggest.h"
#include "models/resnet.h"
#include "models/vgg.h"

namespace trireme {

const std::vector<ModelRow>& models() {
  static const ModelOptions digits, cifar{.input = {32, 32, 3}}, imagenet{.input = {224, 224, 3}, .classes = 1000};
  static const std::vector<ModelRow> rows{
      {"mlp", mlp, digits},
      {"lenet5", lenet5, digits},
      {"mnist_cnn", mnist_cnn, digits},
      {"resnet20", [](const ModelOptions& o) { return cifar_resnet(20, o); }, cifar},
      {"resnet32", [](const ModelOptions& o) { return cifar_resnet(32, o); }, cifar},
      {"resnet56", [](const ModelOptions& o) { return cifar_resnet(56, o); }, cifar},
      {"resnet18", resnet18, imagenet},
      {"resnet34", resnet34, imagenet},
      {"resnet50", resnet50, imagenet},
      {"resnet101", resnet101, imagenet},
      {"resnet152", resnet152, imagenet},
      {"vgg16", vgg16, imagenet},
      {"alexnet", alexnet, imagenet},
  };
  return rows;
}

const ModelRow& model_row(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelRow& row : models()) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  const std::string near = suggestion(name, names);
  fail("model", "'{}' is unknown; {} {}", name, near.empty() ? "known are" : "did you mean",
       near.empty() ? fmt::format("{}", fmt::join(names, ", ")) : "'" + near + "'?");
}

}  // namespace trireme
