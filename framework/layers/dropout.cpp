#include "framework/layers/dropout.h"

namespace trireme {

Dropout::Dropout(double probability) : p(probability) {
  check(p >= 0 && p < 1, "dropout", "probability is {}, expected 0 <= p < 1", p);
}

}  // namespace trireme
