#include "framework/layers/inference.h"
#include "framework/layers/layers.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/layers/init.h"
#include "framework/optim/parameters.h"
#include "framework/tensor/launch.h"
#include "kernels/core/suggest.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_layers {

using namespace trireme;
using test::contains;

namespace {

/// Whole numbers in [-3, 3], so that every sum is exact.
Tensor whole(const Shape& shape, std::uint64_t key, DType dtype = DType::f32) {
  const Tensor t = Tensor::empty(shape, dtype);
  uniform(t, -3.5, 3.5, key);
  std::vector<double> v = t.to_vector();
  for (double& x : v) x = std::nearbyint(x);
  return Tensor::of(v, shape, dtype);
}

/// A scope of nobody else.
struct SingleRank final : NormRanks {
  int size() const override { return 1; }
  Wait gather(const Tensor& to, const Tensor& from) const override {
    to.copy_from(from);
    return [] {};
  }
  Wait sum(const Tensor&) const override {
    return [] {};
  }
};

Tensor layer_by_layer(const Sequential& model, Tensor x) {
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto* nested = model[i].as<Sequential>();
    x = nested ? layer_by_layer(*nested, x) : model[i](x);
  }
  return x;
}

/// Forward and backward results by name.
std::map<std::string, std::vector<double>> outcome(const Sequential& model, Parameters& p, const Shape& input,
                                                   bool fused) {
  StepContext context;
  context.batch.seed = 5;
  context.batch.step = 3;
  StepScope scope(context);
  Tensor x = whole(input, 1, p.dtype());
  x.require_grad();
  p.clear_grads();
  const Tensor y = fused ? model(x) : layer_by_layer(model, x);
  y.backward(whole(y.shape(), 2, p.dtype()));
  std::map<std::string, std::vector<double>> all{{"y", y.to_vector()}, {"dx", x.grad().to_vector()}};
  for (auto& e : p.entries()) all[e.name] = e.tensor.grad().to_vector();
  return all;
}

void same_when_fused(Sequential model, const Shape& input, std::size_t groups, bool exact = true) {
  Module all = model;
  if (!exact) convert(all, DType::f64);
  Parameters p(all);
  if (exact)
    for (auto& e : p.entries()) e.tensor.copy_from(whole(e.tensor.shape(), key_of_name(e.name)));
  const auto apart = outcome(model, p, input, false), fused = outcome(model, p, input, true);
  for (auto& [name, values] : apart) {
    INFO(name << " of " << model.size() << " layers");
    if (exact)
      CHECK(fused.at(name) == values);
    else
      CHECK(test::distance(fused.at(name), values) < 1e-12);
  }
  CHECK(model.groups() == groups);
  const Tensor x = whole(input, 1, p.dtype());
  NoGrad guard;
  // Each in a scope of its own, so that both draw the first masks.
  const auto anew = [](auto&& forward) {
    const StepScope scope(StepContext{});
    return forward().to_vector();
  };
  CHECK(test::distance(anew([&] { return model(x); }), anew([&] { return layer_by_layer(model, x); })) < 1e-6);
}

std::vector<double> moments(const Tensor& t) {
  const std::vector<double> v = t.to_vector();
  double mean = 0, square = 0;
  for (double x : v) mean += x / static_cast<double>(v.size());
  for (double x : v) square += (x - mean) * (x - mean) / static_cast<double>(v.size() - 1);
  return {*std::min_element(v.begin(), v.end()), *std::max_element(v.begin(), v.end()), mean, std::sqrt(square)};
}

}  // namespace

TEST_CASE("an op whose name the C library has too is taken for the one on tensors") {
  using ::tanh, trireme::tanh;
  const Sequential model{Linear(2, 2), tanh}, copy{model}, nested{Sequential{Linear(2, 2)}, tanh};
  CHECK(model.size() == 2);
  CHECK(copy.size() == 2);
  CHECK(nested.size() == 2);
  const Tensor x = Tensor::of({{1, 2}}, {1, 2});
  CHECK(model(x).to_vector() == trireme::tanh(model[0](x)).to_vector());
}

TEST_CASE("a Sequential that fuses gives what its layers give one by one") {
  const auto conv = [](ConvLayerOptions o = {}) { return Conv2d(2, 3, 3, o); };
  same_when_fused({conv(), relu}, {2, 6, 7, 2}, 1);
  same_when_fused({conv({.stride = 2, .pad = 1}), relu}, {2, 6, 7, 2}, 1);
  same_when_fused({conv(), relu, MaxPool(2)}, {2, 6, 6, 2}, 1);
  same_when_fused({conv(), relu, MaxPool(2), Dropout(0.5)}, {2, 7, 8, 2}, 1);
  same_when_fused({conv({.bias = false}), relu, MaxPool(2), Dropout(0.5)}, {2, 7, 8, 2}, 1);
  same_when_fused({conv(), relu, MaxPool(3, {.stride = 2})}, {2, 7, 7, 2}, 2);
  same_when_fused({conv(), relu, MaxPool(2, {.pad = 1})}, {2, 6, 6, 2}, 2);
  same_when_fused({relu, MaxPool(2), conv()}, {2, 8, 8, 2}, 2);
  same_when_fused({conv(), Conv2d(3, 3, 3), relu}, {2, 8, 8, 2}, 2);
  same_when_fused({conv(), Dropout(0.5), relu}, {2, 8, 8, 2}, 3);
  same_when_fused({Linear(5, 4), relu}, {3, 5}, 1);
  same_when_fused({Linear(5, 4), relu, Dropout(0.5)}, {3, 5}, 2);
  same_when_fused({Conv1d(2, 3, 3), relu, MaxPool(2), Dropout(0.5)}, {2, 8, 2}, 1);
  same_when_fused({Conv3d(1, 2, 3), relu, MaxPool(2)}, {1, 6, 6, 6, 1}, 1);
}

TEST_CASE("batch norm takes ReLU along, unless a pool does") {
  same_when_fused({BatchNorm(3), relu}, {4, 3, 3, 3}, 1, false);
  same_when_fused({BatchNorm(3), relu, MaxPool(2), Dropout(0.25)}, {4, 4, 4, 3}, 2, false);
}

TEST_CASE("nested Sequentials fuse inside and keep their names") {
  Sequential body{Conv2d(1, 2, 3), relu, MaxPool(2), Dropout(0.5)}, model;
  model.add("body", body).add(flatten).add("head", Linear(8, 3)).add(relu);
  CHECK(model.name(1) == "1");
  {
    Parameters p(model);
    CHECK(p.entries()[0].name == "body.0.weight");
    CHECK(p.entries()[3].name == "head.bias");
    CHECK(body[3].as<Dropout>()->key != 0);
  }
  same_when_fused(model, {2, 6, 6, 1}, 3);
}

TEST_CASE("options changed after add() are followed") {
  Sequential model{Conv2d(1, 2, 3), relu, MaxPool(2)};
  const Tensor x = whole({1, 8, 8, 1}, 1);
  model[2].as<MaxPool>()->options.stride = {1, 1, 1};
  CHECK(model(x).shape() == Shape{1, 5, 5, 2});
  model[0].as<Conv2d>()->options.relu = true;
  model[2].as<MaxPool>()->options.stride = {2, 2, 2};
  CHECK(model(x).to_vector() == layer_by_layer(model, x).to_vector());
}

TEST_CASE("dropout masks depend on the name of the layer, the seed and the step") {
  Sequential model{Linear(4, 64), Dropout(0.5), Dropout(0.5)};
  Parameters p(model);
  const Tensor x = Tensor::full({8, 64}, 1);
  const auto mask = [&](std::size_t layer, std::uint64_t seed, std::uint64_t step) {
    StepContext context;
    context.batch.seed = seed;
    context.batch.step = step;
    StepScope scope(context);
    return model[layer](x).to_vector();
  };
  const auto first = mask(1, 0, 0);
  CHECK(first == mask(1, 0, 0));
  CHECK(first != mask(2, 0, 0));
  CHECK(first != mask(1, 1, 0));
  CHECK(first != mask(1, 0, 1));
  CHECK(std::count(first.begin(), first.end(), 2.0) > 200);
  CHECK(std::count(first.begin(), first.end(), 0.0) > 200);
}

TEST_CASE("initial values have PyTorch's distributions") {
  const Shape filter{96, 5, 3, 24};
  std::map<std::string, Tensor> ours;
  const auto drawn = [&](const std::string& name, auto&& draw) { draw(ours[name] = Tensor::empty(filter)); };
  const Linear linear(300, 2000);
  const Conv2d conv(64, 3000, 3, {.groups = 4});
  ours["linear.weight"] = linear.weight;
  ours["linear.bias"] = linear.bias;
  ours["conv.weight"] = conv.weight;
  ours["conv.bias"] = conv.bias;
  drawn("kaiming_uniform", [](const Tensor& t) { Init::kaiming_uniform(0.2, Init::Fan::out)(t, 1); });
  drawn("kaiming_normal", [](const Tensor& t) { Init::kaiming_normal()(t, 2); });
  drawn("kaiming_normal_in", [](const Tensor& t) { Init::kaiming_normal(Init::Fan::in)(t, 3); });
  drawn("xavier_uniform", [](const Tensor& t) { Init::xavier_uniform()(t, 4); });
  drawn("uniform", [](const Tensor& t) { uniform(t, -0.5, 1.5, 5); });
  drawn("normal", [](const Tensor& t) { normal(t, 0.3, 2, 6); });
  drawn("xavier_normal", [](const Tensor& t) { Init::xavier_normal(1.5)(t, 7); });
  drawn("trunc_normal", [](const Tensor& t) { Init::trunc_normal(0.7, -0.5, 1)(t, 8); });
  test::Oracle torch;
  if (!torch.run("torch_init.py")) return;
  for (auto& [name, t] : ours) {
    const auto here = moments(t), there = torch.get(name);
    const double deviation = there[3], n = static_cast<double>(t.numel());
    INFO(name << ": " << here[0] << " " << here[1] << " " << here[2] << " " << here[3]);
    CHECK(std::abs(here[2] - there[2]) < 6 * deviation / std::sqrt(n));
    CHECK(std::abs(here[3] / deviation - 1) < 5 / std::sqrt(n));
    const bool bounded = name.find("normal") == name.npos || name == "trunc_normal";
    CHECK(std::abs(here[0] - there[0]) < (bounded ? 0.02 : 1.0) * deviation);
    CHECK(std::abs(here[1] - there[1]) < (bounded ? 0.02 : 1.0) * deviation);
  }
}

TEST_CASE("initialize() depends on seed and name alone, and f64 holds the f32 numbers") {
  const auto make = [] { return Sequential{Linear(4, 4), BatchNorm(4), Linear(4, 4), LayerNorm(4)}; };
  Module a = make(), b = make(), c = make();
  convert(b, DType::f64);
  initialize(a, 1);
  initialize(b, 1);
  initialize(c, 2);
  const auto weight = [](const Module& m, std::size_t i) {
    return (*m.as<Sequential>())[i].as<Linear>()->weight.to_vector();
  };
  CHECK(weight(a, 0) == weight(b, 0));
  CHECK(weight(a, 0) != weight(a, 2));
  CHECK(weight(a, 0) != weight(c, 0));
  BatchNorm& norm = *(*a.as<Sequential>())[1].as<BatchNorm>();
  norm.weight.copy_from(Tensor::full({4}, 3));
  norm.bias.copy_from(Tensor::full({4}, 3));
  norm.running_mean.copy_from(Tensor::full({4}, 3));
  norm.running_var.copy_from(Tensor::full({4}, 3));
  initialize(a, 1);
  CHECK(norm.weight.to_vector() == std::vector<double>(4, 1));
  CHECK(norm.bias.to_vector() == std::vector<double>(4, 0));
  CHECK(norm.running_mean.to_vector() == std::vector<double>(4, 0));
  CHECK(norm.running_var.to_vector() == std::vector<double>(4, 1));
}

TEST_CASE("under an Inference batch norms are folded: same numbers, weights untouched") {
  // f64 data also meet weights of f32.
  for (const auto& [type, converts] :
       {std::pair{DType::f32, false}, {DType::f64, true}, {DType::f64, false}, {DType::bf16, false}}) {
    INFO(name_of(type) << ", converted " << converts);
    const double bound = type == DType::f64 ? 1e-13 : type == DType::f32 ? 1e-5 : 5e-2;
    Conv2d conv(3, 4, 3, {.stride = 2, .pad = 1});
    BatchNorm norm(4, {.relu = true});
    for (auto [t, low, high] : {std::tuple{&norm.weight, 0.5, 2.0},
                                {&norm.bias, -1.0, 1.0},
                                {&norm.running_mean, -1.0, 1.0},
                                {&norm.running_var, 0.5, 2.0}})
      uniform(*t, low, high, static_cast<std::uint64_t>(high * 8 + low));
    Module model{Sequential{conv, norm}};
    if (converts) convert(model, type);
    auto& chain = *model.as<Sequential>();
    const Conv2d& c = *chain[0].as<Conv2d>();
    const BatchNorm& n = *chain[1].as<BatchNorm>();
    Tensor x = Tensor::empty({2, 5, 7, 3}, DType::f32), residual = Tensor::empty({2, 3, 4, 4}, DType::f32);
    uniform(x, -1, 1, 5);
    uniform(residual, -1, 1, 6);
    x = x.to(type);
    residual = residual.to(type);
    const std::vector<double> before = c.weight.to_vector();
    const auto near = [&](const Tensor& a, const Tensor& b) {
      const std::vector<double> u = a.to_vector(), v = b.to_vector();
      double worst = 0;
      for (std::size_t i = 0; i < u.size(); ++i) worst = std::max(worst, std::abs(u[i] - v[i]));
      return worst < bound;
    };
    const StepScope evaluation(StepContext{.batch = {.training = false}});
    const NoGrad no_grad;
    const Tensor plain = n(c(x)), added = n(c(x), residual);
    const Inference inference;
    for (int again = 0; again < 2; ++again) {
      CHECK(near(conv_norm(c, n, x), plain));
      CHECK(near(model(x), plain));
      CHECK(near(conv_norm(c, n, x, residual), added));          // kept by the caller: not written over
      CHECK(near(conv_norm(c, n, x, residual.clone()), added));  // nobody else's: takes the sum
    }
    CHECK(c.weight.to_vector() == before);
  }
}

TEST_CASE("in training a narrow convolution brings the batch norm's moments with it: same numbers") {
  struct Outcome {
    std::vector<std::vector<double>> values;
    std::map<std::string, int> launched;
  };
  const auto train = [](DType type, bool together, bool residual, const StepContext& context) {
    const StepScope scope(context);
    Module model{Sequential{Conv2d(3, 8, 3, {.stride = 2, .pad = 1}), BatchNorm(8, {.relu = true})}};
    initialize(model, 1);
    Parameters parameters(model);
    const Conv2d& c = *model.as<Sequential>()->operator[](0).as<Conv2d>();
    const BatchNorm& n = *model.as<Sequential>()->operator[](1).as<BatchNorm>();
    Tensor x = Tensor::empty({2, 5, 7, 3}, DType::f32), more = Tensor::empty({2, 3, 4, 8}, DType::f32);
    uniform(x, 0, 1, 5);
    uniform(more, -1, 1, 6);
    x = x.to(type).require_grad();
    more = residual ? more.to(type) : Tensor();
    Outcome o;
    const LaunchWatch watch([&](const LaunchWatch::Call& call) { ++o.launched[call.op]; });
    const Tensor y = together ? conv_norm(c, n, x, more) : residual ? n(c(x), more) : n(c(x));
    if (context.batch.training) sum(square(y)).backward();
    if (context.norm_stats) context.norm_stats->commit();
    o.values = {y.to_vector(), n.running_mean.to_vector(), n.running_var.to_vector()};
    if (!context.batch.training) return o;
    for (const Tensor& t : {x, c.weight, c.bias, n.weight, n.bias}) o.values.push_back(t.grad().to_vector());
    return o;
  };
  for (DType type : {DType::f32, DType::bf16})
    for (bool residual : {false, true})
      for (int kind = 0; kind < 4; ++kind) {
        INFO(name_of(type) << " residual " << residual << " kind " << kind);
        BatchNormStats first, second;
        StepContext context{.batch = {.training = kind != 3}};
        if (kind == 1) context.norm = std::make_shared<SingleRank>();  // a scope of nobody else
        if (kind == 2) context.norm_stats = &first;
        const Outcome one = train(type, true, residual, context);
        if (kind == 2) context.norm_stats = &second;
        const Outcome two = train(type, false, residual, context);
        CHECK(one.values == two.values);
        const int with = type == DType::bf16 && kind != 3, without = kind == 3 ? 0 : 1 - with;
        CHECK((one.launched.count("conv_moments") == static_cast<std::size_t>(with)));
        CHECK((one.launched.count("batch_norm_moments") == static_cast<std::size_t>(without)));
        CHECK(two.launched.count("conv_moments") == 0);
      }
}

TEST_CASE("layers refuse what they cannot be") {
  CHECK_ERROR(Linear(0, 3), usage, 0, 3);
  CHECK_ERROR(Conv2d(3, 4, 3, {.groups = 2}), usage, 2, 3);
  CHECK_ERROR(Conv2d(3, 4, 0), usage, "conv", 0);
  CHECK_ERROR(MaxPool(2, {.pad = 2}), usage, "max_pool", 2);
  CHECK_ERROR(Dropout(1.0), usage, "dropout", 1);
  CHECK_ERROR(Sequential().add("a", relu).add("a", relu), usage, "sequential", "a");
  CHECK_ERROR(Sequential().add("a.b", relu), usage, "sequential", "a.b");
  CHECK_ERROR(Sequential().add(Module()), usage, "sequential", 0);
}

TEST_CASE("suggestions") {
  const std::vector<std::string> known{"momentum", "lr", "dampening", "mnist_cnn"};
  CHECK(suggestion("momentun", known) == "momentum");
  CHECK(suggestion("omentum", known) == "momentum");
  CHECK(suggestion("rl", known) == "lr");
  CHECK(suggestion("mnist", known) == "mnist_cnn");
  CHECK(suggestion("resnet", known).empty());
  CHECK(suggestion("x", known).empty());
}

TEST_CASE("a stashed tensor is added where its name is called") {
  const Linear first(4, 6), second(6, 6), shortcut(6, 6);
  const Tensor x = Tensor::of(std::vector<double>{1, -2, 3, -4, 5, 6, -7, 8}, {2, 4}).require_grad();
  const Tensor seed = Tensor::full({2, 6}, 1);
  auto gradients = [&](const Tensor& y) {
    for (auto& t : {x, first.weight, second.weight, shortcut.weight}) t.clear_grad();
    y.backward(seed);
    std::vector<double> all = y.to_vector();
    for (auto& t : {x, first.weight, second.weight, shortcut.weight})
      for (double v : t.grad().to_vector()) all.push_back(v);
    return all;
  };
  for (auto* l : {&first, &second, &shortcut}) Tensor(l->weight).require_grad();
  const Sequential model{first, Stash{"skip"}, second, relu, AddStashed("skip", shortcut)};
  const Tensor h = first(x);
  CHECK(gradients(model(x)) == gradients(relu(second(h)) + shortcut(h)));
  CHECK(model.stashed_behind(0).empty());
  CHECK(model.stashed_behind(1) == std::vector<std::string>{"skip"});
  CHECK(model.stashed_behind(3).empty());

  Module named = Sequential{Stash{"a"}, AddStashed("a", Linear(2, 2))};
  std::vector<std::string> names;
  named.visit(StateVisitor([&](const NamedState& leaf) { names.push_back(leaf.name); }));
  CHECK(names == std::vector<std::string>{"1.shortcut.weight", "1.shortcut.bias"});

  CHECK_ERROR((Sequential{relu, AddStashed("b")}), usage, "sequential", "b");
  CHECK_ERROR((Sequential{Stash{"b"}, Stash{"b"}}), usage, 1, "b");
  CHECK_ERROR((Sequential{Stash{"b"}, relu}(x)), usage, "sequential", "b");
  CHECK_ERROR(Stash{"b"}(x), usage, "stash", "b");
  CHECK_ERROR(AddStashed("b")(x), usage, "add_stashed", "b");
}

TEST_CASE("the fused tail of a block refuses windows of more cells than its index holds, and is not used for them") {
  const Tensor x = Tensor::zeros({1, 15, 17, 1});
  CHECK_ERROR(bias_relu_pool_dropout(x, {}, {.window = {15, 17}, .stride = {15, 17}}, 0, 1), usage, 254, "max_pool");
  const Tensor fits =
      bias_relu_pool_dropout(Tensor::zeros({1, 2, 127, 1}), {}, {.window = {2, 127}, .stride = {2, 127}}, 0, 1);
  CHECK(fits.numel() == 1);
}

namespace {
/// A layer as a user writes it.
struct OwnTable {
  OwnTable(Index count, Index channels) : weight(init.make({count, channels})) {}
  Tensor operator()(const Tensor& one_hot) const { return matmul(one_hot, weight); }
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, init);
    v("mine", mine, StateKind::no_decay, [](const Tensor& t, std::uint64_t key) { uniform(t, 3, 4, key); });
    v("kept", kept, StateKind::buffer);
  }
  Init init = Init::normal(1);
  Tensor weight, mine = Tensor::zeros({100}), kept = Tensor::full({2}, 5);
};
}  // namespace

TEST_CASE("a layer of a user's own gives an Init for each tensor; without one a tensor is left as it is") {
  const OwnTable layer(100, 50), other(100, 50);
  CHECK(layer.weight.to_vector() != other.weight.to_vector());
  Module model = layer;
  initialize(model, 3);
  const auto weight = moments(layer.weight), mine = moments(layer.mine);
  CHECK(std::abs(weight[2]) < 0.1);
  CHECK(weight[3] == Approx(1).epsilon(0.05));
  CHECK(mine[0] >= 3);
  CHECK(mine[1] < 4);
  CHECK(layer.kept.to_vector() == std::vector<double>{5, 5});
  CHECK_ERROR(Init::kaiming_normal()(layer.mine, 0), usage, "init", "[100]");
  CHECK_ERROR(Init::trunc_normal(1, 50, 60), usage, 1, 50, 60);
}

}  // namespace test_layers
