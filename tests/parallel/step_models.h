// What the tests of Step train: small models, images of noise, labels; and errors as text.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "parallel/runtime/step.h"
#include "tests/support/ranks.h"

namespace trireme::test {

inline Module small_model(std::uint64_t seed = 1) {
  Module model = Sequential{Conv2d(1, 3, 3), relu, flatten, Linear(48, 12), relu, Dropout(0.4), Linear(12, 5)};
  initialize(model, seed);
  return model;
}
/// Without ReLU: gradients are 0 nowhere.
inline Module smooth_model() {
  Module model = Sequential{Conv2d(1, 3, 3), flatten, Linear(48, 12), Linear(12, 5)};
  initialize(model, 1);
  return model;
}
inline Tensor noise(Index rows, std::uint64_t salt, Index first = 0) {
  std::vector<double> values;
  for (Index i = first * 36; i < (first + rows) * 36; ++i)
    values.push_back(static_cast<double>(mix(salt * 7919 + static_cast<std::uint64_t>(i)) % 1000) / 500 - 1);
  return Tensor::of(values, {rows, 6, 6, 1});
}
inline Tensor labels(Index rows, Index first = 0) {
  std::vector<double> values;
  for (Index i = first; i < first + rows; ++i)
    values.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(i)) % 5));
  return Tensor::of(values, {rows}, DType::i64);
}
inline std::pair<Index, Index> own_rows(const World& world, Index rows) {
  return share(rows, world.rank(), world.size());
}

/// What was thrown on this rank, on all ranks if they are threads.
template <class F>
std::string error_of(F&& body) {
  try {
    body();
  } catch (const Error& e) { return e.what(); }
  return "";
}
/// Rank 0's error when every rank runs body; body's errors stay on their rank.
template <class F>
std::string error_on_ranks(int ranks, F&& body) {
  return on_ranks(ranks, [&](World& world) { return error_of([&] { body(world); }); });
}

}  // namespace trireme::test
