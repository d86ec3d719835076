#include "framework/optim/optimizer.h"

#include <algorithm>
#include <limits>

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/ops/ops.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_optimizer {

using namespace trireme;
using test::contains;

namespace {

constexpr int steps = 20;

/// A regression by two layers, small enough to follow in f64.
struct Problem {
  Sequential model{Linear(6, 5), trireme::tanh, Linear(5, 3)};
  Tensor x, y;
  Parameters parameters;

  explicit Problem(DType dtype = DType::f64) : parameters(prepare(dtype)) {
    x = Tensor::empty({8, 6}, dtype);
    y = Tensor::empty({8, 3}, dtype);
    normal(x, 0, 1, 1);
    normal(y, 0, 1, 2);
  }
  double backward() {
    const Tensor loss = mse_loss(model(x), y);
    loss.backward();
    return loss.item();
  }
  std::vector<double> train(Optimizer& optimizer, int count) {
    std::vector<double> losses;
    for (int i = 0; i < count; ++i) {
      losses.push_back(backward());
      optimizer.step();
    }
    return losses;
  }
  std::vector<double> weights() const {
    std::vector<double> all;
    for (auto& e : parameters.entries())
      for (double v : e.tensor.to_vector()) all.push_back(v);
    return all;
  }

 private:
  Module prepare(DType dtype) {
    Module m = model;
    initialize(m, 0);
    convert(m, dtype);
    return m;
  }
};

struct Case {
  std::string name;
  OptimizerConfig optimizer_config;
  OptimizerOptions options = {};
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"sgd", Sgd{.lr = 0.1}},
      {"momentum", Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}},
      {"dampening", Sgd{.lr = 0.1, .momentum = 0.9, .dampening = 0.4, .weight_decay = 0.01}},
      {"nesterov", Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}},
      {"sgd_groups", Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}, {.decay_biases = false}},
      {"scheduled", Sgd{.lr = step_decay(0.1, 5, 0.5), .momentum = 0.9}},
      {"clipped", Sgd{.lr = 0.1, .momentum = 0.9}, {.clip_norm = 0.2}},
      {"adagrad", Adagrad{.lr = 0.1, .weight_decay = 0.01, .initial = 0.1}},
      {"adadelta", Adadelta{.lr = 1.0, .weight_decay = 0.01}},
      {"adam", Adam{.lr = 0.01, .weight_decay = 0.01}},
      {"adamw", AdamW{.lr = 0.01, .weight_decay = 0.1}},
      {"adamw_groups", AdamW{.lr = 0.01, .weight_decay = 0.1}, {.decay_biases = false}},
      {"rmsprop", RMSprop{.lr = 0.01, .weight_decay = 0.01}},
      {"rmsprop_centered", RMSprop{.lr = 0.01, .alpha = 0.9, .momentum = 0.8, .centered = true}},
      {"lamb", Lamb{.lr = 0.05, .weight_decay = 0.1}, {.decay_biases = false}},
      {"clip_value", Sgd{.lr = 0.1, .momentum = 0.9}, {.clip_value = 0.03}},
      {"groups",
       AdamW{.lr = 0.01, .weight_decay = 0.1},
       {.groups = {{.names = "2.*", .lr_factor = 3, .weight_decay = 0.2}, {.names = "*.bias", .weight_decay = 0}}}},
      {"lars", Lars{.lr = 0.5, .momentum = 0.9, .weight_decay = 0.01, .trust_coefficient = 0.1}},
  };
  return all;
}

}  // namespace

TEST_CASE("twenty steps of every optimizer equal torch.optim, and LARS and LAMB their formulas") {
  Problem first;
  test::Oracle torch;
  const char* names[] = {"w0", "b0", "w1", "b1"};
  for (std::size_t i = 0; i < 4; ++i) torch.put(names[i], first.parameters.entries()[i].tensor);
  torch.put("x", first.x);
  torch.put("y", first.y);
  if (!torch.run("torch_optimizers.py")) return;
  for (const Case& c : cases()) {
    Problem problem;
    Optimizer optimizer(problem.parameters, c.optimizer_config, c.options);
    const auto losses = problem.train(optimizer, steps);
    INFO(c.name << ": loss " << losses.front() << " to " << losses.back());
    CHECK(test::distance(losses, torch.get(c.name + ".loss")) < 1e-12);
    CHECK(test::distance(problem.weights(), torch.get(c.name)) < 1e-12);
  }
}

TEST_CASE("an optimizer restored in the midst goes on bitwise") {
  for (const Case& c : cases()) {
    Problem whole(DType::f32), half(DType::f32);
    Optimizer one(whole.parameters, c.optimizer_config, c.options),
        before(half.parameters, c.optimizer_config, c.options);
    whole.train(one, steps);
    half.train(before, steps / 2);
    Optimizer after(half.parameters, c.optimizer_config, c.options);
    REQUIRE(after.state().size() == before.state().size());
    for (std::size_t i = 0; i < after.state().size(); ++i)
      after.state()[i].second.blocks()[0].copy_from(before.state()[i].second.blocks()[0]);
    after.set_steps(before.steps());
    half.train(after, steps / 2);
    INFO(c.name);
    CHECK(after.steps() == steps);
    CHECK(half.weights() == whole.weights());
  }
}

TEST_CASE("an update by slices equals the whole") {
  for (const Case& c : cases()) {
    Problem whole, parts;
    Optimizer one(whole.parameters, c.optimizer_config, c.options),
        many(parts.parameters, c.optimizer_config, c.options);
    const bool has_ratios = many.tensors_with_ratios() > 0;
    const Index cut = 37, end = parts.parameters.size();  // inside a weight
    for (int i = 0; i < 3; ++i) {
      whole.train(one, 1);
      parts.backward();
      const double scale = many.clip_scale();
      if (has_ratios) many.set_squares(many.start_update({{0, cut}, {cut, end}}, scale));
      many.update({cut, end}, scale);
      many.update({0, cut}, scale);
      many.finish();
    }
    INFO(c.name);
    if (has_ratios)
      CHECK(test::distance(parts.weights(), whole.weights()) < 1e-14);  // squares are added in another order
    else
      CHECK(parts.weights() == whole.weights());
    parts.backward();
    if (has_ratios) CHECK_ERROR(many.update({0, 7}, 1), usage, many.name(), "0.weight", 7);
    CHECK_ERROR(many.update({0, end + 1}, 1), usage, 0, 81, 80);
    CHECK_ERROR(many.set_squares(Tensor::zeros({2, 3}, DType::f64)), usage, many.name(), "start_update", 4);
  }
}

TEST_CASE("rates per tensor come from the clipped gradient, and tensors may be updated one by one") {
  for (const OptimizerConfig& rule :
       {OptimizerConfig(Lars{.lr = 0.5, .trust_coefficient = 0.1}), OptimizerConfig(Lamb{})}) {
    constexpr double bound = 0.01;
    Problem one, by_hand;
    Optimizer clips(one.parameters, rule, {.clip_value = bound}), plain(by_hand.parameters, rule);
    for (int i = 0; i < 3; ++i) {
      one.train(clips, 1);
      by_hand.backward();
      bool clipped = false;
      for (auto& e : by_hand.parameters.entries()) {
        std::vector<double> grad = e.tensor.grad().to_vector();
        for (double& g : grad) {
          clipped = clipped || std::abs(g) > bound;
          g = std::clamp(g, -bound, bound);
        }
        e.tensor.grad().copy_from(Tensor::of(grad, e.tensor.shape(), DType::f64));
      }
      CHECK(clipped);
      const Index cut = by_hand.parameters.entries()[2].slice.begin;
      plain.update({cut, by_hand.parameters.size()}, 1);
      plain.update({0, cut}, 1);
      plain.finish();
    }
    INFO(rule.name());
    CHECK(one.weights() == by_hand.weights());
  }
}

TEST_CASE("padding stays zero") {
  Problem problem;
  Optimizer optimizer(problem.parameters, AdamW{.lr = 0.1});
  problem.train(optimizer, 5);
  std::vector<double> flat = problem.parameters.values().to_vector();
  for (auto& e : problem.parameters.entries()) std::fill(flat.begin() + e.slice.begin, flat.begin() + e.slice.end, 0.0);
  CHECK(flat == std::vector<double>(flat.size(), 0.0));
}

TEST_CASE("missing gradients count as zero, and the gradient's norm is that of all entries") {
  Problem problem;
  Optimizer optimizer(problem.parameters, Sgd{.lr = 1});
  const auto before = problem.weights();
  problem.backward();
  problem.parameters.clear_grads();  // what the block still holds counts for nothing
  CHECK(optimizer.grad_norm() == 0);
  optimizer.step();
  CHECK(problem.weights() == before);
  problem.backward();
  double square = 0;
  for (auto& e : problem.parameters.entries())
    for (double g : e.tensor.grad().to_vector()) square += g * g;
  CHECK(optimizer.grad_norm() == Approx(std::sqrt(square)).epsilon(1e-14));
  CHECK(optimizer.clip_scale() == 1);
}

TEST_CASE("a gradient that is not finite is refused by name before anything changes") {
  const double bad = std::numeric_limits<double>::infinity();
  for (const Case& c : std::vector<Case>{
           {"clip", Sgd{}, {.clip_norm = 1}}, {"check", Adam{}, {.check_finite = true}}, {"lars", Lars{}}}) {
    Problem problem;
    Optimizer optimizer(problem.parameters, c.optimizer_config, c.options);
    problem.backward();
    problem.parameters.find("2.bias")->tensor.grad().copy_from(Tensor::full({3}, bad, DType::f64));
    const auto before = problem.weights();
    CHECK_ERROR(optimizer.step(), numerics, "2.bias", 0);
    CHECK(problem.weights() == before);
    CHECK(optimizer.steps() == 0);
  }
}

TEST_CASE("state has names and shapes fit for a checkpoint") {
  Problem problem;
  const auto names = [&](OptimizerConfig optimizer_config) {
    std::string all;
    Optimizer optimizer(problem.parameters, optimizer_config);
    for (auto& [name, flat] : optimizer.state()) {
      all += name + " ";
      CHECK(flat.numel() == problem.parameters.size());
    }
    return optimizer.name() + ": " + all;
  };
  CHECK(names(Sgd{}) == "sgd: ");
  CHECK(names(Sgd{.momentum = 0.9}) == "sgd: momentum ");
  CHECK(names(Adagrad{}) == "adagrad: sum ");
  CHECK(names(Adadelta{}) == "adadelta: square_avg acc_delta ");
  CHECK(names(Adam{}) == "adam: exp_avg exp_avg_sq ");
  CHECK(names(Lars{}) == "lars: momentum ");
  CHECK(Optimizer(problem.parameters, Sgd{.lr = warm_up(0.4, 4)}).rate() == 0);
}

TEST_CASE("recipes that make no sense are refused") {
  Problem p;
  CHECK_ERROR(Optimizer(p.parameters, Sgd{.nesterov = true}), usage, "sgd", 0);
  CHECK_ERROR(Optimizer(p.parameters, Adam{.beta2 = 1}), usage, "beta2", 1, 0);
  CHECK_ERROR(Optimizer(p.parameters, AdamW{.weight_decay = -1}), usage, "weight_decay", -1);
  CHECK_ERROR(Optimizer(p.parameters, Sgd{}, {.clip_norm = -1}), usage, -1, "clip_norm");
}

TEST_CASE("every number of every recipe is held to its range") {
  Problem p;
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [&](const std::string& field, const std::vector<double>& values, const auto& recipe_with) {
    for (double v : values) {
      INFO(field << " = " << v);
      CHECK_ERROR(Optimizer(p.parameters, recipe_with(v)), usage, field);
    }
  };
  const std::vector<double> no_share{-0.1, 1, 2, inf, nan}, negative{-1, -inf, inf, nan},
      not_positive{0, -1e-8, inf, nan};
  refused("momentum", no_share, [](double v) { return Sgd{.momentum = v}; });
  refused("momentum", no_share, [](double v) { return Lars{.momentum = v}; });
  refused("dampening", {-0.1, 1.1, nan, inf}, [](double v) { return Sgd{.dampening = v}; });
  refused("rho", no_share, [](double v) { return Adadelta{.rho = v}; });
  refused("beta1", no_share, [](double v) { return Adam{.beta1 = v}; });
  refused("beta2", no_share, [](double v) { return AdamW{.beta2 = v}; });
  refused("eps", not_positive, [](double v) { return Adagrad{.eps = v}; });
  refused("eps", not_positive, [](double v) { return Adadelta{.eps = v}; });
  refused("eps", not_positive, [](double v) { return Adam{.eps = v}; });
  refused("eps", not_positive, [](double v) { return AdamW{.eps = v}; });
  refused("eps", not_positive, [](double v) { return Lars{.eps = v}; });
  refused("trust_coefficient", not_positive, [](double v) { return Lars{.trust_coefficient = v}; });
  refused("initial", negative, [](double v) { return Adagrad{.initial = v}; });
  for (const OptimizerConfig& any : optimizers())
    for (const std::string name : {"weight_decay", "lr"})
      refused(name, negative, [&](double v) {
        OptimizerConfig config = any;
        for (const OptimizerField& field : config.fields()) {
          if (name != field.name) continue;
          if (name == "lr")
            *std::get<Schedule*>(field.value) = v;
          else
            *std::get<double*>(field.value) = v;
        }
        return config;
      });
}

namespace {
/// Chen et al. (arXiv 2302.06675), as a user would write it: here by numbers on the host.
struct OwnLion {
  Schedule lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;

  static constexpr char name[] = "lion";
  std::vector<OptimizerField> fields() {
    return {{"lr", &lr},
            {"beta1", &beta1, OptimizerField::fraction},
            {"beta2", &beta2, OptimizerField::fraction},
            {"weight_decay", &weight_decay}};
  }
  std::vector<OptimizerState> state() const { return {{"exp_avg"}}; }
  void update(const OptimizerUpdate& u) const {
    auto *v = u.value.data<double>(), *g = u.grad.data<double>(), *m = u.state[0].data<double>();
    for (Index i = 0; i < u.value.numel(); ++i) {
      const double slope = g[i] * u.grad_scale, move = beta1 * m[i] + (1 - beta1) * slope;
      v[i] -= u.lr * (static_cast<double>((move > 0) - (move < 0)) + u.weight_decay * v[i]);
      m[i] = beta2 * m[i] + (1 - beta2) * slope;
    }
  }
};
}  // namespace

TEST_CASE("an optimizer of a user's own: its settings are checked and written, its state is kept") {
  Problem p;
  Optimizer lion(p.parameters, OwnLion{.lr = 0.01, .weight_decay = 0.1});
  CHECK(lion.state()[0].first == "exp_avg");
  const std::vector<double> before = p.weights();
  const double first = p.backward(), slope = p.parameters.entries()[0].tensor.grad().to_vector()[0];
  lion.step();
  CHECK(p.weights()[0] == Approx(before[0] - 0.01 * ((slope > 0 ? 1 : -1) + 0.1 * before[0])));
  CHECK(lion.state()[0].second.to_vector()[0] == Approx(0.01 * slope));
  CHECK(p.train(lion, steps).back() < first);
  CHECK(to_string(OwnLion{}) == "lion(lr=0.0001, beta1=0.9, beta2=0.99, weight_decay=0)");
  CHECK_ERROR(Optimizer(p.parameters, OwnLion{.beta2 = 1}), usage, "beta2", 1, 0);
}

TEST_CASE("a setting changed in a copy of a config leaves the first as it was; a name is added once") {
  OptimizerConfig one = Adam{.lr = 0.5}, other = one;
  *std::get<Schedule*>(other.fields()[0].value) = 0.25;
  CHECK(one.lr()(0) == 0.5);
  CHECK(other.lr()(0) == 0.25);
  CHECK_ERROR(add_optimizer(Adam{}), usage, "optimizer", "adam");
}

TEST_CASE("a schedule that returns nonsense is refused at its step, before anything changes") {
  for (double bad : {-0.1, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Problem p;
    Optimizer optimizer(
        p.parameters,
        Sgd{.lr = std::function<double(std::int64_t)>([=](std::int64_t step) { return step == 2 ? bad : 0.1; })});
    p.train(optimizer, 2);
    const auto before = p.weights();
    p.backward();
    CHECK_ERROR(optimizer.step(), usage, "sgd", 2);
    CHECK(p.weights() == before);
  }
}

TEST_CASE("norms and updates divide by the loss scale") {
  for (const Case& c : cases()) {
    OptimizerOptions options = c.options;
    options.clip_norm = 0.2;  // far below the norm: it always clips
    Problem one, scaled;
    Optimizer plain(one.parameters, c.optimizer_config, options), other(scaled.parameters, c.optimizer_config, options);
    other.set_loss_scale(1024);
    for (int i = 0; i < 5; ++i) {
      one.backward();
      scale(mse_loss(scaled.model(scaled.x), scaled.y), 1024).backward();
      CHECK(plain.grad_norm() > 0.2);
      CHECK(other.grad_norm() == plain.grad_norm());  // 1024 is a power of two
      CHECK(other.clip_scale() == plain.clip_scale());
      plain.step();
      other.step();
    }
    INFO(c.name);
    CHECK(scaled.weights() == one.weights());
  }
}

}  // namespace test_optimizer
