#include "models/vision/mlp.h"

namespace trireme {

Sequential mlp(const ModelOptions& o) {
  return {flatten, Linear(o.input.numel(), 512), relu, Linear(512, 256), relu, Linear(256, o.classes)};
}

namespace {
const bool mlp_added = add_model({"mlp", mlp});
}
}  // namespace trireme
