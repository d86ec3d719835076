// BatchContext: tensors name their batch, ops hand it on, and random layers, losses and Step go by it.
#include "framework/tensor/batch.h"

#include <cmath>
#include <thread>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/layers/recompute.h"
#include "framework/ops/ops.h"
#include "framework/optim/optimizer.h"
#include "parallel/runtime/step.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_batch {

using namespace trireme;
using test::contains;
using Values = std::vector<double>;

namespace {

Tensor ramp(const Shape& shape, double from = 1) {
  Values v(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = from + static_cast<double>(i % 7);
  return Tensor::of(v, shape, DType::f64);
}
Tensor ids(Index rows, double from = 0) {
  Values v;
  for (Index i = 0; i < rows; ++i) v.push_back(from + static_cast<double>(i));
  return Tensor::of(v, {rows}, DType::i64);
}
BatchContext batch_of_rows(Index rows, Index global, double from = 0) {
  return {.seed = 5, .step = 9, .samples = ids(rows, from), .global_batch = global};
}
/// What dropout multiplies by.
Values mask(const Tensor& x, std::uint64_t layer = 1) {
  return dropout(Tensor::full(x.shape(), 1, DType::f64) * (x - x + Tensor::full(x.shape(), 1, DType::f64)), 0.5, layer)
      .to_vector();
}

}  // namespace

TEST_CASE("every op hands on the batch of its inputs, recorded or not") {
  const std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>> ops{
      {"relu", [](const Tensor& x) { return relu(x); }},
      {"add", [](const Tensor& x) { return Tensor::scalar(1, DType::f64) + x; }},
      {"linear",
       [](const Tensor& x) {
         return linear(x, ramp({2, 4}));
       }},
      {"conv",
       [](const Tensor& x) {
         return conv(x.reshape({6, 2, 2, 1}), ramp({3, 1, 1, 1}));
       }},
      {"max_pool",
       [](const Tensor& x) {
         return max_pool(x.reshape({6, 2, 2, 1}), {.window = {2, 2}, .stride = {2, 2}});
       }},
      {"flatten",
       [](const Tensor& x) {
         return flatten(x.reshape({6, 2, 1, 2}));
       }},
      {"softmax", [](const Tensor& x) { return softmax(x); }},
      {"layer_norm", [](const Tensor& x) { return layer_norm(x); }},
      {"permute",
       [](const Tensor& x) {
         return permute(x, {1, 0});
       }},
      {"reduce", [](const Tensor& x) { return reduce(x, ReduceKind::mean, {1}); }},
      {"to", [](const Tensor& x) { return x.to(DType::f32); }},
      {"detach", [](const Tensor& x) { return x.detach(); }},
      {"clone", [](const Tensor& x) { return x.clone(); }},
      {"concat",
       [](const Tensor& x) {
         return concat({x, relu(x)}, 1);
       }},
      {"split",
       [](const Tensor& x) {
         return split(x, {1, 3}, 1)[1];
       }},
      {"pad",
       [](const Tensor& x) {
         return pad(x, {0, 1}, {0, 1});
       }},
      {"matmul",
       [](const Tensor& x) {
         return matmul(x, ramp({4, 3}));
       }},
      {"dropout", [](const Tensor& x) { return dropout(x, 0.5, 1); }},
      {"sum", [](const Tensor& x) { return sum(x); }}};
  for (const bool grad : {false, true})
    for (auto& [name, op] : ops) {
      INFO(name);
      Tensor x = ramp({6, 4}).with_batch(batch_of_rows(6, 18));
      x.require_grad(grad);
      const Tensor y = op(x);
      REQUIRE(y.batch());
      CHECK(y.batch() == x.batch());
    }
  CHECK_FALSE(relu(ramp({2, 2})).batch());
}

TEST_CASE("losses divide by the global batch of their own tensors, and count rows per sample") {
  const Tensor logits = ramp({6, 4}).with_batch(batch_of_rows(6, 18));
  const Tensor labels = Tensor::zeros({6}, DType::i64);
  const double alone = cross_entropy(ramp({6, 4}), labels).item();
  CHECK(cross_entropy(logits, labels).item() == Approx(alone / 3));
  // [B * T, V] of B = 6 sequences
  const Tensor tokens = ramp({6, 5, 4}).with_batch(batch_of_rows(6, 6));
  const Tensor classes = Tensor::zeros({6, 5}, DType::i64);
  const double per_position = cross_entropy(tokens, classes).item();
  CHECK(cross_entropy(tokens.reshape({-1, 4}), classes.reshape({-1})).item() == Approx(per_position));
  const LabelLossOptions some{.ignore_index = 3};
  CHECK(cross_entropy_with(some)(tokens.reshape({-1, 4}), classes.reshape({-1})).item() == Approx(per_position));
  CHECK(mse_loss(tokens.reshape({-1, 4}), ramp({30, 4}, 3)).item() ==
        Approx(mse_loss(tokens, ramp({30, 4}, 3).reshape({6, 5, 4})).item()));
  // The context of the target serves where the prediction carries none.
  CHECK(cross_entropy(ramp({6, 4}), labels.with_batch(batch_of_rows(6, 18))).item() == Approx(alone / 3));
  // A slice: its own mean where the batch is all here, refused where others have the rest.
  const Tensor whole = ramp({6, 4}).with_batch(batch_of_rows(6, 6));
  CHECK(cross_entropy(whole.rows(0, 4), labels.rows(0, 4)).item() ==
        Approx(cross_entropy(ramp({6, 4}).rows(0, 4), labels.rows(0, 4)).item()));
  CHECK_ERROR(cross_entropy(logits.rows(0, 4), labels.rows(0, 4)), usage, "cross_entropy");
  const Tensor share = ramp({6, 5, 4}).with_batch(batch_of_rows(6, 12)).reshape({-1, 4});
  CHECK_ERROR(cross_entropy(share.rows(0, 7), classes.reshape({-1}).rows(0, 7)), usage, "cross_entropy");
  CHECK_ERROR(cross_entropy(split(share, {7, 23}, 0)[0], classes.reshape({-1}).rows(0, 7)), usage, "cross_entropy");
  CHECK(cross_entropy(split(tokens.reshape({-1, 4}), {7, 23}, 0)[1], classes.reshape({-1}).rows(7, 30)).item() ==
        Approx(cross_entropy(ramp({30, 4}).rows(7, 30), classes.reshape({-1}).rows(7, 30)).item()));
  CHECK_ERROR(cross_entropy(matmul(ramp({4, 6}), logits), labels.rows(0, 4)), usage, 6, 4);
}

TEST_CASE("batches that are joined train as one, and come apart again") {
  const Tensor a = ramp({3, 4}).with_batch(batch_of_rows(3, 6, 10));
  const Tensor b = ramp({2, 4}, 5).with_batch(batch_of_rows(2, 4, 10));
  const Tensor both = concat({a, b}, 0);
  REQUIRE(both.batch());
  CHECK(both.batch()->global_batch == 10);
  CHECK(both.batch()->samples.numel() == 5);
  CHECK(mse_loss(both, Tensor::zeros({5, 4}, DType::f64)).item() ==
        Approx(sum(square(concat({ramp({3, 4}), ramp({2, 4}, 5)}, 0))).item() / 40));
  const auto parts = split(relu(both), {3, 2}, 0);
  CHECK(parts[0].batch() == a.batch());
  CHECK(parts[1].batch() == b.batch());
  CHECK(both.rows(3, 5).batch() == b.batch());
  // Rows that come from no batch, as a generator's: a batch of their own, which ranks cannot share.
  for (const bool fakes_first : {false, true}) {
    const Tensor real = ramp({3, 4}).with_batch(batch_of_rows(3, 3)), fake = ramp({5, 4});
    const Tensor mixed = fakes_first ? concat({fake, real}, 0) : concat({real, fake}, 0);
    CHECK(mask(mixed).size() == 32);
    CHECK(mse_loss(mixed, Tensor::zeros({8, 4}, DType::f64)).item() ==
          Approx(mse_loss(mixed.detach().reshape({8, 4}), Tensor::zeros({8, 4}, DType::f64)).item()));
    const auto apart = split(mixed, fakes_first ? std::vector<Index>{5, 3} : std::vector<Index>{3, 5}, 0);
    CHECK(mse_loss(apart[0], Tensor::zeros(apart[0].shape(), DType::f64)).item() > 0);
  }
  CHECK_ERROR(mse_loss(concat({a, ramp({5, 4})}, 0), Tensor::zeros({8, 4}, DType::f64)), usage, "mse_loss");
  // The same sample twice in one batch draws two masks.
  const Tensor x = ramp({4, 50}).with_batch(batch_of_rows(4, 4)), views = concat({x, x}, 0);
  const Values all = mask(views);
  const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
  CHECK(Values(all.begin(), all.begin() + half) != Values(all.begin() + half, all.end()));
  CHECK(Values(all.begin(), all.begin() + half) == mask(ramp({4, 50}).with_batch(batch_of_rows(4, 4))));
}

TEST_CASE("dropout draws anew with each call, and the same again for the same batch") {
  const auto x = [] { return ramp({8, 40}).with_batch(batch_of_rows(8, 8)); };
  const Tensor one = x(), other = x();
  const Values first = mask(one), second = mask(one);
  CHECK(first != second);        // a layer called twice
  CHECK(mask(one, 2) != first);  // another layer
  CHECK(mask(other) == first);   // the same batch again: the same masks, in the same order
  CHECK(mask(other) == second);
  // Without a Loader or a Step.
  const Tensor bare = ramp({8, 40});
  CHECK(mask(bare, 77) != mask(bare, 77));
  // Recompute draws in its second forward what it drew in the first.
  Module model{Sequential{Linear(40, 40), Dropout(0.5), Linear(40, 40), Dropout(0.5)}};
  convert(model, DType::f64);
  initialize(model, 3);
  const auto gradient = [&](bool again) {
    const Module layer = again ? Module{Recompute(model)} : model;
    Parameters parameters(layer);
    const Tensor in = x();
    const Tensor loss = sum(layer(layer(in)));  // twice: the second call has masks of its own
    loss.backward();
    Values all = parameters.grads().to_vector();
    all.push_back(loss.item());
    return all;
  };
  CHECK(gradient(true) == gradient(false));
}

TEST_CASE("slices that are used in turn draw the masks of the whole, and threads may share a batch") {
  const Tensor whole = ramp({8, 40}).with_batch(batch_of_rows(8, 8));
  Values parts;
  for (Index k = 0; k < 4; ++k)
    for (double v : mask(whole.rows(2 * k, 2 * k + 2))) parts.push_back(v);
  CHECK(parts == mask(whole));
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::uint64_t layer = 0; layer < 200; ++layer) (void)dropout(whole, 0.5, layer);
    });
  threads.clear();
  CHECK(whole.batch()->calls->next(199) == 4);
}

TEST_CASE("scopes may end in any order: the youngest that lives is current") {
  const auto step = [] { return StepContext::current().batch.step; };
  for (std::uint64_t order = 0; order < 24; ++order) {
    std::vector<std::unique_ptr<StepScope>> scopes;
    for (std::uint64_t s = 1; s <= 4; ++s)
      scopes.push_back(std::make_unique<StepScope>(StepContext{.batch = {.step = s}}));
    std::uint64_t rest = order;
    for (std::size_t left = 4; left > 0; --left) {
      std::vector<std::size_t> live;
      for (std::size_t s = 0; s < 4; ++s)
        if (scopes[s]) live.push_back(s);
      CHECK(step() == live.back() + 1);
      scopes[live[rest % left]].reset();
      rest /= left;
    }
    CHECK(step() == 0);
  }
}

TEST_CASE("Step takes the share that is this rank's, and no other rows") {
  // Right shares train; forgotten and wrong ones are refused on every rank.
  const auto attempt = [](int ranks, const std::function<Strategy()>& strategy, const std::string& axis,
                          const std::function<RankShare(Step&, World&)>& shard) {
    return test::on_ranks(ranks, [&](World& world) -> std::string {
      Mesh mesh(world, {{axis, world.size()}});
      Module model{Sequential{flatten, Linear(12, 7), relu, Linear(7, 5)}};
      initialize(model, 1);
      Step step(model, cross_entropy, Sgd{.lr = 0.1}, mesh, strategy());
      Loader loader(std::make_unique<test::Noise>(20, Shape{2, 2, 3}),
                    {.batch = 10, .shard = shard(step, world), .workers = 0});
      try {
        for (auto& [x, y] : loader) step(x, y);
      } catch (const Error& e) { return e.what(); }
      return "";
    });
  };
  const auto data = [] { return data_parallel(); };
  const auto pipe = [] { return pipeline({.micro = 2}); };
  const auto right = [](Step& step, World&) { return RankShare(step.shard()); };
  const auto none = [](Step&, World&) { return RankShare(); };
  const auto world_share = [](Step&, World& world) { return RankShare(world); };
  for (int ranks : test::rank_counts({2})) {
    if (ranks != 2) continue;
    CHECK(attempt(ranks, data, "data", right).empty());
    CHECK(attempt(ranks, data, "data", world_share).empty());
    CHECK_THAT(attempt(ranks, data, "data", none), contains("share 0 of 1"));
    CHECK(attempt(ranks, pipe, "pipe", right).empty());
    CHECK_THAT(attempt(ranks, pipe, "pipe", world_share),
               contains("share 0 of 1"));
  }
}

TEST_CASE("Step checks batches that no Loader made") {
  World alone;
  Module model{Sequential{flatten, Linear(12, 5)}};
  Step step(model, cross_entropy, Sgd{.lr = 0.1}, alone);
  const Tensor x = Tensor::full({4, 2, 2, 3}, 1), y = Tensor::zeros({4}, DType::i64);
  const auto with = [&](const Tensor& t, Index rows, Index global) {
    return t.with_batch(batch_of_rows(rows, global));
  };
  CHECK(std::isfinite(step(with(x, 4, 4), y).item()));
  CHECK_ERROR(step(with(x, 4, 8), y), usage, 8, 4);
  CHECK_ERROR(step(with(x, 3, 4), y), usage, 4, 3);
  CHECK_ERROR(step(with(x, 4, 4), with(y, 4, 8)), usage, 4, 8);
  const Tensor big = Tensor::full({8, 2, 2, 3}, 1).with_batch(batch_of_rows(8, 16));
  CHECK_ERROR(step(big.rows(0, 4), y), usage, "step");
  for (int ranks : test::rank_counts({2})) {
    const auto said = test::on_ranks(ranks, [&](World& world) -> std::string {
      Module here{Sequential{flatten, Linear(12, 5)}};
      Step both(here, cross_entropy, Sgd{.lr = 0.1}, world);
      try {
        both(with(x, 4, 4), y);  // each rank brings all of it
      } catch (const Error& e) { return e.what(); }
      return "";
    });
    if (ranks > 1) CHECK_THAT(said, contains("4 rows"));
  }
}

}  // namespace test_batch
