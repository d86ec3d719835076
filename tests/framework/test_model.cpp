// What one does with a whole model: look at it, copy it, freeze parts of it, watch its gradients, average its weights.
#include "framework/autograd/tape.h"
#include "framework/layers/layers.h"
#include "framework/layers/recompute.h"
#include "framework/optim/averaged_weights.h"
#include "framework/optim/optimizer.h"
#include "framework/tensor/create.h"
#include "tests/support/catch.h"

namespace test_model {

using namespace trireme;
using test::contains;

namespace {

/// Tied weights, a nested row, buffers, a function.
Module network() {
  const Linear tied(4, 4);
  return Sequential{Conv2d(2, 4, 3, {.pad = LayerPadding::same()}),
                    BatchNorm(4),
                    relu,
                    Recompute(Sequential{Conv2d(4, 4, 1), silu}),
                    global_avg_pool,
                    tied,
                    tanh,
                    tied};
}
std::vector<std::vector<double>> numbers(Module& m) {
  std::vector<std::vector<double>> all;
  for (const NamedState& t : named_tensors(m)) all.push_back(t.tensor->to_vector());
  return all;
}
const Tensor x = normal({3, 5, 5, 2}, 0, 1, 1);

}  // namespace

TEST_CASE("tensors of a model have names; copies of a model share nothing") {
  Module model = network();
  initialize(model, 3);
  std::vector<std::string> names;
  for (const NamedState& t : named_tensors(model)) names.push_back(t.name);
  CHECK(names == std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
                                          "3.0.weight", "3.0.bias", "5.weight", "5.bias", "7.weight", "7.bias"});
  Module copy = model.clone();
  const auto same = [&](Module& a, Module& b) {
    const NoGrad off;
    return a(x).to_vector() == b(x).to_vector();
  };
  CHECK(same(copy, model));
  const auto before = numbers(model);
  Module other = model.clone();
  for (const NamedState& t : named_tensors(other)) t.tensor->copy_from(Tensor::full(t.tensor->shape(), 0.5));
  CHECK(numbers(model) == before);
  CHECK(same(model, copy));
  CHECK_FALSE(same(other, copy));
  // What was tied is tied in the copy.
  const auto tensors = named_tensors(other);
  CHECK(tensors[8].tensor->id() == tensors[10].tensor->id());
  CHECK(Parameters(other).entries().size() == 8);
  // The original trains by itself, its fused groups included.
  Parameters mine(model), theirs(copy);
  mse_loss(copy(x), Tensor::zeros({3, 4})).backward();
  for (const auto& e : theirs.entries()) CHECK(has_grad(e.tensor));
  for (const auto& e : mine.entries()) CHECK_FALSE(has_grad(e.tensor));
}

TEST_CASE("a frozen part is not trained, and keeps its name") {
  Module model = network();
  CHECK(freeze(model, "3.*") == 2);
  CHECK(freeze(model, "*.bias") == 5);
  CHECK(unfreeze(model, "5.bias") == 1);
  CHECK_ERROR(freeze(model, "nothing"), usage, "freeze", "nothing");
  const auto all = numbers(model);
  Parameters parameters(model);
  std::vector<std::string> trained;
  for (const auto& e : parameters.entries()) trained.push_back(e.name);
  CHECK(trained == std::vector<std::string>{"0.weight", "1.weight", "5.weight", "5.bias"});
  CHECK_ERROR(freeze(model, "0.weight"), usage, "freeze", "0.weight");
  Optimizer optimizer(parameters, Adam{.lr = 0.1});
  mse_loss(model(x), Tensor::zeros({3, 4})).backward();
  optimizer.step();
  const auto tensors = named_tensors(model);
  const auto after = numbers(model);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    INFO(tensors[i].name);
    const bool moves = tensors[i].kind != StateKind::buffer || tensors[i].name.find("running") != std::string::npos;
    CHECK((after[i] != all[i]) == moves);
  }
  CHECK(matches("*", ""));
  CHECK(matches("a*b*c", "a..b.bc"));
  CHECK_FALSE(matches("a*b", "a.b."));
  CHECK_FALSE(matches("a", "ab"));
}

TEST_CASE("gradients of results, hooks that change them, hooks of layers") {
  Tensor a = Tensor::from({1.F, 2.F, 3.F});
  a.require_grad();
  const Tensor b = a * 2, c = square(b);
  b.retain_grad();
  sum(c).backward();
  CHECK(b.grad().to_vector() == std::vector<double>{4, 8, 12});
  CHECK(a.grad().to_vector() == std::vector<double>{8, 16, 24});
  CHECK_ERROR(c.grad(), usage, "grad");
  a.clear_grad();
  const Tensor d = a * 2;
  std::vector<double> seen;
  on_grad(d, [&](const Tensor& g) {
    seen = g.to_vector();
    return clamp(g, 0, 10);
  });
  on_grad(d, [](const Tensor&) { return Tensor(); });
  sum(square(d)).backward();
  CHECK(seen == std::vector<double>{4, 8, 12});
  CHECK(a.grad().to_vector() == std::vector<double>{8, 16, 20});
  CHECK_ERROR(on_grad(a, [](const Tensor&) { return Tensor(); }), usage, "on_grad");
  const Tensor wrong = a * 2;
  on_grad(wrong, [](const Tensor&) { return Tensor::zeros({1}); });
  CHECK_ERROR(sum(wrong).backward(), usage, "f32", "[1]");

  std::vector<std::string> calls;
  Module hooked = Hooked(Linear(3, 2), {.forward =
                                            [&](const Tensor& in, const Tensor& out) {
                                              calls.push_back(fmt::format("{} {}", in.shape(), out.shape()));
                                              return out * 2;
                                            },
                                        .gradient =
                                            [&](const Tensor& g) {
                                              calls.push_back(fmt::format("grad {}", g.shape()));
                                              return Tensor();
                                            }});
  Parameters parameters(hooked);
  CHECK(parameters.entries()[0].name == "weight");
  sum(hooked(ones({4, 3}))).backward();
  CHECK(calls == std::vector<std::string>{"[4, 3] [4, 2]", "grad [4, 2]"});
  CHECK(parameters.entries()[1].tensor.grad().to_vector() == std::vector<double>{8, 8});
}

TEST_CASE("weights are averaged: exponentially, or all alike; the model computes with either") {
  for (const bool exponential : {true, false}) {
    Module model = Sequential{Linear(3, 2), BatchNorm(2)};
    initialize(model, 1);
    Parameters parameters(model);
    Optimizer optimizer(parameters, Sgd{.lr = 0.1});
    AveragedWeights average(parameters, exponential ? std::optional(0.9) : std::nullopt);
    std::vector<double> expected;
    const Tensor in = normal({6, 3}, 0, 1, 4);
    for (int step = 0; step < 4; ++step) {
      mse_loss(model(in), Tensor::zeros({6, 2})).backward();
      optimizer.step();
      average.update();
      const auto now = parameters.values().to_vector();
      if (step == 0) expected = now;
      const double keep = exponential ? 0.9 : step / (step + 1.0);
      for (std::size_t i = 0; i < now.size(); ++i) expected[i] = keep * expected[i] + (1 - keep) * now[i];
    }
    const auto got = average.store().values().to_vector(), trained = parameters.values().to_vector();
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(1e-6).margin(1e-7));
    const NoGrad off;
    const auto with_trained = model(in).to_vector();
    average.evaluate();
    CHECK(named_tensors(model)[0].tensor->to_vector() != std::vector<double>(trained.begin(), trained.begin() + 6));
    CHECK(named_tensors(model)[0].tensor->to_vector() == std::vector<double>(got.begin(), got.begin() + 6));
    average.train();
    CHECK(model(in).to_vector() == with_trained);
  }
  Module model = Linear(2, 2);
  Parameters parameters(model);
  CHECK_ERROR(AveragedWeights(parameters, 1.0), usage, 1, 0);
}

TEST_CASE("a summary counts what each layer has and costs") {
  Module model = network();
  const ModelSummary s = summary(model, Tensor::zeros({2, 5, 5, 2}));
  REQUIRE(s.layers.size() == 8);
  CHECK(s.layers[0].name == "0");
  CHECK(s.layers[0].type == "Conv2d");
  CHECK(s.layers[0].output == Shape{2, 5, 5, 4});
  CHECK(s.layers[0].parameters == 4 * 3 * 3 * 2 + 4);
  CHECK(s.layers[0].flops == 2.0 * 2 * 5 * 5 * 4 * 18);
  CHECK(s.layers[1].buffers == 8);
  CHECK(s.layers[2].type == "function");
  CHECK(s.layers[5].parameters == 20);
  CHECK(s.layers[5].flops == 2.0 * 2 * 4 * 4);
  CHECK(s.layers[7].parameters == 0);  // tied: counted at the first
  CHECK(s.parameters == Parameters(model).count());
  const std::string text = to_string(s);
  CHECK(text.find("Conv2d") != std::string::npos);
  CHECK(text.find("[2, 5, 5, 4]") != std::string::npos);
  CHECK(text.find("not trained: 8 numbers") != std::string::npos);
}

}  // namespace test_model
