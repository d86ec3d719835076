// What a dry run over shapes finds: what parts cost, and what they send; and that a step sends what its plan says.
#include <mutex>

#include "framework/autograd/tape.h"
#include "framework/layers/recompute.h"
#include "kernels/contracts/attention.h"
#include "kernels/contracts/matmul.h"
#include "parallel/analysis/imagine.h"
#include "parallel/model/dry_run.h"
#include "parallel/model/part_costs.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/split/split.h"
#include "parallel/strategies/agreements.h"
#include "parallel/strategies/on_call.h"
#include "tests/parallel/pairs.h"
#include "tests/parallel/training.h"

namespace test_traffic {

using namespace trireme;
using namespace trireme::test;

TEST_CASE("costs are counted from shapes, and nothing of the model moves") {
  Module model = Sequential{Conv2d(3, 4, 3), BatchNorm(4), relu, MaxPool(2), flatten, Linear(36, 8), Dropout(0.5)};
  initialize(model, 1);
  Parameters parameters(model);
  const Chain chain(model);
  const auto values = parameters.values().to_vector(), mean = parameters.buffers()[0].tensor.to_vector();
  const Tensor x = Tensor::empty({5, 8, 8, 3});
  const auto costs = count_costs(chain, parameters, x, {1e9}), again = count_costs(chain, parameters, x, {1e9});
  REQUIRE(costs == again);
  REQUIRE(std::ssize(costs) == chain.size());
  // Backward by the input is left out in front of all weights.
  CHECK(costs[0].forward >= 2 * 5 * 6 * 6 * 4 * (3 * 3 * 3) / 1e9);
  CHECK(costs[0].backward_weight >= 2 * 5 * 6 * 6 * 4 * (3 * 3 * 3) / 1e9);
  for (const PartCost& c : costs) {
    CHECK(c.forward >= 1e-9);
    CHECK(c.backward_input >= 1e-9);
    CHECK(c.backward_weight >= 1e-9);
    CHECK(c.output > 0);
    CHECK(c.halo == 0);
  }
  CHECK(costs.back().output == 5 * 8 * 4);
  const auto faster = count_costs(chain, parameters, x, {2e9});
  CHECK(std::abs(faster[0].forward - costs[0].forward / 2) < 1e-15);
  // A product takes the longer of its operations and its operands.
  Module line = Sequential{Linear(36, 8)};
  Parameters of_line(line);
  const auto forward = [&](const DeviceRates& rates) {
    return count_costs(Chain(line), of_line, Tensor::empty({5, 36}), rates)[0].forward;
  };
  CHECK(std::abs(forward({1e9, 1e30}) - 2 * 5 * 36 * 8 / 1e9) < 1e-12);
  CHECK(std::abs(forward({1e30, 1e6}) - 4 * (5 * 36 + 36 * 8 + 8 + 5 * 8) / 1e6) < 1e-12);
  CHECK(parameters.values().to_vector() == values);
  CHECK(parameters.buffers()[0].tensor.to_vector() == mean);
  CHECK(!has_grad(parameters.entries()[0].tensor));
}

TEST_CASE("costs of the loss are no part's") {
  Module model = Sequential{Linear(6, 5), relu, Linear(5, 3)};
  Parameters parameters(model);
  const Chain chain(model, cross_entropy);
  const Tensor x = Tensor::empty({4, 6}), labels = Tensor::zeros({4}, DType::i64);
  const DeviceRates rates{1e9, 1e6};
  const auto alone = count_costs(chain, parameters, x, rates);
  StepContext context = StepContext::current();
  context.batch.samples = Tensor::zeros({4}, DType::i64);
  context.batch.global_batch = 4;
  const Tensor in = x.with_batch(context.batch);
  const StepScope scope(std::move(context));
  const DryRun run = dry_run(chain, parameters, chain.parts(parameters), in,
                             {.loss = cross_entropy, .labels = labels, .rates = rates});
  REQUIRE(run.parts.size() == alone.size());
  for (std::size_t p = 0; p < alone.size(); ++p) {
    INFO("part " << p);
    CHECK(run.parts[p].cost.forward == alone[p].forward);
    CHECK_THAT(run.parts[p].cost.backward_input, Catch::Matchers::WithinRel(alone[p].backward_input, 1e-9));
    CHECK_THAT(run.parts[p].cost.backward_weight, Catch::Matchers::WithinRel(alone[p].backward_weight, 1e-9));
  }
}

TEST_CASE("a dry run is in the ranges of a step's passes; one rank makes none") {
  std::vector<std::string> places;
  const auto model = [&] {
    const auto note = [&](const Tensor& x) {
      places.push_back(NamedRange::place());
      return x;
    };
    return Module(Sequential{Linear(6, 4), Recompute(Sequential{note, Linear(4, 2)})});
  };
  const Tensor x = Tensor::full({5, 6}, 0.5);
  {
    Module whole = model();
    Parameters parameters(whole);
    (void)count_costs(Chain(whole), parameters, x);
  }
  REQUIRE(places.size() == 2);
  CHECK(places[0].starts_with(" in forward, 1"));
  CHECK(places[1].starts_with(" in backward, 1"));
  if (threads_only()) return;
  for (const int ranks : {1, 2}) {
    places.clear();
    std::mutex turn;  // of ranks, whose layers share the list
    World::threads(ranks, [&](World& world) {
      Module mine = Sequential{Linear(6, 4), [&](const Tensor& t) {
                                 const std::lock_guard lock(turn);
                                 places.push_back(NamedRange::place());
                                 return t;
                               }};
      initialize(mine, 1);
      const Step step(mine, cross_entropy, Sgd{.lr = 0.1}, world, {}, {.profile = {.example = x}});
    });
    CHECK(std::ssize(places) == (ranks > 1 ? ranks : 0));
  }
}

TEST_CASE("operations of products are those of their shapes") {
  const auto operations = [](const Tensor& c, const Tensor& a, const Tensor& b, MatMulOptions o) {
    double all = 0;
    const LaunchWatch watch([&](const LaunchWatch::Call& call) { all += operations_of(call); }, LaunchWatch::Mode::dry);
    launch<kernel::MatMul>(c, a, b, o);
    return all;
  };
  const auto t = [](const Shape& shape) { return Tensor::empty(shape); };
  CHECK(operations(t({3, 7}), t({3, 5}), t({5, 7}), {}) == 2 * 3 * 5 * 7);
  CHECK(operations(t({3, 7}), t({5, 3}), t({7, 5}), {true, true}) == 2 * 3 * 5 * 7);
  CHECK(operations(t({4, 3, 7}), t({4, 3, 5}), t({4, 5, 7}), {}) == 2 * 4 * 3 * 5 * 7);
  CHECK(operations(t({4, 3, 7}), t({3, 5}), t({4, 5, 7}), {}) == 2 * 4 * 3 * 5 * 7);
}

namespace {

constexpr Index samples = 2, heads = 12, width = 3;  // of the attention below

/// Operations of attention forward and backward on one rank of an imagined mesh, over texts of that many tokens.
std::pair<double, double> attention_operations(int ranks, int rank, const std::string& strategy, Index tokens,
                                               const AttentionOptions& o) {
  World world;
  Mesh mesh(world, {{"context", ranks}}, rank);
  const auto attend = [&](const Tensor& x) {
    const Tensor all = x.reshape({samples, tokens, heads, width});
    return attention(all, all, all, o).reshape({samples, tokens, heads * width});
  };
  const Module model = split(Sequential{attend}, mesh, parse_strategy(strategy).split);
  std::pair<double, double> all;
  const LaunchWatch watch(
      [&](const LaunchWatch::Call& call) {
        if (call.op == std::string_view(kernel::Attention::name)) all.first += operations_of(call);
        if (call.op == std::string_view(kernel::AttentionBackward::name)) all.second += operations_of(call);
      },
      LaunchWatch::Mode::dry);
  const TrafficMeter::Dry nothing_sent(mesh.meter(), [](const std::string&, const Call&) {});
  const Tensor y = model(Tensor::empty({samples, tokens, heads * width}).require_grad());
  y.backward(Tensor::empty(y.shape()));
  return all;
}

/// Tokens of a rank.
std::vector<Index> tokens_of(const std::string& cut, Index tokens, int ranks, int rank) {
  std::vector<Index> all;
  const auto add = [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) all.push_back(i);
  };
  const auto [begin, end] = even_share(tokens, ranks, rank);
  if (cut == "contiguous") add(begin, end);
  for (Index i = rank; cut == "striped" && i < tokens; i += ranks) all.push_back(i);
  if (cut != "zigzag") return all;
  Index first = 0, last = tokens;  // that no earlier rank has
  for (int r = 0; r <= rank; ++r) {
    const auto [from, to] = even_share(tokens, ranks, r);
    const Index late = (to - from) / 2, early = to - from - late;
    if (r == rank) add(first, first + early);
    if (r == rank) add(last - late, last);
    first += early;
    last -= late;
  }
  return all;
}

}  // namespace

TEST_CASE("operations of attention are those of its pairs of query and key, for all masks, cuts and ranks") {
  for (const AttentionOptions& o :
       {AttentionOptions{}, AttentionOptions{.causal = true}, AttentionOptions{.causal = true, .window = 5},
        AttentionOptions{.causal = true, .window = 100}})
    for (const Index tokens : {13, 24})
      for (const std::string cut : {"contiguous", "zigzag", "striped"})
        for (const std::string mode : {"gather", "ring", "ulysses"})
          for (const int ranks : {1, 2, 3, 4})
            for (int rank = 0; rank < ranks; ++rank) {
              INFO(cut << " " << mode << ", rank " << rank << " of " << ranks << ", " << tokens << " tokens, window "
                       << o.window << (o.causal ? ", causal" : ""));
              const bool ulysses = mode == "ulysses";
              Index pairs = 0;
              for (const Index i : tokens_of(cut, tokens, ulysses ? 1 : ranks, ulysses ? 0 : rank))
                for (Index j = 0; j < tokens; ++j)
                  pairs += !o.causal || (j <= i && (o.window == 0 || i - j < o.window));
              const auto product = static_cast<double>(2 * samples * heads / (ulysses ? ranks : 1) * width * pairs);
              const auto found =
                  attention_operations(ranks, rank, fmt::format("context(mode={}, cut={})", mode, cut), tokens, o);
              CHECK(found.first == 2 * product);
              CHECK(found.second == 5 * product);
            }
  // Queries of a cache start later.
  CHECK(attention_pairs({.causal = true, .q_at = 7}, 3, 10) == 8 + 9 + 10);
  CHECK(attention_pairs({.causal = true, .window = 4, .q_at = 7}, 3, 10) == 12);
}

namespace {

std::string text(const Traffic& traffic) {
  std::string all;
  for (auto& [axis, count] : traffic) all += fmt::format("{} {} calls {} bytes; ", axis, count.calls, count.bytes);
  return all;
}

/// What differs between plan and communicators over some steps, on any rank, as text; "": nothing. Throws what a
/// strategy refuses.
std::string unequal(const Setup& s, const Arrangement& how, const Strategy& strategy, const StepOptions& options,
                    TrafficCount& counted) {
  std::mutex mutex;
  std::string found;
  World::threads(how.ranks(), [&](World& world) {
    Module model = s.model();
    initialize(model, 1);
    convert(model, s.dtype);
    Mesh mesh(world, how.mesh);
    Step step(model, s.loss, s.optimizer_config, mesh, strategy, options);
    Loader loader(Dataset(std::make_unique<Noise>(s.samples, s.shape)),
                  {.batch = s.batch, .shard = step.shard(), .workers = 0, .dtype = s.dtype});
    for (auto& [x, y] : loader) {
      (void)step(x, y);
      // one_weird_trick's messages depend on the rows of other ranks, which no rank knows by itself.
      if (!strategy.split.one_weird_trick.empty() && x.batch()->global_batch % (how.ranks() * how.microbatches) != 0)
        continue;
      const StepTraffic traffic = StepProbe(step).traffic();
      const std::lock_guard lock(mutex);
      for (auto& [axis, count] : traffic.counted) counted += count;
      if (traffic.planned != traffic.counted)
        found += fmt::format("{}, rank {}: planned {}, counted {}\n", how.text(), world.rank(), text(traffic.planned),
                             text(traffic.counted));
    }
    const auto compare = [&](const std::string& phase) {
      const StepTraffic traffic = StepProbe(step).traffic(phase);
      const std::lock_guard lock(mutex);
      const Plan& plan = step.plan();
      const auto program = plan.program_at([&](const std::string& axis) { return mesh.index(axis); });
      const bool sends = !actions_on_call(plan.programs[static_cast<std::size_t>(program)], phase).empty();
      if (traffic.planned != traffic.counted || traffic.counted.empty() == sends)
        found += fmt::format("{}, rank {}, {}: planned {}, counted {}\n", how.text(), world.rank(), phase,
                             text(traffic.planned), text(traffic.counted));
    };
    if (world.size() == 1) return;
    compare(phases::set_up);
    StepProbe(step).consolidate();
    compare(phases::evaluation);
    if (!step.optimizer().state().empty()) compare(phases::consolidation);
    (void)step.checkpoint_shard().all_gather(std::string(static_cast<std::size_t>(1 + world.rank()), 'x'));
    compare(phases::saving);
    // Servers would wait for the messages of who refuses a step.
    if (std::ranges::any_of(step.plan().programs, &Program::serves)) return;
    const Tensor& last = step.parameters().entries().back().tensor;
    last.copy_from(Tensor::full(last.shape(), NAN, last.dtype()));
    try {
      auto batch = loader.begin();
      (void)step(batch->x, batch->y);
    } catch (const Error&) { compare(phases::diagnosis); }
    compare(phases::evaluation);
  });
  return found;
}

Module normed() {
  return Sequential{Conv2d(1, 4, 3, {.bias = false}),
                    BatchNorm(4),
                    relu,
                    MaxPool(2),
                    Stash{"before"},
                    Conv2d(4, 4, 3, {.pad = 1}),
                    AddStashed("before"),
                    Dropout(0.25),
                    Recompute(Sequential{Conv2d(4, 4, 3, {.pad = 1}), BatchNorm(4), relu}),
                    flatten,
                    Linear(36, 8),
                    relu,
                    Dropout(0.5),
                    Linear(8, 5)};
}
/// The last of three batches is short: micro-batches and ranks have different numbers of rows.
Setup setup() {
  return {.model = normed,
          .loss = cross_entropy_with({.ignore_index = 3}),
          .optimizer_config = Adam{.lr = 0.01},
          .dtype = DType::f32,
          .samples = 55,
          .batch = 24,
          .shape = {8, 8, 1}};
}

/// Every strategy by itself, on 2 to 4 ranks.
std::vector<Arrangement> alone() {
  std::vector<Arrangement> all;
  for (auto& a : strategy_texts())
    for (int ranks = 2; ranks <= 4 && !a.axis.empty(); ++ranks)
      all.push_back({{{a.axis, ranks}}, a.text, a.microbatches});
  return all;
}
/// Every pair on its smallest mesh.
std::vector<Arrangement> pairs() {
  std::vector<Arrangement> all;
  for (auto& [a, b] : strategy_pairs()) all.push_back(smallest(a, b));
  return all;
}

}  // namespace

namespace {

/// How many arrangements send what their plans say; wrong gets what differs.
int judge(const std::vector<Arrangement>& table, NormScope scope, std::string& wrong,
          const OptimizerConfig& rule = Adam{.lr = 0.01}) {
  int equal = 0;
  for (const Arrangement& how : table) {
    TrafficCount counted;
    try {
      Strategy strategy = parse_strategy(how.strategy);
      strategy.norm_scope = scope;
      strategy.norm_group = 2;
      const bool served = how.strategy.find("parameter_server") != how.strategy.npos;  // where no norm is known
      Setup s = setup();
      s.optimizer_config = rule;
      const std::string found = unequal(
          s, how, strategy,
          {.optimizer = {.clip_norm = served ? 0.0 : 1.0}, .flags = {.names = {"stop", "save"}, .every = 2}}, counted);
      equal += found.empty();
      wrong += found;
      if (how.ranks() > 1 && counted.bytes == 0) wrong += how.text() + ": nothing was counted\n";
    } catch (const std::exception& e) {
      const bool known =
          !known_refusal(e.what()).empty() || std::string(e.what()).find("norm_group") != std::string::npos;
      if (!known) wrong += how.text() + ": " + e.what() + "\n";
    }
  }
  return equal;
}

}  // namespace

TEST_CASE("every strategy, pair and schedule sends what its plan says, on every rank") {
  if (threads_only()) return;
  std::string wrong;
  CHECK(judge(alone(), NormScope::global, wrong) > 0);
  CHECK(judge(alone(), NormScope::group, wrong) > 0);
  CHECK(judge(alone(), NormScope::local, wrong) > 0);
  CHECK(judge(pairs(), NormScope::global, wrong) > 0);
  CHECK(wrong == "");
}

TEST_CASE("plans count the sums of squares of LARS and LAMB") {
  if (threads_only()) return;
  std::string wrong;
  CHECK(judge(alone(), NormScope::global, wrong, Lamb{}) > 0);
  CHECK(judge(pairs(), NormScope::global, wrong, Lars{}) > 0);
  CHECK(wrong == "");
}

TEST_CASE("pauses and dry meters nest") {
  const TrafficMeter meter;
  const auto comm = meter.metered(imagined_communicator(0, 2), "x");
  std::string told;
  const auto call = [&] { comm->barrier(); };
  {
    const TrafficMeter::Dry outer(meter, [&](const std::string&, const Call&) { told += "outer "; });
    {
      const TrafficMeter::Dry inner(meter, [&](const std::string&, const Call&) { told += "inner "; });
      call();
    }
    call();
  }
  CHECK(told == "inner outer ");
  CHECK_THROWS(call());  // counted, and made
  const TrafficCount once{1, 0};
  CHECK(meter.counted().at("x") == once);
  {
    const TrafficMeter::Pause outer(meter);
    { const TrafficMeter::Pause inner(meter); }
    CHECK_THROWS(call());
  }
  CHECK(meter.counted().at("x") == once);
  CHECK_THROWS(call());
  CHECK(meter.counted().at("x").calls == 2);
}

TEST_CASE("what data parallelism sends is a number that one can work out") {
  if (threads_only()) return;
  Index weights = 0;  // bytes of the flat block, whose entries are aligned
  const auto traffic = on_ranks(2, [&](World& world) {
    Module model = Sequential{Linear(6, 8), BatchNorm(8), Linear(8, 3)};
    initialize(model, 1);
    Step step(model, cross_entropy, Sgd{.lr = 0.1}, world, data_parallel(), {.checks = {.finite = false}});
    (void)step(Tensor::full({4, 6}, 0.5), Tensor::zeros({4}, DType::i64));
    if (world.main()) weights = 4 * step.parameters().size();
    return StepProbe(step).traffic();
  });
  const Index forward = 2 * 8 * (1 + 2 * 8), backward = 4 * 2 * 8, loss = 4;
  CHECK(text(traffic.counted) == fmt::format("data 4 calls {} bytes; ", weights + forward + backward + loss));
  CHECK(traffic.planned == traffic.counted);
}

TEST_CASE("ranks that are imagined send what the busiest one sends") {
  if (threads_only()) return;
  for (const auto& [mesh, name] :
       std::vector<std::pair<std::string, std::string>>{{"data=3", "data_parallel"},
                                                        {"h=3", "spatial(axes=h)"},
                                                        {"h=3,data=2", "data_parallel | spatial(axes=h)"}}) {
    const std::vector<Axis> axes = parse_mesh(mesh);
    const Strategy strategy = parse_strategy(name);
    const Index rows = 24 / size_along(axes, "data");
    Setup s = setup();
    s.loss = cross_entropy;
    s.samples = 24;
    Module whole = normed();
    const Parameters parameters(whole);
    const auto parts = Chain(whole).parts(parameters);
    Plan plan =
        with_agreements(strategy(serial(parts, parameters.size(), parts.back().buffers.end, axes)),
                        {.batch_axis = mesh[0] == 'h' && axes.size() == 1 ? "" : "data", .checks = {.every = 64}});
    const DType loss = imagine(plan, strategy,
                               {.model = normed,
                                .x = Tensor::empty({rows, 8, 8, 1}),
                                .loss = s.loss,
                                .labels = Tensor::zeros({rows}, DType::i64)});
    const Traffic planned = planned_traffic(plan, 0, {.loss = loss});
    std::mutex mutex;
    Traffic most;
    World::threads(ranks_of(axes), [&](World& world) {
      Mesh on(world, axes);
      Step step(normed(), s.loss, s.optimizer_config, on, strategy);
      Loader loader(Dataset(std::make_unique<Noise>(s.samples, s.shape)),
                    {.batch = s.batch, .shard = step.shard(), .workers = 0});
      auto batch = loader.begin();
      (void)step(batch->x, batch->y);
      const std::lock_guard lock(mutex);
      for (auto& [axis, count] : StepProbe(step).traffic().counted)
        if (count.bytes > most[axis].bytes) most[axis] = count;
    });
    INFO(mesh);
    CHECK(text(planned) == text(most));
  }
}

}  // namespace test_traffic
