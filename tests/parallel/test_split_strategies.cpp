// Strategies that split layers, alone and with data parallelism, against the serial run, parameter by parameter.
#include "framework/io/checkpoint.h"
#include "models/vision/resnet.h"
#include "models/vision/unet.h"
#include "models/volumes/msd.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/training.h"
#include "tests/support/temporary.h"

namespace test_split_strategies {

using namespace trireme;
using namespace trireme::test;

namespace {

struct Split {
  std::string mesh, strategy;
};
const std::vector<Split> splits = {
    {"h=1", "spatial"},
    {"h=2", "spatial"},
    {"w=3", "spatial"},
    {"h=4", "spatial(axes=h)"},
    {"h=2,w=2", "spatial"},
    {"h=4,w=2", "spatial"},
    {"data=2,h=2", "spatial | data_parallel"},
    {"data=3,h=2", "data_parallel(overlap=false) | spatial"},
    {"data=2,h=2,w=2", "spatial | data_parallel"},
    {"tensor=1", "tensor"},
    {"tensor=2", "tensor"},
    {"tensor=3", "tensor"},
    {"tensor=4", "tensor"},
    {"model=8", "tensor(axis=model)"},
    {"data=2,tensor=2", "tensor | data_parallel"},
    {"data=2,tensor=4", "data_parallel | tensor"},
    {"tensor=2,h=2", "tensor | spatial"},
    {"data=2,tensor=2,h=2", "tensor | spatial | data_parallel"},
    {"data=2", "one_weird_trick"},
    {"data=3", "one_weird_trick"},
    {"data=4", "one_weird_trick(overlap=false)"},
    {"data=8", "one_weird_trick"},
};

/// With stages of a pipeline too; the serial run has the same micro-batches.
const std::vector<Split> staged = {
    {"pipe=2,h=2", "pipeline(micro=2) | spatial"},
    {"pipe=2,tensor=2", "pipeline(micro=2) | tensor"},
    {"pipe=2,tensor=2", "tensor | pipeline(micro=2, schedule=gpipe)"},
    {"pipe=2,h=2,tensor=2", "pipeline(micro=2) | spatial | tensor"},
    {"data=2,pipe=2,h=2", "pipeline(micro=2) | spatial | data_parallel"},
    {"data=2,pipe=2,tensor=2", "pipeline(micro=2) | tensor | data_parallel"},
    {"pipe=4,h=2", "pipeline(micro=2, partition=even) | spatial"},  // a stage without parameters
};

void compare_all(const Setup& s, const std::vector<Split>& splits, const Strategy& serially, double tolerance) {
  const bool judge = !under_mpi() || processes().rank() == 0;  // outcomes say whether all ranks agree
  const Outcome reference = judge ? serial_run(s, serially) : Outcome{};
  std::size_t compared = 0;
  for (const Split& split : splits) {
    const auto axes = parse_mesh(split.mesh);
    if (other_ranks(ranks_of(axes))) continue;
    INFO(split.mesh << " " << split.strategy);
    const Outcome got = parallel_run(s, axes, parse_strategy(split.strategy));
    if (judge) check_close(got, reference, tolerance);
    ++compared;
  }
  if (!judge) SUCCEED("rank 0 compares");
  CHECK((under_mpi() || compared == splits.size()));  // under MPI the rows of as many ranks, if there are any
}
void compare_all(const Setup& s, double tolerance) {
  compare_all(s, splits, Strategy(), tolerance);
  compare_all(s, staged, accumulate(2), tolerance);
}

/// 20 steps, briefly a round of batches and one more; the last of a round's batches has 5 rows.
Setup setup(std::function<Module()> model, const Shape& shape = {12, 12, 1}) {
  return {.model = std::move(model), .samples = 55, .batch = 10, .steps = brief() ? 7 : 20, .shape = shape};
}

Sequential small_cnn() {
  return {Conv2d(1, 8, 3), relu, Conv2d(8, 8, 3), relu,          MaxPool(2), Dropout(0.25), flatten,
          Linear(128, 16), relu, Dropout(0.5),    Linear(16, 10)};
}

}  // namespace

TEST_CASE("split layers of a CNN train the serial run's model, dropout included", "[table][device]") {
  compare_all(setup(small_cnn), 1e-11);
}

TEST_CASE("mixed-scale dense layers over ranks train the serial run's model") {
  Setup s = setup([] {
    return Sequential{MixedScaleDense(2, 1, 2, {1, 4, 2, 10}, 0.3), Conv2d(9, 10, 1), global_avg_pool};
  });
  s.steps = 5;
  compare_all(s,
              {{"h=2", "spatial"},
               {"w=3", "spatial"},
               {"h=2,w=2", "spatial"},
               {"data=2,h=2", "spatial | data_parallel"},
               {"tensor=2", "tensor"},
               {"tensor=2,h=2", "tensor | spatial"}},
              Strategy(), 1e-11);
}

TEST_CASE("a U-Net over ranks, whose lowest levels have fewer rows than there are, trains the serial run's model") {
  Setup s = setup(
      [] {
        return Sequential{unet({.input = {32, 16, 1}, .classes = 10}, 2), global_avg_pool};
      },
      {32, 16, 1});
  s.samples = 14;
  s.batch = 4;
  s.steps = 4;  // of the last batch 2
  compare_all(s,
              {{"h=2", "spatial"},
               {"h=4", "spatial"},
               {"w=3", "spatial"},
               {"h=2,w=2", "spatial"},
               {"data=2,h=2", "spatial | data_parallel"},
               {"tensor=2", "tensor"},
               {"tensor=2,h=2", "tensor | spatial"}},
              Strategy(), 1e-11);
  compare_all(s, {{"pipe=2,h=2", "pipeline(micro=2) | spatial"}, {"pipe=2,tensor=2", "pipeline(micro=2) | tensor"}},
              accumulate(2), 1e-11);
}

TEST_CASE("a U-Net of volumes over ranks trains the serial run's model") {
  Setup s = setup(
      [] {
        return Sequential{unet({.input = {16, 32, 16, 1}, .classes = 10}, 2), global_avg_pool};
      },
      {16, 32, 16, 1});
  s.samples = 6;
  s.batch = 2;
  s.steps = 3;
  compare_all(
      s, {{"d=2", "spatial"}, {"h=3", "spatial"}, {"d=2,h=2", "spatial"}, {"data=2,w=2", "spatial | data_parallel"}},
      Strategy(), 1e-11);
}

TEST_CASE("layers named are laid out as asked, and what lies between is laid out anew") {
  const Setup s = setup(small_cnn);
  for (const char* strategy : {"tensor | place(0.*+2.*+7.*+10.*)",
                               "tensor | place(0.*, whole=true) | place(2.weight+7.weight+10.weight, dim=-1)",
                               "tensor | place(0.*+2.*, whole=true)", "tensor | place(7.weight, dim=1) | place(10.*)",
                               "place(2.*) | place(7.weight, dim=1)"})
    compare_all(
        s, {{"tensor=2", strategy}, {"tensor=3", strategy}, {"tensor=2,h=2", std::string(strategy) + " | spatial"}},
        Strategy(), 1e-11);
}

TEST_CASE("clipping, and rates that depend on a weight's norm, see the whole weight") {
  Setup s = setup(small_cnn);
  const std::vector<Split> some = {
      {"tensor=2", "tensor"}, {"tensor=4", "tensor"}, {"data=3", "one_weird_trick"}, {"h=2", "spatial"}};
  s.optimizer.clip_norm = 0.1;
  compare_all(s, some, Strategy(), 1e-11);
  s.optimizer = {};
  for (const OptimizerConfig& rule : {OptimizerConfig(Lars{.lr = 0.1, .momentum = 0.9}), OptimizerConfig(Lamb{})}) {
    s.optimizer_config = rule;
    compare_all(s, some, Strategy(), 1e-11);
    if (under_mpi()) continue;
    compare_all(s,
                {{"tensor=3,h=2", "spatial | tensor | zero(3)"},
                 {"tensor=2,data=2", "tensor | data_parallel | zero(1)"},
                 {"tensor=2,data=2", "tensor | data_parallel | zero(3)"}},
                Strategy(), 1e-11);
  }
}

TEST_CASE("ranks with parts of different sizes clip whole weights by the same bits") {
  if (threads_only()) return;
  Setup s =
      setup([] { return Sequential{flatten, Linear(9, 5), relu, Linear(5, 20), relu, Linear(20, 7)}; }, {3, 3, 1});
  s.optimizer.clip_norm = 0.01;
  const std::string strategy = "tensor | place(3.*+5.*, whole=true)";
  compare_all(s, {{"tensor=3", strategy}, {"tensor=4", strategy}, {"tensor=4,data=2", strategy + " | zero(1)"}},
              Strategy(), 1e-11);
}

TEST_CASE("shards of updates that have parts of weights on one rank only, and none on others") {
  if (threads_only()) return;
  Setup s =
      setup([] { return Sequential{flatten, Linear(121, 10), relu, Linear(10, 8), relu, Linear(8, 5)}; }, {11, 11, 1});
  s.steps = 2;
  for (const double bound : {0.0, 0.1}) {
    s.optimizer.clip_norm = bound;
    compare_all(
        s, {{"tensor=3,h=2", "spatial | tensor | zero(3)"}, {"tensor=3,data=2", "tensor | data_parallel | zero(1)"}},
        Strategy(), 1e-11);
  }
}

TEST_CASE("split layers of an MLP train the serial run's model", "[table]") {
  compare_all(setup([] { return Sequential{flatten, Linear(144, 24), relu, Linear(24, 16), relu, Linear(16, 10)}; }),
              1e-11);
}

TEST_CASE("split layers of a residual network train the serial run's model, batch norm's statistics included",
          "[table]") {
  Setup s = setup([] { return cifar_resnet(8, {.input = {8, 8, 1}}); }, {8, 8, 1});
  s.samples = 34;
  s.batch = 6;  // of the last batch 4
  compare_all(s, 1e-11);
}

namespace {

/// Two convolutions of which the second sums over ranks, and a shortcut of which each rank has some channels.
struct DividedShortcut {
  Conv2d first{1, 4, 3, {.pad = 1}}, second{4, 4, 3, {.pad = 1}};
  BatchNorm norm{4, {.relu = true}};
  Conv2d shortcut{1, 4, 1};
  Tensor operator()(const Tensor& x) const { return conv_norm(second, norm, relu(first(x)), shortcut(x)); }
  void visit(const StateVisitor& v) {
    v("first", first);
    v("second", second);
    v("norm", norm);
    v("shortcut", shortcut);
  }
};

}  // namespace

TEST_CASE("a batch norm of a whole tensor adds a residual that ranks divide") {
  Setup s = setup([] { return Sequential{DividedShortcut(), flatten, Linear(144, 5)}; }, {6, 6, 1});
  s.samples = 9;
  s.batch = 5;
  s.steps = 3;
  compare_all(s,
              {{"tensor=2", "tensor"},
               {"tensor=4", "tensor"},
               {"tensor=2,h=2", "tensor | spatial"},
               {"data=2,tensor=2", "tensor | data_parallel"}},
              Strategy(), 1e-11);
}

TEST_CASE("on integers split layers equal serial bit by bit", "[table]") {
  compare_all({.model =
                   [] {
                     return with_integers(Sequential{Conv2d(1, 8, 3), relu, MaxPool(2), Conv2d(8, 8, 3), flatten,
                                                     Linear(72, 8), relu, Linear(8, 8)});
                   },
               .loss = pattern_loss,
               .optimizer_config = Sgd{.lr = 0.125},
               .samples = 16,
               .batch = 8,
               .steps = 2,
               .shape = {12, 12, 1},
               .integers = true},
              0);
}

namespace {

/// Adds a map that is learned, one number for each cell and channel, and scales all by one number.
struct LearnedMap {
  explicit LearnedMap(const Shape& shape) : map(Tensor::zeros(shape)) {}
  Tensor operator()(const Tensor& x) const { return (x + map.to(x.dtype())) * factor.to(x.dtype()); }
  void visit(const StateVisitor& v) {
    v("map", map, StateKind::weight, Init::normal(0.5));
    v("factor", factor, StateKind::weight, Init::normal(1));
  }
  Tensor map, factor = Tensor::full({1}, 2);
};

}  // namespace

TEST_CASE("layers between divided convolutions train the serial run's model") {
  const std::vector<Split> some = {{"h=2", "spatial"},
                                   {"w=3", "spatial"},
                                   {"h=2,w=2", "spatial"},
                                   {"tensor=2", "tensor"},
                                   {"tensor=2,h=2", "tensor | spatial"},
                                   {"data=2,h=2", "spatial | data_parallel"},
                                   {"data=2", "one_weird_trick"}};
  const std::vector<std::pair<const char*, std::function<Module()>>> layers = {
      {"learned map",
       [] {
         return LearnedMap({6, 6, 4});
       }},
      {"learned row",
       [] {
         return LearnedMap({6, 1});
       }},
      {"PReLU", [] { return PReLU(4); }},
      {"PReLU of one slope", [] { return PReLU(); }},
      {"LayerNorm", [] { return LayerNorm(4); }},
      {"Dropout2d", [] { return Dropout2d(0.5); }},
      {"softmax", [] { return Module([](const Tensor& x) { return softmax(x); }); }}};
  for (const auto& [name, layer] : layers) {
    INFO(name);
    Setup s = setup(
        [&layer = layer] {
          return Sequential{Conv2d(1, 4, 3, {.pad = 1}), layer(), Conv2d(4, 3, 3), relu, flatten, Linear(48, 5)};
        },
        {6, 6, 1});
    s.samples = 9;
    s.batch = 5;
    s.steps = 2;
    compare_all(s, some, Strategy(), 1e-11);
  }
}

TEST_CASE("a weight of layers that find an image's axis whole is counted once") {
  Setup s = setup(
      [] {
        return Sequential{Conv2d(1, 4, 3, {.stride = 3}), LayerNorm(4), relu, flatten, Linear(32, 5)};
      },
      {12, 6, 1});  // w ends with two columns for three ranks
  s.samples = 9;
  s.batch = 5;
  s.steps = 3;
  compare_all(s, {{"h=2,w=3", "spatial"}, {"h=2", "spatial"}, {"w=3", "spatial"}}, Strategy(), 1e-11);
  s.model = [] { return Sequential{Conv2d(1, 4, 3, {.stride = 3}), GroupNorm(2, 4), relu, flatten, Linear(32, 5)}; };
  compare_all(s, {{"w=3", "spatial"}}, Strategy(), 1e-11);
}

TEST_CASE("a layer of one number stays whole where weights are cut") {
  struct Temperature {
    Tensor weight = Tensor::scalar(0.5);
    Tensor operator()(const Tensor& x) const { return x * weight; }
    void visit(const StateVisitor& v) { v("weight", weight, StateKind::weight, Init::constant(0.5)); }
  };
  Setup s = setup([] { return Sequential{flatten, Linear(36, 6), Temperature(), Linear(6, 5)}; }, {6, 6, 1});
  s.samples = 9;
  s.batch = 5;
  s.steps = 2;
  compare_all(s, {{"tensor=2", "tensor"}}, Strategy(), 1e-11);
}

TEST_CASE("layers that need whole axes train the serial run's model over ranks") {
  const auto sums = [](const Tensor& x) { return cumsum(x, 1) * 0.1; };
  const auto tokens = [](const Tensor& x) { return x.reshape({x.dim(0), 64, 4}).reshape(x.shape()); };
  for (const Module& layer : {Module(GroupNorm(2, 4)), Module(InstanceNorm(4)), Module(sums), Module(tokens)}) {
    Setup s = setup(
        [layer] {
          return Sequential{Conv2d(1, 4, 3, {.pad = 1}), layer.clone(), flatten, Linear(256, 10)};
        },
        {8, 8, 1});
    s.samples = 8;
    s.batch = 4;
    s.steps = 2;
    compare_all(s, {{"h=2", "spatial"}, {"tensor=2", "tensor"}, {"tensor=3", "tensor | place(3.*, whole=true)"}},
                Strategy(), 1e-11);
  }
}

TEST_CASE("divisions of which an op or a sum would take the wrong part are refused") {
  if (threads_only()) return;
  const auto run = [](const std::string& mesh, const std::string& strategy, const std::function<Module()>& model) {
    const auto axes = parse_mesh(mesh);
    Setup s = setup(model, {8, 8, 1});
    s.samples = 8;
    s.batch = 4;
    s.steps = 1;
    (void)parallel_run(s, axes, parse_strategy(strategy));
  };
  const auto with = [](const Module& layer) {
    return [layer] { return Sequential{Conv2d(1, 4, 3, {.pad = 1}), layer.clone(), flatten, Linear(256, 10)}; };
  };
  // A layer that takes the extents of its part for those of the whole.
  const auto named = [](const Tensor& x) {
    return matmul(x.reshape({x.dim(0), -1}), Tensor::full({256, 256}, 1, x.dtype())).reshape(x.shape());
  };
  CHECK_ERROR(run("tensor=2", "tensor | place(3.*, whole=true)", with(named)), usage, "reshape");

  // A model that is no Sequential is one part, of which some gradients are summed and others are not.
  struct Net {
    Conv2d conv = Conv2d(1, 4, 3, {.pad = 1});
    Linear fc = Linear(256, 10);
    Tensor operator()(const Tensor& x) const { return fc(flatten(relu(conv(x)))); }
    void visit(const StateVisitor& v) {
      v("conv", conv);
      v("fc", fc);
    }
  };
  const auto net = [] { return Module(Net()); };
  Setup s = setup(net, {8, 8, 1});
  s.samples = 9;
  s.batch = 5;
  s.steps = 3;
  compare_all(s,
              {{"data=2", "one_weird_trick"},
               {"data=3", "one_weird_trick"},
               {"data=2", "one_weird_trick | zero(2)"},
               {"data=3", "one_weird_trick | zero(3)"}},
              Strategy(), 1e-11);
  const auto cnn = with(relu);
  for (const char* strategy :
       {"data_parallel(axis=replica) | one_weird_trick", "one_weird_trick | data_parallel(axis=replica)"})
    compare_all(s, {{"replica=2,data=2", strategy}, {"replica=2,data=3", strategy}}, Strategy(), 1e-11);

  // An axis with two uses.
  for (const char* strategy :
       {"tensor(axis=data) | data_parallel", "tensor(axis=data)", "tensor(axis=data) | local_sgd"})
    CHECK_ERROR(run("data=2", strategy, cnn), usage, "data", 2);
  CHECK_ERROR(run("a=2,b=2", "tensor(axis=a, sequence=true) | tensor(axis=b)", cnn), usage, "'a'", "'b'");
  CHECK_ERROR(run("tensor=2", "tensor | local_sgd(axis=tensor, every=1)", cnn), usage, "tensor", 2);
  CHECK_ERROR(run("h=2", "spatial | gossip(axis=h)", cnn), usage, "h");
  CHECK_ERROR(run("h=2", "spatial | tensor(axis=h)", cnn), usage, "h");
  CHECK_ERROR(run("pipe=2", "pipeline(micro=2, partition=even) | tensor(axis=pipe)", cnn), usage, "pipe", 2);
  // All weights are parts, so that no gradient is summed over the axis.
  const auto linear = [] { return Sequential{flatten, Linear(64, 6), relu, Linear(6, 10)}; };
  for (const std::string second : {"local_sgd", "easgd", "gossip", "gossip(mode=async)", "parameter_server"})
    CHECK_ERROR(run("data=3", "one_weird_trick | " + second, linear), usage, "data", "one_weird_trick");
}

TEST_CASE("a weight that all ranks hold whole can be read") {
  if (threads_only()) return;
  World::threads(2, [&](World& world) {
    Module model = Sequential{Conv2d(1, 4, 3, {.pad = 1}), flatten, Linear(256, 10)};
    initialize(model, 1);
    Mesh mesh(world, {{"h", 2}});
    Step step(model, cross_entropy, Sgd{.lr = 0.1}, mesh, spatial());
    step(normal({2, 8, 8, 1}, 0, 1, 3), Tensor::zeros({2}, DType::i64));
    StepProbe(step).consolidate();
    const Tensor w = step.parameters().find("0.weight")->tensor;
    const NoGrad reading;
    double squares = 0;
    for (const double v : w.to_vector()) squares += v * v;
    check(std::abs(norm(w).item() - std::sqrt(squares)) < 1e-5, "norm", "{} of squares {}", norm(w).item(), squares);
  });
  SUCCEED("check() throws");
}

TEST_CASE("layers are named once, and an image's axes are those of the mesh") {
  if (threads_only()) return;
  const auto run = [](const std::string& mesh, const std::string& strategy) {
    Setup s = setup(small_cnn);
    s.steps = 1;
    (void)parallel_run(s, parse_mesh(mesh), parse_strategy(strategy));
  };
  CHECK_ERROR(run("tensor=2", "tensor | place(0.*) | place(0.weight, dim=1)"), usage, "0.weight", "twice");
  CHECK_ERROR(run("tensor=2", "place(9.*)"), usage, "9.*", "0.weight");
  CHECK_ERROR(run("h=2", "spatial(axes=h+w)"), usage, "w", "h");
}

TEST_CASE("splits that cannot be say what would work") {
  if (threads_only()) return;
  const auto refusal = [](const std::string& mesh, const std::string& strategy, const Shape& shape) {
    const auto axes = parse_mesh(mesh);
    try {
      World::threads(ranks_of(axes), [&](World& world) {
        Setup s = setup([] { return Sequential{Conv2d(1, 3, 1), flatten, Linear(48, 10)}; }, shape);
        s.steps = 1;
        train(s, world, axes, parse_strategy(strategy));
      });
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  CHECK_THAT(refusal("h=2", "data_parallel", {4, 4, 1}), Catch::Contains("mesh axis 'h' has 2 ranks"));
  CHECK_THAT(refusal("data=2", "spatial", {4, 4, 1}), Catch::Contains("name one, as in h=2"));
  CHECK_THAT(refusal("data=2", "tensor", {4, 4, 1}), Catch::Contains("name one, as in tensor=2"));
  CHECK_THAT(refusal("h=5", "spatial", {4, 4, 1}), Catch::Contains("at most 4 ranks would work"));
  CHECK_THAT(refusal("tensor=4", "tensor | place(0.*)", {4, 4, 1}), Catch::Contains("at most 3 ranks would work"));
  CHECK_THAT(refusal("tensor=11", "tensor", {4, 4, 1}), Catch::Contains("at most 10 ranks would work"));
  CHECK(refusal("tensor=4", "tensor", {4, 4, 1}).empty());  // the filters stay whole
  CHECK_THAT(refusal("tensor=2", "tensor | place(fc.*)", {4, 4, 1}),
             Catch::Contains("there are: 0.weight, 0.bias, 2.weight"));
  CHECK_THAT(refusal("d=2", "spatial", {4, 4, 1}), Catch::Contains("no axis to split over the mesh axis 'd'"));
  CHECK_THAT(refusal("h=2", "spatial(axes=rows)", {4, 4, 1}), Catch::Contains("there are: h, w, d"));
  CHECK_THAT(refusal("data=2,h=2", "one_weird_trick | spatial", {4, 4, 1}), Catch::Contains("context"));
  CHECK_THAT(refusal("context=2", "context", {4, 4, 1}), Catch::Contains("expected tokens"));
  CHECK_THAT(refusal("h=2", "tensor(axis=h) | spatial", {4, 4, 1}), Catch::Contains("mesh axis 'h'"));
}

TEST_CASE("weights that ranks hold parts of are saved whole and load in any split") {
  if (threads_only()) return;
  const Setup s = setup(small_cnn);
  const Temporary folder;
  const auto trained = [&](const std::string& mesh, const std::string& strategy, bool save) {
    const auto axes = parse_mesh(mesh);
    return on_ranks(ranks_of(axes), [&](World& world) {
      Module model = s.model();
      convert(model, s.dtype);
      initialize(model, save ? 1 : 2);
      Mesh m(world, axes);
      Step step(model, s.loss, Adam{}, m, parse_strategy(strategy), {.seed = 5});
      if (!save) load_latest(folder.path(), step.parameters(), &step.optimizer());
      Loader loader(Dataset(std::make_unique<Noise>(10, s.shape)),
                    {.batch = 10, .shard = step.shard(), .workers = 0, .dtype = s.dtype});
      for (auto& [x, y] : loader) step(x, y);
      if (save)
        save_checkpoint(folder.path(), step.parameters(), step.optimizer(), {.step = 1}, {.write = world.main()});
      return outcome(world, {}, step.parameters());
    });
  };
  trained("tensor=3", "tensor", true);
  const Outcome serially = trained("data=1", "serial", false);
  check_close(trained("tensor=2", "tensor", false), serially, 1e-11);
  check_close(trained("data=4", "one_weird_trick", false), serially, 1e-11);
  check_close(trained("h=2", "spatial", false), serially, 1e-11);
}

}  // namespace test_split_strategies
