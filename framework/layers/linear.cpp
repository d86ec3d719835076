#include "framework/layers/linear.h"

namespace trireme {

Linear::Linear(Index in, Index out, Options options) : init(std::move(options.init)) {
  check(in > 0 && out > 0, "linear", "{} inputs and {} outputs, expected at least 1 of each", in, out);
  weight = init.make({out, in});
  if (options.bias) bias = init.of_bias(weight.shape()).make({out}, 1);
}

}  // namespace trireme
