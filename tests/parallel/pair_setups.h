// The two networks that pairs of strategies train.
#pragma once
#include "tests/parallel/training.h"

namespace trireme::test {

/// Sums of integers round nowhere, so that the bits are those of any machine: three layers deep, three steps of 1/8,
/// and momentum 1/2.
inline Setup exact() {
  return {.model =
              [] {
                return with_integers(Sequential{Conv2d(1, 4, 3), relu, MaxPool(2), Dropout(0.5), flatten, Linear(36, 8),
                                                relu, Linear(8, 5)});
              },
          .loss = pattern_loss,
          .optimizer_config = Sgd{.lr = 0.125, .momentum = 0.5},
          .samples = 20,
          .batch = 8,
          .shape = {8, 8, 1},
          .integers = true};
}
/// Here the order of every sum shows, and the width of vectors.
inline Setup normed() {
  return {.model =
              [] {
                return Sequential{Conv2d(1, 4, 3, {.bias = false}),
                                  BatchNorm(4),
                                  relu,
                                  MaxPool(2),
                                  flatten,
                                  Linear(36, 8),
                                  relu,
                                  Dropout(0.5),
                                  Linear(8, 5)};
              },
          .optimizer_config = Adam{.lr = 0.01},
          .samples = 20,
          .batch = 8,
          .shape = {8, 8, 1}};
}

}  // namespace trireme::test
