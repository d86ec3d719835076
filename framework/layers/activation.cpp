#include "framework/layers/activation.h"

#include "kernels/core/rows.h"

namespace trireme {
namespace {

struct Row {
  std::string name;
  Tensor (*op)(const Tensor&);
};

}  // namespace

Tensor (*activation_named(const std::string& name))(const Tensor&) {
  const std::vector<Row> rows{{"gelu", gelu}, {"gelu_new", gelu_tanh}, {"gelu_tanh", gelu_tanh}, {"mish", mish},
                              {"relu", relu}, {"sigmoid", sigmoid},    {"silu", silu},           {"tanh", tanh}};
  return find_row(rows, name, "activation").op;
}

}  // namespace trireme
