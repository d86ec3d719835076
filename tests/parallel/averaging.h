// Batches that ranks cannot share evenly, and what each rank, or worker, takes of them: for tests of strategies whose
// workers train apart.
#pragma once
#include <functional>
#include <random>

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "parallel/runtime/step.h"
#include "tests/support/ranks.h"

namespace trireme::test {

using Weights = std::vector<double>;

struct AveragingCase {
  std::string strategy;
  std::vector<Axis> axes{{"data", 3}};
  int workers = 3, micro = 1;  // workers: the ranks of each are neighbours
  double momentum = 0.9;
  int steps = 9;
  Index least = 1;  // rows of a batch for each rank and micro-batch
  std::int64_t epoch_steps = 0;
  /// What the meeting behind a step (from 0) makes of the workers' weights; rows: of each in the step.
  std::function<void(int step, const std::vector<double>& rows, std::vector<Weights>&)> meet;
};

inline Module network() {
  Module model = Sequential{Linear(6, 5), relu, Linear(5, 4), relu, Linear(4, 3)};
  convert(model, DType::f64);
  initialize(model, 1);
  return model;
}

struct Rows {
  Tensor x, y;
};
/// The batch of a step: a number of rows that ranks cannot share evenly.
inline Rows batch(const AveragingCase& c, int step) {
  std::mt19937 random(static_cast<unsigned>(step) * 77 + 5);
  const Index ranks = ranks_of(c.axes),
              n = c.micro * std::max<Index>(1, c.least * ranks + static_cast<Index>(random() % ranks));
  std::uniform_real_distribution<double> noise(-1, 1);
  std::vector<double> values(static_cast<std::size_t>(n * 6));
  for (double& v : values) v = noise(random);
  const Tensor y = Tensor::empty({n}, DType::i64);
  for (Index i = 0; i < n; ++i) y.data<std::int64_t>()[i] = static_cast<std::int64_t>(random() % 3);
  return {Tensor::of(values, {n, 6}, DType::f64), y};
}

/// Rows of a share of `all`, micro-batch by micro-batch, as a loader deals them.
inline Rows dealt(const Rows& all, int first, int last, int shares, int micro) {
  std::vector<Tensor> x, y;
  BatchContext context;
  context.share = RankShare(first, shares, micro);
  context.global_batch = all.x.dim(0);
  std::vector<double> ids;
  for (int k = 0; k < micro; ++k) {
    const auto [begin, end] = share(all.x.dim(0), k, micro);
    const Index from = begin + share(end - begin, first, shares).first;
    const Index to = begin + share(end - begin, last - 1, shares).second;
    x.push_back(all.x.rows(from, to));
    y.push_back(all.y.rows(from, to));
    if (micro > 1) context.microbatches.push_back(to - from);
    for (Index i = from; i < to; ++i) ids.push_back(static_cast<double>(i));
  }
  context.samples = Tensor::of(ids, {std::ssize(ids)}, DType::i64);
  return {concat(x, 0).with_batch(context), concat(y, 0)};
}

}  // namespace trireme::test
