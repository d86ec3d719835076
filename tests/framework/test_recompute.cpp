#include "framework/layers/recompute.h"

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/optim/parameters.h"
#include "kernels/core/runtime.h"
#include "tests/support/catch.h"
#include "tests/support/distance.h"

namespace test_recompute {

using namespace trireme;
using test::distance;

namespace {
Sequential block() {
  return {Conv2d(4, 4, 3, {.pad = 1}), BatchNorm(4), relu, Dropout(0.3),
          Conv2d(4, 4, 3, {.pad = 1}), BatchNorm(4), relu};
}

struct Run {
  std::vector<double> loss, grads, buffers;
  int hooks = 0;
  std::size_t kept = 0,
              peak = 0;  // bytes beyond what there was before: after a forward; at most, scratch blocks included
};

/// Two steps' worth of forward and backward (gradients add up) through three blocks.
Run run(bool again, DType type, Index size, bool offload = false) {
  Sequential chain;
  for (int i = 0; i < 3; ++i) chain.add(again ? Module(Recompute(block(), {.offload = offload})) : Module(block()));
  Module model{Sequential{Conv2d(3, 4, 3, {.pad = 1}), chain, flatten, Linear(4 * size * size, 5)}};
  initialize(model, 3);
  convert(model, type);
  Parameters parameters(model);
  Run result;
  for (auto& e : parameters.entries()) add_grad_hook(e.tensor, [&](const Tensor&) { ++result.hooks; });
  Tensor x = Tensor::empty({6, size, size, 3}, type);
  uniform(x, -1, 1, 4);
  const Tensor y = Tensor::of(std::vector<double>{0, 1, 2, 3, 4, 0}, {6}, DType::i64);
  Runtime& memory = runtime(DeviceKind::cpu);
  memory.reset_peak();
  const std::size_t before = memory.in_use();
  for (std::uint64_t step : {0, 1}) {
    const StepScope pass(StepContext{.batch = {.seed = 9, .step = step}});
    const Tensor loss = cross_entropy(model(x), y);
    result.loss.push_back(loss.item());
    result.kept = memory.in_use() - before;
    loss.backward();
  }
  result.peak = memory.peak() - before;
  result.grads = parameters.grads().to_vector();
  for (auto& b : parameters.buffers())
    for (double v : b.tensor.to_vector()) result.buffers.push_back(v);
  return result;
}
}  // namespace

TEST_CASE("what is computed again is the same, and hooks hear of each gradient once") {
  for (DType type : {DType::f32, DType::f64}) {
    INFO(name_of(type));
    const Run kept = run(false, type, 8), again = run(true, type, 8);
    CHECK(again.loss == kept.loss);
    CHECK(again.grads == kept.grads);
    CHECK(again.buffers == kept.buffers);
    CHECK(again.hooks == kept.hooks);
  }
}

TEST_CASE("on a CPU offload does nothing") {
  const Run kept = run(true, DType::f32, 8), offloaded = run(true, DType::f32, 8, true);
  CHECK(offloaded.loss == kept.loss);
  CHECK(offloaded.grads == kept.grads);
  CHECK(offloaded.buffers == kept.buffers);
  CHECK(offloaded.kept == kept.kept);
  CHECK(offloaded.peak == kept.peak);
}

TEST_CASE("less is kept") {
  const Run kept = run(false, DType::f32, 64), again = run(true, DType::f32, 64);
  CHECK(again.kept < kept.kept / 2);
  CHECK(again.peak < kept.peak);
}

namespace {
/// Puts a tensor beside its result; Read multiplies by it.
struct Give {
  Linear layer{3, 4};
  Tensor operator()(const Tensor& x) const {
    const Tensor h = layer(x);
    return relu(h).with("memory", tanh(h)).with("mask", h > 0);
  }
  void visit(const StateVisitor& v) { v("layer", layer); }
};
struct Read {
  Linear layer{4, 4};
  bool of_x = true;
  Tensor operator()(const Tensor& x) const {
    const Tensor y = layer(of_x ? x : x.at("memory")) * x.at("memory");
    return masked_fill(y, ~x.at("mask"), 0.5).with("memory", x.at("memory"));
  }
  void visit(const StateVisitor& v) { v("layer", layer); }
};
}  // namespace

TEST_CASE("fields beside the input of a layer that is computed again get their gradients") {
  for (const bool of_x : {true, false}) {
    const auto gradients = [&](bool again) {
      const auto read = [&] { return again ? Module(Recompute(Read{.of_x = of_x})) : Module(Read{.of_x = of_x}); };
      const auto last = [](const Tensor& y) { return y + square(y.at("memory")); };
      Module model = convert(Sequential{Give(), read(), last, Linear(4, 2)}, DType::f64);
      initialize(model, 3);
      Parameters parameters(model);
      sum(square(model(normal({6, 3}, 0, 1, 1, DType::f64)))).backward();
      return parameters.grads().to_vector();
    };
    CHECK(distance(gradients(true), gradients(false)) < 1e-14);
  }
  Module model{Recompute(Give())};
  initialize(model, 3);
  Parameters parameters(model);
  CHECK_ERROR(model(ones({2, 3})), usage, "recompute", "memory");
}

TEST_CASE("a layer that uses no input gives gradients of zero when it is computed again") {
  const Recompute constant([](const Tensor& x) { return Tensor::full(x.shape(), 2); });
  Tensor x = ones({2, 3}).require_grad();
  sum(constant(x) + x).backward();
  CHECK(x.grad().to_vector() == std::vector<double>(6, 1));
}

TEST_CASE("without a tape there is nothing to compute again") {
  Module model{Recompute(Linear(3, 2))};
  Tensor x = Tensor::full({1, 3}, 1);
  CHECK(!model(x).requires_grad());
  std::vector<std::string> names;
  model.visit(StateVisitor([&](const NamedState& leaf) { names.push_back(leaf.name); }));
  CHECK(names == std::vector<std::string>{"weight", "bias"});
}

TEST_CASE("a batch norm's output between convolutions is not kept, but made again, bit for bit") {
  Conv2d first(2, 8, 3), second(8, 2, 3);
  BatchNorm norm(8, {.relu = true});
  for (Tensor* t : {&first.weight, &second.weight, &norm.weight, &norm.bias}) t->require_grad();
  const Tensor x = Tensor::empty({4, 12, 12, 2});
  uniform(x, -1, 1, 4);
  Runtime& memory = runtime(DeviceKind::cpu);
  const Tensor a = first(x);
  const auto bytes = static_cast<std::size_t>(a.view().bytes());
  Tensor b = norm(a);
  const std::vector<double> forward = b.to_vector();
  CHECK(SavedInput(b).get().to_vector() == forward);
  const Tensor y = second(b);
  const std::size_t before = memory.in_use();
  b = {};
  CHECK(before - memory.in_use() >= bytes);
  sum(y * y).backward();
  const std::vector<double> through = second.weight.grad().to_vector();
  second.weight.clear_grad();
  const Tensor by_hand = second(Tensor::of(forward, a.shape(), DType::f32));
  sum(by_hand * by_hand).backward();
  CHECK(second.weight.grad().to_vector() == through);
}

TEST_CASE("recompute by name wraps some layers, and results keep their bits") {
  const auto make = [] {
    Sequential blocks;
    for (int i = 0; i < 3; ++i) blocks.add(block());
    Sequential all;
    return Module(all.add("stem", Conv2d(3, 4, 3, {.pad = 1})).add("h", blocks).add("head", global_avg_pool));
  };
  const auto gradients = [&](const std::vector<std::string>& patterns) {
    Module plain = make();
    Module model = patterns.empty() ? plain : recompute(plain, patterns);
    initialize(model, 3);
    Parameters parameters(model);
    Tensor x = Tensor::empty({2, 6, 6, 3});
    uniform(x, -1, 1, 4);
    const std::size_t before = runtime(DeviceKind::cpu).in_use();
    const StepScope pass(StepContext{.batch = {.seed = 9}});
    const Tensor loss = sum(model(x));
    const std::size_t kept = runtime(DeviceKind::cpu).in_use() - before;
    loss.backward();
    std::vector<std::string> names;
    for (const auto& leaf : named_tensors(model)) names.push_back(leaf.name);
    return std::tuple(parameters.grads().to_vector(), names, kept);
  };
  const auto [grads, names, kept] = gradients({});
  std::size_t last = kept;
  for (const std::vector<std::string>& patterns :
       std::vector<std::vector<std::string>>{{"h.1"}, {"h.0", "h.2"}, {"h.*"}}) {
    const auto [same, as_before, less] = gradients(patterns);
    CHECK(same == grads);
    CHECK(as_before == names);
    CHECK(less < last);
    last = less;
  }
  CHECK_ERROR(recompute(make(), std::vector<std::string>{"h.0", "h.3"}), usage, "h.3");
  // A layer that is recomputed already is not wrapped again.
  const Module model = recompute(Sequential{Recompute(block()), relu}, {}, {.offload = true});
  const auto* first = (*model.as<Sequential>())[0].as<Recompute>();
  REQUIRE(first != nullptr);
  CHECK(first->layer().as<Sequential>() != nullptr);
}

}  // namespace test_recompute
