#include "models/volumes/msd.h"

#include <random>

#include "framework/autograd/tape.h"
#include "framework/optim/parameters.h"
#include "framework/tensor/launch.h"
#include "kernels/core/runtime.h"
#include "models/volumes/unet3d.h"
#include "parallel/model/dry_run.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_msd {

using namespace trireme;
using test::contains;

namespace {

Index pick(std::mt19937_64& engine, Index from, Index to) {
  return std::uniform_int_distribution<Index>(from, to)(engine);
}

struct Net {
  ModelOptions options;
  MsdOptions msd;
  Index rows;
};
Net draw(std::mt19937_64& engine, int dims) {
  Net net{{.input = {}, .classes = pick(engine, 1, 3)},
          {pick(engine, 1, dims == 2 ? 20 : 8), pick(engine, 1, 3), {}},
          pick(engine, 1, 2)};
  for (int d = 0; d < dims; ++d) net.options.input.push_back(pick(engine, 1, dims == 2 ? 20 : 8));
  net.options.input.push_back(pick(engine, 1, 3));
  for (Index i = pick(engine, 1, 10); i > 0; --i) net.msd.dilations.push_back(pick(engine, 1, 10));
  return net;
}

struct Case {
  Module model;
  Tensor x, dy;
};
/// Hands the cases to the oracle, under their numbers.
void put(const test::Oracle& torch, const std::vector<Case>& cases) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Module model = cases[i].model;
    const std::string name = std::to_string(i) + ".";
    torch.put(name + "x", cases[i].x);
    torch.put(name + "dy", cases[i].dy);
    for (const NamedState& t : named_tensors(model))
      if (t.kind != StateKind::buffer) torch.put(name + t.name, *t.tensor);
  }
}
/// Outputs, and gradients of inputs and parameters.
void check_same(const test::Oracle& torch, const std::vector<Case>& cases, double tolerance) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string name = std::to_string(i) + ".";
    INFO("network " << i << " of " << to_string(cases[i].x.shape()));
    Module model = cases[i].model;
    const Parameters parameters(model);
    Tensor x = cases[i].x;
    const Tensor y = model(x.require_grad());
    CHECK(test::distance(y.to_vector(), torch.get(name + "y")) < tolerance);
    y.backward(cases[i].dy);
    CHECK(test::distance(x.grad().to_vector(), torch.get(name + "dx")) < tolerance);
    for (const auto& e : parameters.entries()) {
      INFO(e.name);
      CHECK(test::distance(e.tensor.grad().to_vector(), torch.get(name + e.name + ".grad")) < tolerance);
    }
  }
}

/// In f64, its last layer drawn, too.
Module made(const Net& net, std::uint64_t seed) {
  Module model = msd(net.options, net.msd);
  initialize(model, seed);
  convert(model, DType::f64);
  for (const NamedState& t : named_tensors(model))
    if (t.kind == StateKind::no_decay || t.name == "final.weight")
      normal(*t.tensor, 0, 0.3, seed ^ key_of_name(t.name));
  return model;
}

Tensor sample(const Net& net, std::uint64_t seed) {
  Shape shape{net.rows};
  for (const Index extent : net.options.input) shape.push_back(extent);
  return uniform(shape, -1, 1, seed, DType::f64);
}

}  // namespace

TEST_CASE("msd is PyTorch's network of convolutions and concatenations: outputs and all gradients") {
  std::random_device device;
  const auto seed = device();
  INFO("seed " << seed);
  std::mt19937_64 engine(seed);
  std::vector<Case> cases;
  const test::Oracle torch;
  std::string list;
  for (int i = 0; i < 12; ++i) {
    const Net net = draw(engine, 2 + i % 2);
    Module model = made(net, seed + static_cast<unsigned>(i));
    const Tensor x = sample(net, seed + 100);
    Shape out = x.shape();
    out[-1] = net.options.classes;
    const Tensor dy = uniform(out, -1, 1, seed + 200, DType::f64);
    list += std::to_string(i);
    for (Index k = 0; k < net.msd.depth; ++k)
      list += " " + std::to_string(net.msd.dilations[static_cast<std::size_t>(k) % net.msd.dilations.size()]);
    list += "\n";
    cases.push_back({model, x, dy});
  }
  put(torch, cases);
  torch.note("cases.txt", list);
  if (torch.run("torch_msd.py")) check_same(torch, cases, 1e-10);
}

TEST_CASE("unet3d is PyTorch's, in training: outputs and all gradients") {
  std::random_device device;
  const auto seed = device();
  INFO("seed " << seed);
  std::mt19937_64 engine(seed);
  std::vector<Case> cases;
  const test::Oracle torch;
  std::string list;
  for (std::uint64_t i = 0; i < 4; ++i) {
    ModelOptions o{.input = {}, .classes = pick(engine, 1, 3)};
    for (int d = 0; d < 3; ++d) o.input.push_back(16 * pick(engine, 1, 2));
    o.input.push_back(pick(engine, 1, 3));
    const Index width = pick(engine, 1, 3);
    Module model = unet3d(o, width);
    initialize(model, seed + i);
    convert(model, DType::f64);
    for (const NamedState& t : named_tensors(model))
      if (t.kind == StateKind::no_decay)
        *t.tensor = uniform(t.tensor->shape(), 0.5, 1.5, seed ^ key_of_name(t.name), DType::f64);
    const Tensor x = sample({o, {}, pick(engine, 2, 3)}, seed + 100 + i);
    Shape out = x.shape();
    out[-1] = o.classes;
    cases.push_back({model, x, uniform(out, -1, 1, seed + 200 + i, DType::f64)});
    list += fmt::format("{} {} {} {}\n", i, o.input[-1], o.classes, width);
  }
  put(torch, cases);
  torch.note("cases.txt", list);
  if (torch.run("torch_unet3d.py")) check_same(torch, cases, 1e-10);
}

TEST_CASE("msd keeps one block of features, and one of gradients in backward") {
  // Below AVX2 the last layer's convolution copies its input once; concatenated features would be 20 blocks.
  Module model = msd({.input = {96, 96, 1}, .classes = 1}, {.depth = 40});
  const Parameters parameters(model);
  const Tensor x = uniform({1, 96, 96, 1}, -1, 1, 4);
  runtime(DeviceKind::cpu).reset_peak();
  const std::size_t before = runtime(DeviceKind::cpu).in_use();
  sum(model(x)).backward();
  const auto block = static_cast<std::size_t>(41 * x.numel()) * sizeof(float);
  const std::size_t peak = runtime(DeviceKind::cpu).peak() - before;
  INFO(peak << " bytes at most beside blocks of " << block);
  CHECK(peak < block * 7 / 2);
}

TEST_CASE("a dry run counts the products of mixed-scale dense layers") {
  const Sequential net = msd({.input = {6, 5, 7, 2}, .classes = 1}, {.depth = 4, .width = 2});
  Module model = net;
  const Parameters parameters(model);
  double operations = 0, weights = 0;
  for (const Tensor& w : net[0].as<MixedScaleDense>()->weight) weights += static_cast<double>(w.numel());
  {
    const LaunchWatch watch(
        [&](const LaunchWatch::Call& c) {
          operations += operations_of(c);
          c.kernel();
        },
        LaunchWatch::Mode::dry);
    sum(net[0](Tensor::full({2, 6, 5, 7, 2}, 1).require_grad())).backward();
  }
  CHECK(operations == 3 * 2 * weights * 2 * 6 * 5 * 7);
}

TEST_CASE("msd starts as its paper says, and counts its parameters") {
  Module model = msd({.input = {8, 8, 8, 2}, .classes = 3}, {.depth = 5, .width = 2});
  CHECK(Parameters(model).count() == 2 * 27 * (2 + 4 + 6 + 8 + 10) + 5 * 2 + 3 * 12 + 3);
  initialize(model, 5);
  double squares = 0, count = 0;
  for (const NamedState& t : named_tensors(model)) {
    INFO(t.name);
    if (t.name.starts_with("final") || t.kind == StateKind::no_decay) {
      CHECK(sum(square(*t.tensor)).item() == 0);
      continue;
    }
    squares += sum(square(*t.tensor)).item();
    count += static_cast<double>(t.tensor->numel());
  }
  CHECK(squares / count == Approx(2.0 / (27 * (2 + 2 * 4) + 3)).epsilon(0.15));
  CHECK(named_tensors(model)[0].name == "dense.0.weight");
  CHECK(Parameters(make_model("msd", {.input = {9, 7, 1}, .classes = 2, .arch = {.layers = 3}})).count() ==
        9 * (1 + 2 + 3) + 3 + 2 * 4 + 2);
}

TEST_CASE("models of volumes refuse what they cannot take") {
  CHECK_ERROR(msd({.input = {8, 1}}), usage, "msd", "[height, width, channels]");
  CHECK_ERROR(msd({.input = {8, 8, 1}}, {.depth = 0}), usage, "msd", 0);
  CHECK_ERROR(msd({.input = {8, 8, 1}}, {.dilations = {1, 0}}), usage, 0, 1);
  CHECK_ERROR(make_model("msd", {.input = {8, 8, 1}, .arch = {.heads = 2}}), usage, "msd", "arch.layers");
  CHECK_ERROR(unet3d({.input = {8, 8, 1}}), usage, "unet3d", "[depth, height, width, channels]");
  CHECK_ERROR(unet3d({.input = {16, 24, 16, 1}}), usage, "unet3d", 16);
  const Module net = make_model("unet3d", {.input = {16, 16, 32, 1}, .classes = 3, .arch = {.width = 2}});
  CHECK(net(Tensor::zeros({1, 16, 16, 32, 1})).shape() == Shape{1, 16, 16, 32, 3});
  CHECK_ERROR(mixed_scale_dense(Tensor::zeros({1, 4, 4, 2}), {Tensor::zeros({1, 3, 3, 3})}, {Tensor()}, {1}), usage, 0,
              "[1, 3, 3, 3]", 3, 2, "[outputs, 3, 3, 2]");
  CHECK_ERROR(mixed_scale_dense(Tensor::zeros({1, 4, 4, 2}), {}, {Tensor()}, {1}), usage, 1, 0);
}

}  // namespace test_msd
