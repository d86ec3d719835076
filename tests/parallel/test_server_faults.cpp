// Plans with servers, changed at random: each is refused by check(), or runs to its end and trains as it promises.
#include "parallel/runtime/step.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/training.h"

namespace test_server_faults {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Changes to a plan, drawn from a seed.
class Mutation {
 public:
  explicit Mutation(std::uint64_t seed) : seed_(mix(seed) * 1000) {}

  void apply(Plan& plan) {
    Program& program = plan.programs[below(plan.programs.size())];
    std::size_t at = below(program.actions.size());
    for (int i = 0; i < 5 && program.actions[at].peer.axis.empty(); ++i) at = below(program.actions.size());
    ProgramPhase& phase = program.phases[below(program.phases.size())];
    if (below(2) == 0)
      change(program, program.actions[at], phase, plan);
    else
      move(program, at);
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(mix(seed_++) % n); }

 private:
  std::string pick(std::initializer_list<const char*> names) { return names.begin()[below(names.size())]; }

  void move(Program& program, std::size_t at) {
    auto& list = program.actions;
    const std::size_t other = below(list.size()), what = below(4);
    if (what == 0 && list.size() > 1) {
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
      for (Action& a : list) {
        std::erase(a.after, static_cast<ActionId>(at));
        for (ActionId& id : a.after) id -= id > static_cast<ActionId>(at);
      }
    } else if (what == 1) {
      std::swap(list[at], list[other]);
      for (Action& a : list)
        for (ActionId& id : a.after)
          id = static_cast<std::size_t>(id) == at      ? static_cast<ActionId>(other)
               : static_cast<std::size_t>(id) == other ? static_cast<ActionId>(at)
                                                       : id;
    } else if (what == 2) {
      list.push_back(Action(list[at]));
    } else {
      list[at].after.push_back(static_cast<ActionId>(other));
    }
  }
  static void set_payload(Action& a, const std::string& name) {
    a.payload = OperandKind::state;
    for (const auto kind : {OperandKind::gradients, OperandKind::loss, OperandKind::weights, OperandKind::clock})
      if (to_string(kind) == name) a.payload = kind;
    a.names.clear();
    if (a.payload == OperandKind::state) a.names = {name};
  }
  void change(Program& program, Action& a, ProgramPhase& phase, Plan& plan) {
    const auto ranks = static_cast<std::size_t>(plan.size("data"));
    const std::size_t what = below(16);
    if (what == 15) {
      const std::string name = pick({"gradients", "sums", "loss"});
      if (below(2) == 0)
        a.peer.senders_of = name;
      else
        set_payload(a, name);
    }
    if (what == 15 && below(2) == 0) a.peer.per_root = static_cast<int>(below(4));
    if (what == 0) a.peer.root = static_cast<int>(below(ranks + 1)) - 1;
    if (what == 1)
      a.peer.channel = pick({"gradients", "ready", "loss", "weights", "other", "sums", "answers 0", "share 0", ""});
    if (what == 2) set_payload(a, pick({"gradients", "loss", "weights", "clock"}));
    if (what == 3) a.slice.end = (a.slice.begin + a.slice.end) / 2;
    if (what == 4) phase.trigger.count = static_cast<int>(below(ranks + 1));
    if (what == 5) {
      phase.trigger.guard = pick({"gradients", "ready", "loss"});
      phase.trigger.staleness = below(3);
    }
    if (what == 6) phase.last = !phase.last;
    if (what == 7) phase.trigger.channel = pick({"gradients", "ready", "loss", "weights", "other", "sums"});
    if (what == 8 && !program.serves()) {
      const Trigger t{.every = 1 + static_cast<std::int64_t>(below(3)), .from = static_cast<std::int64_t>(below(3))};
      a.phase = add_phase(program, "seldom", t);
    }
    if (what == 9) program.where[0].begin += below(2) == 0 ? 1 : -1;
    if (what == 10) plan.consistency.clear();
    if (what == 11) a.phase = static_cast<int>(below(program.phases.size()));
    if (what == 12) a.stream = a.stream == Stream::comm ? Stream::compute : Stream::comm;
    if (what == 13) a.after.clear();
    if (what == 14) phase.trigger.late = !phase.trigger.late;
  }

  std::uint64_t seed_;
};

constexpr int rows = 3, steps = 6;

/// Rows of a worker in a step.
std::pair<Tensor, Tensor> rows_of(int worker, int step) {
  Tensor x = Tensor::zeros({rows, 20}, DType::f64), y = Tensor::zeros({rows}, DType::i64);
  for (Index k = 0; k < x.numel(); ++k) x.data<double>()[k] = std::sin(step + 3.0 * worker + 0.1 * double(k));
  y.data<std::int64_t>()[0] = (worker + step) % 10;
  return {x, y};
}

/// Trains on `workers` ranks' rows; fewer: those of all come to each.
std::vector<double> train(World& world, const std::optional<Strategy>& strategy, int workers) {
  Module model = Sequential{Linear(20, 12), relu, Linear(12, 10)};
  initialize(model, 1);
  convert(model, DType::f64);
  Mesh mesh(world, {{"data", world.size()}});
  Step step(model, cross_entropy, Sgd{.lr = 0.05, .momentum = 0.9}, mesh, strategy);
  for (int i = 0; i < steps; ++i) {
    const int each = workers / step.shard().size, first = step.shard().rank * each;
    Tensor x = Tensor::zeros({rows * each, 20}, DType::f64), y = Tensor::zeros({rows * each}, DType::i64);
    for (int w = 0; w < each; ++w) {
      const auto [mine, labels] = rows_of(first + w, i);
      x.rows(rows * w, rows * (w + 1)).copy_from(mine);
      y.rows(rows * w, rows * (w + 1)).copy_from(labels);
    }
    check(std::isfinite(step(x, y).item()), "test", "the loss is not finite");
  }
  StepProbe(step).consolidate();
  return whole_weights(step.parameters());
}

}  // namespace

TEST_CASE("a plan with servers that is changed at random is refused, or trains as it promises") {
  if (threads_only()) return;
  int refused = 0, alike = 0, apart = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    Mutation random(seed);
    ParameterServerOptions o{.servers = 1 + static_cast<int>(random.below(2))};
    const int workers = 1 + static_cast<int>(random.below(3));
    if (random.below(2) == 0) o.mode = "async";
    if (o.mode == "async" && random.below(2) == 0) {
      o.mode = "ssp";
      o.staleness = static_cast<Index>(random.below(3));
    }
    if (o.mode == "sync" && workers > 1 && random.below(3) == 0) o.backup = 1;
    if (o.backup == 0 && random.below(3) == 0) o.groups = random.below(2) == 0 ? 1 : workers;
    const int ranks = workers + o.servers + o.groups;
    const auto changes = random.below(3);
    Plan changed;
    Strategy strategy("changed", Claim::exact, [=, &changed, mutex = std::make_shared<std::mutex>()](Plan plan) {
      Mutation again(seed + 1000000);
      plan = parameter_server(o)(std::move(plan));
      for (std::size_t i = 0; i < changes; ++i) again.apply(plan);
      const std::lock_guard lock(*mutex);
      changed = plan;
      return plan;
    });
    strategy.norm_scope = NormScope::local;
    std::vector<double> weights;
    std::string fault;
    try {
      weights = on_ranks(
          ranks, [&](World& world) { return train(world, strategy, workers); }, true);
    } catch (const std::exception& e) { fault = e.what(); }
    const std::string text = changed.to_string();
    CAPTURE(seed, workers, fault, text);
    if (!fault.empty()) {  // by check(), in one line
      ++refused;
      const bool checked = fault.find(": plan: ") != std::string::npos && fault.find('\n') == std::string::npos;
      CHECK(checked);
      continue;
    }
    const bool same = changed.consistency_along("data") == Consistency{};
    ++(same ? alike : apart);
    if (!same) continue;
    World world;
    const auto want = train(world, std::nullopt, workers);
    double most = 0;
    REQUIRE(want.size() == weights.size());
    for (std::size_t i = 0; i < want.size(); ++i) most = std::max(most, std::abs(want[i] - weights[i]));
    CHECK(most < 1e-9);
  }
  CHECK(refused > 100);
  CHECK(alike > 50);
  CHECK(apart > 50);
}

TEST_CASE("a worker whose loss is not finite ends the run in one line, before servers have used it") {
  if (threads_only()) return;
  for (const bool asynchronous : {false, true}) {
    const auto run = [&](World& world) {
      Module model = Sequential{Linear(20, 10)};
      initialize(model, 1);
      Mesh mesh(world, {{"data", world.size()}});
      Step step(model, cross_entropy, Sgd{.lr = 0.05}, mesh,
                parameter_server({.mode = asynchronous ? "async" : "sync"}));
      for (int i = 0; i < 3; ++i)
        (void)step(Tensor::full({2, 20}, i == 1 && world.rank() == 1 ? INFINITY : 1), Tensor::zeros({2}, DType::i64));
    };
    CHECK_ERROR(World::threads(4, run), numerics, "step 2");
  }
}

TEST_CASE("evaluation sees the servers' weights and one worker's statistics; workers go on with their own") {
  if (threads_only()) return;
  for (const bool asynchronous : {false, true}) {
    const int ranks = 4;
    std::vector<std::vector<double>> before(ranks), shared(ranks), behind(ranks);
    const auto body = [&](World& world) {
      Module model = Sequential{Linear(20, 12), BatchNorm(12), Linear(12, 10)};
      initialize(model, 1);
      Mesh mesh(world, {{"data", world.size()}});
      Step step(model, cross_entropy, Sgd{.lr = 0.05}, mesh,
                parameter_server({.servers = 2, .mode = asynchronous ? "async" : "sync"}));
      for (int i = 0; i < 4; ++i) {
        const auto [x, y] = rows_of(step.shard().rank, i);
        (void)step(x.to(DType::f32), y).item();
      }
      const auto all = [&] {
        auto values = whole_weights(step.parameters());
        for (auto& b : step.parameters().buffers())
          for (double v : b.tensor.to_vector()) values.push_back(v);
        return values;
      };
      const auto rank = static_cast<std::size_t>(world.rank());
      before[rank] = all();
      StepProbe(step).consolidate();
      shared[rank] = all();
      (void)step.checkpoint_shard();
      behind[rank] = all();
    };
    World::virtual_time(ranks, two_nodes(2), body);
    CAPTURE(asynchronous);
    for (const auto& weights : shared) CHECK((weights == shared[0]));
    for (std::size_t worker = 0; worker < 2; ++worker) CHECK((before[worker] == behind[worker]));
    // Synchronous: the same weights, and the mean of statistics.
    CHECK((before[0] == before[1]) == !asynchronous);
  }
}

}  // namespace test_server_faults
