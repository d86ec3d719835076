// Fields (Tensor::with) under strategies: several inputs, outputs and targets, against the serial run.
#include <cmath>
#include <optional>

#include "framework/tensor/create.h"
#include "parallel/runtime/step.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/step_models.h"
#include "tests/support/catch.h"
#include "tests/support/distance.h"

namespace test_fields {

using namespace trireme;
using namespace trireme::test;

namespace {
/// all with rows added at these rows of it.
Tensor take_add(const Tensor& all, const Tensor& at, const Tensor& rows) {
  return scatter_add(all, expand(unsqueeze(at, 1), rows.shape()), rows, 0).detach();
}
}  // namespace

TEST_CASE("several inputs, outputs and targets go through every strategy, and outputs are kept when asked for") {
  /// Adds a number per row to the first of two products.
  struct Entrance {
    Linear of_x{36, 8}, of_mask{3, 8};
    Tensor operator()(const Tensor& x) const { return of_x(x.reshape({-1, 36})) + of_mask(x.at("mask")); }
    void visit(const StateVisitor& v) {
      v("of_x", of_x);
      v("of_mask", of_mask);
    }
  };
  struct Heads {
    Linear logits{8, 5}, size{8, 2};
    Tensor operator()(const Tensor& x) const { return logits(x).with("size", size(x)); }
    void visit(const StateVisitor& v) {
      v("logits", logits);
      v("size", size);
    }
  };
  const auto model = [] {
    Module m = Sequential{Entrance(), relu, Linear(8, 8), relu, Heads()};
    initialize(m, 5);
    return m;
  };
  const Loss loss = [](const Tensor& p, const Tensor& y) {
    return cross_entropy(p, y) + mse_loss(p.at("size"), y.at("size")) * 0.5;
  };
  const auto train = [&](int ranks, const std::string& strategy) {
    return on_ranks(ranks, [&](World& world) {
      const bool pipe = strategy.starts_with("pipeline");
      Mesh mesh(world, {{pipe ? "pipe" : "data", ranks}});
      Step step(model(), loss, Adam{.lr = 0.01}, mesh,
                ranks > 1 ? std::optional(parse_strategy(strategy)) : std::nullopt, {.keep_outputs = whole_output});
      std::vector<double> losses;
      for (std::uint64_t i = 0; i < 4; ++i) {
        const Tensor x = noise(7, i).with("mask", normal({7, 3}, 0, 1, i)),
                     y = labels(7).with("size", normal({7, 2}, 0, 1, 9 + i)).with("row", arange(7));
        const auto [begin, end] = pipe ? std::pair<Index, Index>{0, 7} : own_rows(world, 7);
        losses.push_back(step(x.rows(begin, end), y.rows(begin, end)).item());
        // What the ranks have kept are all rows, each once: logits, sizes, how many there are.
        const Tensor own = StepProbe(step).outputs();
        Tensor all = Tensor::zeros({7, 8});
        if (own) {
          const Tensor rows = concat({own, own.at("size"), ones({own.dim(0), 1})}, 1);
          all = take_add(all, StepProbe(step).targets().at("row"), rows);
        }
        world.comm().all_reduce(all).wait();
        for (const double value : all.to_vector()) losses.push_back(value);
      }
      StepProbe(step).consolidate();
      return outcome(world, losses, step.parameters());
    });
  };
  const auto serial = train(1, "");
  for (const std::string strategy : {"data_parallel", "zero(2)", "zero(3)", "pipeline(micro=2, partition=even)",
                                     "pipeline(micro=3, schedule=zb-h1, partition=even)"})
    for (const int ranks : rank_counts({2, 3})) {
      INFO(strategy << " on " << ranks);
      const auto got = train(ranks, strategy);
      CHECK(distance(got.losses, serial.losses) < 1e-5);
      CHECK(distance(got.weights, serial.weights) < 1e-4);
    }
  const Tensor x = noise(2, 0).with("a", ones({2})).with("b", ones({3}));
  CHECK_ERROR(x.at("c"), usage, "c", "a", "b");
  CHECK_ERROR(ones({2}).at("c"), usage, "none");
  CHECK(x.rows(1, 2).at("a").shape() == Shape{1});
  CHECK(x.rows(1, 2).at("b").shape() == Shape{3});
  CHECK(x.detach().at("b").shape() == Shape{3});
}

namespace {

/// Puts a tensor beside its result, which Read multiplies by.
struct Give {
  Linear layer{3, 4};
  Tensor operator()(const Tensor& x) const {
    const Tensor h = layer(x);
    return relu(h).with("memory", tanh(h)).with("mask", (h > 0).detach());
  }
  void visit(const StateVisitor& v) { v("layer", layer); }
};
struct Read {
  Linear layer{4, 4};
  Tensor operator()(const Tensor& x) const { return masked_fill(layer(x) * x.at("memory"), x.at("mask"), 0.5); }
  void visit(const StateVisitor& v) { v("layer", layer); }
};
/// Logits of the ids beside x, of which there are two per row: an encoder and decoder in small. Or, with a table beside
/// x that all rows share.
struct Decode {
  Embedding ids{5, 4};
  Linear layer{4, 5};
  Tensor operator()(const Tensor& x) const {
    const Tensor y = ids(x.at("ids")) + unsqueeze(mean(x, {1}, true), 1);
    return layer(x.fields().contains("table") ? matmul(y, x.at("table")) : y);
  }
  void visit(const StateVisitor& v) {
    v("ids", ids);
    v("layer", layer);
  }
};

/// Losses of two epochs, and weights, of one batch of 6 rows under a strategy.
Outcome train_on_fields(const std::string& how, int ranks, const std::function<Module()>& model, const Loss& loss,
                        const Tensor& x, const Tensor& y) {
  return on_ranks(ranks, [&](World& world) {
    const char* axis = how.starts_with("pipeline") ? "pipe" : how.starts_with("spatial") ? "h" : "data";
    Mesh mesh(world, {{how.starts_with("tensor") ? "tensor" : axis, ranks}});
    Module m = convert(model(), DType::f64);
    initialize(m, 3);
    Step step(m, loss, Sgd{.lr = 0.5}, mesh, parse_strategy(how));
    Loader loader(TensorDataset(x, y), {.batch = 6, .shard = step.shard()});
    std::vector<double> losses;
    for (int epoch = 0; epoch < 3; ++epoch)
      for (auto& [a, b] : loader) losses.push_back(step(a, b).item());
    StepProbe(step).consolidate();
    return outcome(world, losses, step.parameters());
  });
}
void check_fields(const std::string& how, int ranks, const std::function<Module()>& model, const Loss& loss,
                  const Tensor& x, const Tensor& y) {
  INFO(how << " on " << ranks);
  const Outcome serial = train_on_fields("serial", 1, model, loss, x, y);
  const Outcome got = train_on_fields(how, ranks, model, loss, x, y);
  CHECK(distance(got.losses, serial.losses) < 1e-12);
  CHECK(distance(got.weights, serial.weights) < 1e-12);
}

}  // namespace

TEST_CASE("what is computed from fields counts for the rows of its batch, micro-batches and ranks of any kind") {
  if (threads_only()) return;
  const Tensor x = normal({6, 3}, 0, 1, 1, DType::f64), y = normal({6, 1}, 0, 1, 2, DType::f64);
  const Tensor w = uniform({6, 1}, 0, 1, 3, DType::f64), ids = arange(12).reshape({6, 2});
  const Tensor words = x.with("ids", remainder(ids, 5)), labels = remainder(ids * 7, 5);
  const auto layers = [] { return Module(Sequential{Linear(3, 4), relu, Linear(4, 1)}); };
  for (const auto& [how, ranks] : std::vector<std::pair<std::string, int>>{{"accumulate(micro=2)", 1},
                                                                           {"accumulate(micro=4)", 1},
                                                                           {"pipeline(micro=2)", 2},
                                                                           {"data_parallel", 2},
                                                                           {"accumulate(micro=2) | data_parallel", 2},
                                                                           {"accumulate(micro=3) | zero(3)", 2}}) {
    for (const bool left : {true, false}) {
      const Loss weighted = [left](const Tensor& p, const Tensor& t) {
        return batch_mean(left ? t.at("w") * square(p - t) : square(p - t) * t.at("w"));
      };
      check_fields(how, ranks, layers, weighted, x, y.with("w", w));
    }
    if (how.starts_with("pipeline")) continue;  // a model of one part
    check_fields(
        how, ranks, [] { return Module(Decode()); }, cross_entropy, words, labels);
  }
}

TEST_CASE("a field that all rows share stays whole, of however many rows it is") {
  if (threads_only()) return;
  const Tensor x = normal({12, 3}, 0, 1, 1, DType::f64).with("ids", remainder(arange(24), 5).reshape({12, 2}));
  for (const Index batch : {Index{4}, Index{6}})
    for (const std::string how : {"serial", "accumulate(micro=2)"}) {
      INFO(how << ", batches of " << batch);
      World world;
      Module m = convert(Decode(), DType::f64);
      initialize(m, 3);
      Step step(m, cross_entropy, Sgd{.lr = 0.5}, world, parse_strategy(how));
      const Tensor labels = remainder(arange(24) * 7, 5).reshape({12, 2});
      const Tensor table = normal({4, 4}, 0, 1, 5, DType::f64);  // as many rows as a batch of 4
      for (auto& [a, b] :
           Loader(TensorDataset(x.with("table", table), labels), {.batch = batch, .shard = step.shard()}))
        CHECK(std::isfinite(step(a, b).item()));
      CHECK(table.batch() == nullptr);
      if (batch != 4) continue;
      // Beside a Loader's tensor what comes from elsewhere is whole, unless it is said to have that batch's rows.
      for (auto& [a, b] : Loader(TensorDataset(x, labels), {.batch = batch, .shard = step.shard()})) {
        CHECK(std::isfinite(step(a.with("table", table), b).item()));
        CHECK(a.with("own", ones({4})).rows(0, 2).at("own").shape() == Shape{4});
        CHECK(a.with("own", ones({4}).with_batch(*a.batch())).rows(0, 2).at("own").shape() == Shape{2});
      }
    }
}

TEST_CASE("a field that a layer makes for the next one gets its gradient, or is refused") {
  if (threads_only()) return;
  const Tensor x = normal({6, 3}, 0, 1, 1, DType::f64), y = normal({6, 2}, 0, 1, 2, DType::f64);
  const auto model = [] { return Module(Sequential{Give(), Read(), Linear(4, 2)}); };
  for (const std::string how : {"data_parallel", "zero(1)", "zero(2)", "zero(3)", "accumulate(micro=2) | zero(3)"})
    check_fields(how, 2, model, mse_loss, x, y);
  CHECK_ERROR(train_on_fields("pipeline(micro=2, partition=1)", 2, model, mse_loss, x, y), usage, "mask");
}

TEST_CASE("fields reach the first layer, or the whole model, where layers are split over ranks") {
  if (threads_only()) return;
  struct Timed {
    Conv2d conv{1, 2, 3, {.pad = 1}};
    Linear time{1, 2};
    Tensor operator()(const Tensor& x) const {
      return conv(x) + unsqueeze(unsqueeze(time(x.at("t")), 1), 1) * x.at("mask");
    }
    void visit(const StateVisitor& v) { v("conv", conv, "time", time); }
  };
  const Tensor x = normal({6, 4, 4, 1}, 0, 1, 1, DType::f64), y = normal({6, 4, 4, 2}, 0, 1, 4, DType::f64);
  const Tensor with =
      x.with("t", normal({6, 1}, 0, 1, 2, DType::f64)).with("mask", uniform({6, 4, 4, 1}, 0, 1, 3, DType::f64));
  for (const std::string how : {"spatial", "one_weird_trick", "tensor"})
    for (const bool row : {false, true})
      check_fields(
          how != "tensor" ? how
          : row           ? "tensor | place(0.time.*, whole=true)"
                          : "tensor | place(time.*, whole=true)",
          2,
          [row] {
            return row ? Module(Sequential{Timed(), relu}) : Module(Timed());
          },
          mse_loss, with, y);
  // Ranks of one row: a field of a rank's own row would be broadcast over the rows of all.
  const auto timed = [] { return Module(Sequential{relu, Timed()}); };
  for (const std::string how : {"one_weird_trick", "one_weird_trick | zero(3)"})
    check_fields(how, 2, timed, mse_loss, with.rows(0, 2), y.rows(0, 2));
  const Tensor shared = with.with("shared", ones({3}, DType::f64));
  CHECK_ERROR(train_on_fields("one_weird_trick", 2, timed, mse_loss, shared, y), usage, "shared", "[3]");
}

TEST_CASE("several outputs leave a model whose layers are split over ranks") {
  if (threads_only()) return;
  const Tensor x = normal({6, 4, 4, 1}, 0, 1, 1, DType::f64), flat = x.reshape({6, 16});
  struct Two {
    Module first, second;
    Tensor operator()(const Tensor& t) const { return first(t).with("second", second(t)); }
    void visit(const StateVisitor& v) {
      v("first", first);
      v("second", second);
    }
  };
  const auto images = [] { return Module(Two{Conv2d(1, 2, 3, {.pad = 1}), Conv2d(1, 3, 1)}); };
  const auto features = [] { return Module(Sequential{Linear(16, 6), relu, Two{Linear(6, 4), Linear(6, 5)}}); };
  const Loss both = [](const Tensor& p, const Tensor& t) {
    return mse_loss(p, t) + mse_loss(p.at("second"), t.at("second"));
  };
  const auto targets = [](const Shape& first, const Shape& second) {
    return normal(first, 0, 1, 2, DType::f64).with("second", normal(second, 0, 1, 3, DType::f64));
  };
  check_fields("spatial", 2, images, both, x, targets({6, 4, 4, 2}, {6, 4, 4, 3}));
  for (const std::string how : {"tensor", "tensor | place(2.first.*, whole=true)"})
    check_fields(how, 2, features, both, flat, targets({6, 4}, {6, 5}));
  check_fields(
      "tensor", 2,
      [] {
        return Module(Two{Linear(16, 4), Linear(16, 5)});
      },
      both, flat, targets({6, 4}, {6, 5}));
}

}  // namespace test_fields
