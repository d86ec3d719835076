// Stores apart from the model: many under one model, a server's without one, their description as text, versions.
#include <numeric>
#include <random>

#include "framework/autograd/batch_norm_stats.h"
#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/layers/layers.h"
#include "framework/layers/recompute.h"
#include "framework/optim/optimizer.h"
#include "tests/support/catch.h"

namespace test_store {

using namespace trireme;
using test::contains;
using Values = std::vector<double>;

namespace {

constexpr Index features = 6, classes = 3;

Sequential network() { return {Linear(features, 7), BatchNorm(7), trireme::tanh, Dropout(0.3), Linear(7, classes)}; }
Module made(const Sequential& layers, std::uint64_t seed, DType dtype) {
  Module model = layers;
  initialize(model, seed);
  convert(model, dtype);
  return model;
}

/// The types of a run: weights in one, activations in another.
struct Types {
  DType weights, data;
};
constexpr Types types[] = {{DType::f32, DType::f32}, {DType::f64, DType::f64}, {DType::f32, DType::bf16}};

const std::vector<OptimizerConfig>& configs() {
  static const std::vector<OptimizerConfig> all{Sgd{.lr = 0.1},
                                                Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
                                                Adagrad{.lr = 0.1, .initial = 0.1},
                                                Adadelta{.lr = 1.0, .weight_decay = 0.01},
                                                Adam{.lr = 0.01, .weight_decay = 0.01},
                                                AdamW{.lr = step_decay(0.01, 2, 0.5), .weight_decay = 0.1},
                                                Lars{.lr = 0.5, .weight_decay = 0.01, .trust_coefficient = 0.1}};
  return all;
}

/// The loss of one worker's batch at one of its steps; the rest of a step stands in the tests.
Tensor forward(const Module& model, const Types& t, std::uint64_t worker, std::int64_t step) {
  Tensor x = Tensor::empty({5, features}, DType::f64), y = Tensor::empty({5, classes}, DType::f64);
  const std::uint64_t seed = 1000 * worker + static_cast<std::uint64_t>(step);
  normal(x, 0, 1, 2 * seed);
  normal(y, 0, 1, 2 * seed + 1);
  const BatchContext batch{.seed = worker, .step = static_cast<std::uint64_t>(step)};
  return mse_loss(model(x.to(t.data).with_batch(batch)).to(t.weights), y.to(t.weights));
}

/// All that a step changes: weights, running statistics, the optimizer's state.
Values numbers(const ParameterStore& store, const Optimizer& optimizer) {
  Values all = store.values().to_vector();
  const auto add = [&](const Values& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (auto& b : store.buffers()) add(b.tensor.to_vector());
  for (auto& [name, flat] : optimizer.state()) add(flat.to_vector());
  return all;
}

Values trained_apart(const Types& t, const OptimizerConfig& config, std::uint64_t worker, std::int64_t steps) {
  const Module model = made(network(), 1, t.weights);
  Parameters parameters(model);
  Optimizer optimizer(parameters, config, {.clip_norm = 0.5});
  for (std::int64_t step = 0; step < steps; ++step) {
    forward(model, t, worker, step).backward();
    optimizer.step();
  }
  return numbers(parameters, optimizer);
}

std::vector<Slice> random_cuts(Index size, int cuts, std::mt19937& random) {
  std::vector<Index> at{0, size};
  for (int i = 0; i < cuts; ++i) at.push_back(static_cast<Index>(random()) % (size + 1));
  std::sort(at.begin(), at.end());
  std::vector<Slice> slices;
  for (std::size_t i = 1; i < at.size(); ++i) slices.push_back({at[i - 1], at[i]});
  std::shuffle(slices.begin(), slices.end(), random);
  return slices;
}

}  // namespace

TEST_CASE("stores that take turns under one model train as models apart do, bit for bit") {
  constexpr int workers = 4, steps = 4;
  std::mt19937 random(1);
  for (const Types& t : types)
    for (const OptimizerConfig& config : configs()) {
      const Module model = made(network(), 1, t.weights);
      std::vector<ParameterStore> stores{ParameterStore(model)};
      while (stores.size() < workers) stores.push_back(stores.front().clone());
      std::vector<std::unique_ptr<Optimizer>> optimizers;
      for (ParameterStore& s : stores)
        optimizers.push_back(std::make_unique<Optimizer>(s, config, OptimizerOptions{.clip_norm = 0.5}));
      std::vector<Tensor> losses(workers);
      std::vector<int> turns;  // each worker's: forward, backward, update, steps times
      for (int w = 0; w < workers; ++w) turns.insert(turns.end(), 3 * steps, w);
      std::shuffle(turns.begin(), turns.end(), random);
      std::vector<int> done(workers);
      for (const int w : turns) {
        const auto at = static_cast<std::size_t>(w);
        const int what = done[at] % 3;
        if (what < 2) stores[at].bind();  // the update needs no model
        if (what == 0) losses[at] = forward(model, t, static_cast<std::uint64_t>(w), done[at] / 3);
        if (what == 1) losses[at].backward();
        if (what == 2) optimizers[at]->step();
        ++done[at];
      }
      for (std::size_t w = 0; w < workers; ++w) {
        INFO(to_string(config) << ", data " << name_of(t.data) << ", worker " << w);
        CHECK(numbers(stores[w], *optimizers[w]) == trained_apart(t, config, w, steps));
        CHECK(optimizers[w]->steps() == steps);
      }
    }
}

TEST_CASE("micro-batches of several stores at a time: statistics and late halves of backward stay apart") {
  const auto train = [](const Module& model, std::vector<ParameterStore>& stores, bool in_turns) {
    std::vector<BatchNormStats> statistics(stores.size());
    std::vector<Deferred> late(stores.size());
    const auto micro = [&](std::size_t w, std::int64_t step) {
      stores[w].bind();
      const StepScope scope({.norm_stats = &statistics[w]});
      const Tensor loss = forward(model, types[0], w, step), seed = Tensor::scalar(1);
      backward({&loss, 1}, {&seed, 1}, {.defer_weights = &late[w]});
    };
    const auto finish = [&](std::size_t w) {
      stores[w].bind();
      late[w].run();
      if (in_turns) stores[1 - w].bind();
      statistics[w].commit();  // goes to w's, whatever is bound
    };
    for (std::int64_t step = 0; step < 2; ++step)
      for (std::size_t w = 0; w < 2; ++w)
        micro(in_turns ? w : static_cast<std::size_t>(step), in_turns ? step : static_cast<std::int64_t>(w));
    finish(0);
    finish(1);
    std::vector<Values> all;
    for (ParameterStore& s : stores) {
      all.push_back(s.grads().to_vector());
      for (auto& b : s.buffers()) all.push_back(b.tensor.to_vector());
    }
    return all;
  };
  std::vector<std::vector<Values>> results;
  for (const bool in_turns : {true, false}) {
    const Module model = made(network(), 1, DType::f32);
    std::vector<ParameterStore> stores{ParameterStore(model)};
    stores.push_back(stores.front().clone());
    results.push_back(train(model, stores, in_turns));
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0][0] != results[0][3]);
}

TEST_CASE("what is bound decides what the layers hold, and a store always shows its own numbers") {
  const Sequential layers = network();
  const Module model = made(layers, 1, DType::f32);
  const Tensor weight = layers[0].as<Linear>()->weight;
  ParameterStore a(model);
  ParameterStore b = a.clone();
  CHECK(a.is_bound());
  CHECK_FALSE(b.is_bound());
  CHECK(b.values().to_vector() == a.values().to_vector());
  CHECK(b.spec() == a.spec());
  b.values().blocks()[0].copy_from(Tensor::full({b.size()}, 7));
  b.buffers()[0].tensor.copy_from(Tensor::full({7}, 5));
  const auto shows = [](const ParameterStore& s, double value) {
    CHECK(s.entries()[0].tensor.view().data == s.values().blocks()[0].view().data);
    CHECK((s.entries()[0].tensor.to_vector()[0] == 7) == (value == 7));
    CHECK((s.buffers()[0].tensor.to_vector()[0] == 5) == (value == 7));
  };
  for (int turn = 0; turn < 3; ++turn) {
    ParameterStore &on = turn % 2 ? b : a, &off = turn % 2 ? a : b;
    on.bind();
    CHECK(on.is_bound());
    CHECK_FALSE(off.is_bound());
    CHECK(on.entries()[0].tensor.id() == weight.id());
    CHECK(layers[1].as<BatchNorm>()->running_mean.id() == on.buffers()[0].tensor.id());
    CHECK(off.entries()[0].tensor.id() != weight.id());
    shows(a, 0);
    shows(b, 7);
    sum(model(Tensor::full({4, features}, 1).with_batch({}))).backward();
    CHECK(has_grad(on.entries()[0].tensor));
    CHECK_FALSE(has_grad(off.entries()[0].tensor));
    on.mark_released({0, 1}, true);
    CHECK_ERROR(weight.to_vector(), usage, "tensor", "[7, 6]");
    CHECK_ERROR(on.clone(), usage, "clone", "[7, 6]");
    off.bind();
    CHECK_NOTHROW(weight.to_vector());
    on.bind();
    CHECK_ERROR(weight.to_vector(), usage, "tensor", "[7, 6]");
    on.mark_released({0, 1}, false);
    on.clear_grads();
    layers[1].as<BatchNorm>()->running_mean.copy_from(Tensor::full({7}, turn % 2 ? 5 : 0));
  }
  // Hooks belong to the store, not to the layer.
  int a_told = 0, b_told = 0;
  const auto id = add_grad_hook(a.entries()[0].tensor, [&](const Tensor&) { ++a_told; });
  add_grad_hook(b.entries()[0].tensor, [&](const Tensor&) { ++b_told; });
  for (ParameterStore* s : {&a, &b, &a}) {
    s->bind();
    forward(model, types[0], 0, 0).backward();
  }
  b.bind();
  remove_grad_hook(a.entries()[0].tensor, id);
  forward(model, types[0], 0, 0).backward();
  CHECK(a_told == 2);
  CHECK(b_told == 2);
}

TEST_CASE("a backward under another store than its forward's is refused; under its own again it goes on") {
  for (const bool recompute : {false, true}) {
    Sequential layers{Linear(features, 4), trireme::tanh, Linear(4, classes)};
    if (recompute) layers = Sequential{Recompute(layers)};
    const Module model = made(layers, 1, DType::f32);
    ParameterStore a(model);
    ParameterStore b = a.clone();
    const Tensor loss = forward(model, types[0], 0, 0);
    b.bind();
    CHECK_ERROR(loss.backward(), usage, "backward");
    CHECK(a.zero_missing_grads().size() == a.entries().size());
    a.clear_grads();
    a.bind();
    loss.backward();
    const Values first = a.grads().to_vector();
    a.clear_grads();
    forward(model, types[0], 0, 0).backward();
    CHECK(a.grads().to_vector() == first);
    CHECK(b.zero_missing_grads().size() == b.entries().size());
  }
  // Halves that run late, too; and when the store of the forward has gone.
  const Module model = made(Sequential{Linear(features, classes)}, 1, DType::f32);
  std::optional<ParameterStore> a(std::in_place, model);
  ParameterStore b = a->clone();
  const Tensor loss = forward(model, types[0], 0, 0), more = forward(model, types[0], 0, 1), seed = Tensor::scalar(1);
  Deferred late;
  backward({&loss, 1}, {&seed, 1}, {.defer_weights = &late});
  a.reset();
  b.bind();
  CHECK_ERROR(late.run(), usage, "backward");
  CHECK_ERROR(more.backward(), usage, "backward");
  CHECK(b.zero_missing_grads().size() == 2);
}

TEST_CASE("a server without a model, updated by slices, equals Optimizer::step") {
  std::mt19937 random(2);
  for (const Types& t : types)
    for (const OptimizerConfig& config : configs())
      for (const OptimizerOptions& options :
           std::vector<OptimizerOptions>{{}, {.clip_norm = 0.3, .decay_biases = false}}) {
        const Module model = made(network(), 1, t.weights);
        Parameters worker(model);
        Optimizer whole(worker, config, options);
        ParameterStore server(parse_store_spec(to_string(worker.spec())));
        server.track_versions();
        const auto send = [](const FlatBuffer& from, const FlatBuffer& to) {
          to.blocks()[0].copy_from(from.blocks()[0]);
        };
        send(worker.values(), server.values());
        Optimizer by_slices(server, config, options);
        std::vector<Slice> tensors;
        for (auto& e : worker.entries()) tensors.push_back(e.slice);
        tensors.back().end = worker.size();
        for (std::size_t i = 1; i < tensors.size(); ++i) tensors[i - 1].end = tensors[i].begin;
        for (std::int64_t step = 0; step < 3; ++step) {
          forward(model, t, 0, step).backward();
          send(worker.grads(), server.grads());
          server.mark_written({0, server.size()});
          const double scale = by_slices.clip_scale();
          for (const Slice& s : config.has_trust_ratio() ? tensors : random_cuts(server.size(), 5, random))
            by_slices.update(s, scale);
          by_slices.finish();
          whole.step();
          CHECK(server.version({0, server.size()}) == step + 1);
        }
        INFO(to_string(config));
        CHECK(server.values().to_vector() == worker.values().to_vector());
        for (std::size_t i = 0; i < whole.state().size(); ++i)
          CHECK(by_slices.state()[i].second.to_vector() == whole.state()[i].second.to_vector());
        CHECK(by_slices.steps() == 3);
      }
}

TEST_CASE("a store made from a text is bound to the model that it describes; clones take state, steps and versions") {
  const Module model = made(network(), 1, DType::f32), other = made(network(), 2, DType::f32);
  Parameters p(model);
  ParameterStore made_of_text(parse_store_spec(to_string(p.spec())));
  CHECK_ERROR(made_of_text.bind(), usage, "parameters");
  CHECK(made_of_text.values().to_vector() == Values(static_cast<std::size_t>(p.size())));
  made_of_text.bind(model);
  CHECK(made_of_text.is_bound());
  CHECK_FALSE(p.is_bound());
  forward(model, types[0], 0, 0).backward();
  CHECK(made_of_text.written_grads() == std::vector<bool>(6, true));
  made_of_text.bind(model);  // again
  CHECK_ERROR(made_of_text.bind(other), usage, "parameters");
  p.bind();
  made_of_text.bind(other);  // a model in no Parameters
  CHECK(made_of_text.is_bound());
  CHECK(p.is_bound());
  CHECK_ERROR(Parameters(other), usage, "parameters", "0.weight");
  forward(other, types[0], 0, 0).backward();

  Optimizer optimizer(p, Sgd{.lr = 0.1, .momentum = 0.9});
  FlatBuffer residual = p.add_state("residual", 2, DType::f64);
  CHECK_ERROR(p.add_state("residual"), usage, "parameters", "residual");
  CHECK_ERROR(p.state("momentum"), usage, "parameters", "momentum");
  p.track_versions();
  const auto train = [&](ParameterStore& store, Optimizer& o, std::int64_t from, std::int64_t to) {
    store.bind();
    for (std::int64_t step = from; step < to; ++step) {
      forward(model, types[0], 3, step).backward();
      o.step();
    }
    return numbers(store, o);
  };
  train(p, optimizer, 0, 2);
  residual.blocks()[0].copy_from(Tensor::full({p.size()}, 3, DType::f64));
  ParameterStore copy = p.clone();
  Optimizer copied(copy, optimizer);
  CHECK(copied.steps() == 2);
  CHECK(copy.version({0, copy.size()}) == 2);
  CHECK(copy.state("residual").to_vector() == Values(static_cast<std::size_t>(p.size()), 3.0));
  const Values there = train(copy, copied, 2, 4);
  CHECK(train(p, optimizer, 2, 4) == there);
  CHECK(copy.state("residual").blocks()[0].view().data != p.state("residual").blocks()[0].view().data);
  Parameters small(Module(Linear(2, 2)));
  CHECK_ERROR(Optimizer(small, optimizer), usage, "optimizer");
  CHECK_ERROR(small.clone().bind(model), usage, 0, "[7,6]", "f32", "cpu:0");
}

TEST_CASE("a model belongs to the stores that take turns under it until they have all gone, or another took it") {
  const Module model = made(network(), 1, DType::f32);
  std::optional<ParameterStore> a(std::in_place, model), b(a->clone());
  b->bind();
  CHECK_ERROR(Parameters(model), usage, "parameters", "0.weight");
  const Values weights = b->values().to_vector();
  b.reset();
  a->bind();
  CHECK(a->is_bound());
  b = a->clone();
  b->bind();
  b.reset();  // the model keeps what it showed last
  Parameters taken(model);
  CHECK(taken.values().to_vector() == weights);
  CHECK_ERROR(a->bind(), usage, "parameters", "0.weight");
  a.reset();
  CHECK(taken.is_bound());
  forward(model, types[0], 0, 0).backward();
  CHECK(taken.zero_missing_grads().empty());
}

TEST_CASE("versions are the updates that all of a slice has seen") {
  std::mt19937 random(3);
  constexpr Index size = 40;
  ParameterStore store(StoreSpec{.tensors = {{.name = "w", .shape = {size}}}, .buffers = {}, .size = size});
  CHECK_ERROR(store.version({0, 1}), usage, "parameters", "track_versions");
  store.count_update({0, 5});  // of no effect
  store.track_versions();
  std::vector<std::int64_t> expected(size);
  for (int i = 0; i < 3000; ++i) {
    Slice s{static_cast<Index>(random() % (size + 1)), static_cast<Index>(random() % (size + 1))};
    if (s.begin > s.end) std::swap(s.begin, s.end);
    const auto of = std::span(expected).subspan(static_cast<std::size_t>(s.begin), static_cast<std::size_t>(s.size()));
    if (random() % 3) {
      store.count_update(s);
      for (auto& v : of) ++v;
    } else if (random() % 2) {
      store.set_version(s, i / 8);
      for (auto& v : of) v = i / 8;
    }
    if (s.size() > 0) REQUIRE(store.version(s) == *std::min_element(of.begin(), of.end()));
    REQUIRE(store.version({0, size}) == *std::min_element(expected.begin(), expected.end()));
  }
  CHECK_ERROR(store.version({0, size + 1}), usage, 0, 41, 40);
  CHECK_ERROR(store.set_version({-1, 2}, 0), usage, -1, 2, 40);
}

TEST_CASE("a spec is the same after it was a text, and what no store can be is refused in one line") {
  std::mt19937 random(4);
  for (int i = 0; i < 200; ++i) {
    StoreSpec spec;
    const DType dtype = random() % 2 ? DType::f32 : DType::f64;
    const int tensors = 1 + static_cast<int>(random() % 6), buffers = static_cast<int>(random() % 3);
    for (int k = 0; k < tensors + buffers; ++k) {
      const bool trained = k < tensors;
      TensorSpec t{.name = "part " + std::to_string(k),
                   .kind = trained ? static_cast<StateKind>(random() % 2) : StateKind::buffer,
                   .layout = static_cast<FileLayout>(random() % 3),
                   .begin = trained ? spec.size : 0,
                   .dtype = trained ? dtype : static_cast<DType>(random() % 7),
                   .device = cpu(static_cast<int>(random() % 3))};
      for (auto axes = random() % 4; axes > 0; --axes) t.shape.push_back(1 + static_cast<Index>(random() % 3));
      if (trained) spec.size += t.shape.numel() + static_cast<Index>(random() % 3);
      (trained ? spec.tensors : spec.buffers).push_back(t);
    }
    const StoreSpec read = parse_store_spec(to_string(spec));
    REQUIRE(read == spec);
    REQUIRE(ParameterStore(read).spec() == spec);
  }
  const std::string good =
      "store 80\nweight same 0 [5,3] f32 cpu:0 0.weight\nno_decay same 16 [5] f32 cpu:0 0.bias\n"
      "buffer same 0 [5] f32 cpu:0 1.running_mean\n";
  CHECK(to_string(parse_store_spec(good)) == good);
  const auto with = [&](const std::string& old, const std::string& changed) {
    std::string text = good;
    return text.replace(text.find(old), old.size(), changed);
  };
  const std::pair<std::string, std::string> bad[] = {
      {"", "no list of tensors"},
      {"store 80", "no list of tensors"},
      {"store 80\n", "no tensor of it is trained"},
      {with("weight", "wieght"), "there is no 'wieght' (did you mean 'weight'?)"},
      {with("same", "sane"), "(did you mean 'same'?)"},
      {with("f32", "f31"), "there is no 'f31'"},
      {with("cpu", "gpu"), "there is no 'gpu'"},
      {with("cpu:0", "cpu:-1"), "'-1' is no number"},
      {with("cpu:0", "cpu:4294967296"), "is no number"},
      {with("0.bias", "0.weight"), "two tensors are called '0.weight'"},
      {with(" 16 ", " 14 "), "'0.bias' is a no_decay that begins at element 14, expected one that is trained at or "},
      {with(" 0 [5,3]", " 1 [5,3]"), "'0.weight' is a weight that begins at element 1"},
      {with("80", "20"), "end at element 21 of 20"},
      {with("80", "80000000000000"), "at most 2^40"},
      {with("80", "99999999999999999999"), "is no number"},
      {with("[5,3]", "[5,3"), "'[5,3' is no shape"},
      {with("[5,3]", "[5,,3]"), "'' is no number"},
      {with("[5,3]", "[1,1,1,1,1,1,1]"), "at most 6 extents"},
      {with("[5,3]", "[-5,3]"), "'-5' is no number"},
      {with("[5,3]", "[1000000,1100000]"), "more than 2^40"},
      {with("[5]", "[4294967296,4294967296]"), "4294967296"},
      {with("[5] f32 cpu:0 0.b", "[5] f64 cpu:0 0.b"), "'0.bias' is f64 but '0.weight' is f32"},
      {with("[5,3] f32", "[5,3] bf16"), "'0.weight' is bf16, expected f32 or f64"},
      {with("buffer same 0", "buffer same 16"), "'1.running_mean' begins at element 16"},
      {with("80\n", "80\n\n"), "there is no ''"},
      {good + std::string(100'000, 'x') + "\n", "(100000 characters)"}};
  for (const auto& [text, told] : bad) {
    INFO(text.substr(0, 300) << " -> " << told);
    try {
      parse_store_spec(text);
      CHECK(told == "accepted");
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find(told) != std::string::npos);
      CHECK(std::string(e.what()).find('\n') == std::string::npos);
    }
  }
  CHECK_ERROR(to_string(TensorSpec{.name = "a\nb"}), usage, "parameters");
  CHECK_THROWS_AS(ParameterStore(StoreSpec{}), Error);
}

}  // namespace test_store
