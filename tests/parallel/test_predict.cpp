// Predictions from a machine's profile: costs by rows, where a step's time goes, collectives that ranks carry out while
// they wait, and a profile that is measured.
#include "parallel/profile/predict.h"
#include "parallel/search/search.h"

#include <atomic>
#include <random>

#include "framework/layers/experts.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/tensor/launch.h"
#include "parallel/plan/action_row.h"
#include "parallel/profile/measure.h"
#include "parallel/runtime/step.h"
#include "parallel/strategies/strategy.h"
#include "tests/support/catch.h"

namespace test_predict {

using namespace trireme;

namespace {

std::vector<PartInfo> some_parts(int n) {
  std::vector<PartInfo> parts;
  for (int i = 0; i < n; ++i) parts.push_back({.name = std::to_string(i), .slice = {i * 1000, (i + 1) * 1000}});
  return parts;
}

/// Costs that are lines in rows, at these sizes.
ModelProfile linear_profile(int parts, const std::vector<Index>& rows) {
  ModelProfile p{.model = "m", .parameters = parts * 1000, .update = {1e-9, 0}};
  for (int i = 0; i < parts; ++i) p.names.push_back(std::to_string(i));
  for (const Index n : rows) {
    ModelProfile::Size size{.rows = n, .loss = {1e-5 * static_cast<double>(n), 0}, .between = {2e-4, 0}};
    for (int i = 0; i < parts; ++i) {
      const double work = 1e-4 * (i + 1) * static_cast<double>(n);
      size.parts.push_back(
          {.forward = 1e-3 + work, .backward_input = 2e-3 + work, .backward_weight = work, .output = 400});
    }
    p.sizes.push_back(std::move(size));
  }
  return p;
}

double sum(const StepTimes& t) {
  double all = 0;
  for (const auto& [name, seconds] : components_of(t)) all += seconds;
  return all;
}

}  // namespace

TEST_CASE("costs for any rows lie on the line through the measured ones") {
  const ModelProfile p = linear_profile(3, {2, 8, 32});
  for (Index rows = 1; rows <= 100; ++rows) {
    const StepCosts c = costs_at(p, rows);
    const ModelProfile there = linear_profile(3, {rows});
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(c.parts[i].forward == Approx(there.sizes[0].parts[i].forward).epsilon(1e-12));
      CHECK(c.parts[i].backward_input == Approx(there.sizes[0].parts[i].backward_input).epsilon(1e-12));
      CHECK(c.parts[i].backward_weight == Approx(there.sizes[0].parts[i].backward_weight).epsilon(1e-12));
    }
    CHECK(c.loss == Approx(1e-5 * static_cast<double>(rows)).epsilon(1e-12));
    CHECK(c.extrapolated == (rows < 2 || rows > 32));
  }
  CHECK(costs_at(linear_profile(1, {4}), 8).parts[0].backward_weight == Approx(8e-4));  // one size: in proportion
  CHECK_THROWS_AS(costs_at(p, 0), Error);
  CHECK_THROWS_AS(costs_at(ModelProfile{}, 1), Error);
}

TEST_CASE("jitter is that of log-normal times, and at most what a cluster may have, however busy the machine was") {
  std::mt19937 random(7);
  for (const double shape : {0.0, 0.02, 0.3, 1.0, 2.5, 4.0}) {
    CAPTURE(shape);
    std::vector<double> times(20'001);
    for (double& t : times) t = 0.01 * std::exp(shape * std::normal_distribution<>()(random));
    ModelProfile p = linear_profile(1, {4});
    p.sizes[0].forward = measured(times);
    CHECK(jitter_of(p) == Approx(std::min(shape, Cluster::most_jitter)).epsilon(0.05));
    std::swap(p.sizes[0].forward, p.sizes[0].backward);
    Cluster cluster;
    cluster.jitter = jitter_of(p);
    CHECK_NOTHROW(validate(cluster));
  }
  CHECK(jitter_of(ModelProfile{}) == 0);
}

TEST_CASE("calls that were measured take what they took, and lines between sizes") {
  Link link{.latency = 1, .bandwidth = 1};
  std::mt19937 random(3);
  std::vector<MeasuredCall> calls;
  for (const Index bytes : {Index{8}, Index{1000}, Index{50'000}})
    calls.push_back({CallKind::all_reduce, 4, bytes, 1e-6 + 2e-9 * static_cast<double>(bytes)});
  std::ranges::shuffle(calls, random);
  link.measured = calls;
  for (const Index bytes : {8, 500, 1000, 20'000, 50'000})
    CHECK(collective_time(link, CallKind::all_reduce, 4, bytes) ==
          nanoseconds(1e-6 + 2e-9 * static_cast<double>(bytes)));
  CHECK(collective_time(link, CallKind::all_reduce, 4, 1) == nanoseconds(1e-6 + 16e-9));  // as the least
  CHECK(collective_time(link, CallKind::all_reduce, 4, 100'000) == nanoseconds(2 * (1e-6 + 1e-4)));
  CHECK(collective_time(link, CallKind::all_reduce, 2, 8) == nanoseconds(2 * (1 + 4.0)));  // the formula
  CHECK(collective_time(link, CallKind::all_gather, 4, 8) == nanoseconds(3 * (1 + 2.0)));
}

TEST_CASE(
    "what a step is made of sums up to the step, and ranks that carry collectives out while they wait hide none") {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    const int parts = 1 + static_cast<int>(random() % 5), ranks = 2 + static_cast<int>(random() % 3),
              micro = 1 + static_cast<int>(random() % 3);
    const ModelProfile p = linear_profile(parts, {4});
    std::vector<MeasuredCall> calls;
    for (const CallKind kind : {CallKind::all_reduce, CallKind::reduce_scatter, CallKind::all_gather})
      calls.push_back({kind, ranks, 1 << 20, 1e-3});  // in proportion above, the same below
    Link link;
    link.measured = calls;
    const Plan serial_plan = serial(some_parts(parts), parts * 1000, 0, {{"data", ranks}});
    for (const char* text : {"data_parallel(first_bucket=500, bucket=700)", "data_parallel | zero(1)"}) {
      const Strategy strategy = accumulate(micro) | parse_strategy(text);
      const Plan plan = strategy(serial_plan);
      const StepTimes t = predict_step(plan, p, {.rows = 4, .calls = calls});
      INFO(text << ", " << parts << " parts, " << ranks << " ranks, " << micro << " micro-batches");
      CHECK(sum(t) == Approx(t.step).epsilon(1e-9));
      const StepCosts c = costs_at(p, 4);
      double forward = 0, backward = 0, shared = 0;
      for (const PartCost& part : c.parts) {
        forward += part.forward;
        backward += part.backward_input + part.backward_weight;
      }
      CHECK(t.forward == Approx(micro * forward).epsilon(1e-6));
      CHECK(t.backward == Approx(micro * backward).epsilon(1e-6));
      for (const Action& a : plan.programs[0].actions)
        if (a.kind == ActionKind::all_reduce || a.kind == ActionKind::reduce_scatter ||
            a.kind == ActionKind::all_gather)
          for (const PlannedCall& call : calls_of(plan, a, ranks, 4))
            shared += static_cast<double>(collective_time(link, call.kind, ranks, call.bytes)) / 1e9;
      CHECK(t.waits.at("data") == Approx(shared).epsilon(1e-6));
    }
  }
}

TEST_CASE("where communication goes on beside computation it is hidden, where ranks carry it out it is not") {
  Plan plan = data_parallel({.first_bucket = 1000, .bucket = 1000})(serial(some_parts(4), 4000, 0, {{"data", 2}}));
  for (PartInfo& part : plan.parts) part.cost = {.forward = 1e-3, .backward_input = 2e-3, .backward_weight = 2e-3};
  Cluster cluster;
  cluster.nodes = {{.count = 1, .devices = 2}};
  cluster.inside.measured = {{CallKind::all_reduce, 2, 4000, 1e-3}};
  const auto exposed = [&] {
    const Simulation s = simulate(plan, {.cluster = cluster});
    REQUIRE(s.exposed.size() == 1);
    REQUIRE(s.exposed[0].size() == 1);
    CHECK(s.exposed[0][0].axis == "data");
    CHECK(s.makespan == Approx(20e-3 + s.exposed[0][0].seconds));
    return s.exposed[0][0];
  };
  CHECK(exposed().seconds == Approx(1e-3));  // of the last one
  CHECK(exposed().bytes == 4000);
  plan.parts[1].comms = {
      {ActionKind::forward, {{CallKind::all_reduce, 8000, "data", 2}}}};  // what layers send, in full
  CHECK(exposed().seconds == Approx(3e-3));
  CHECK(exposed().bytes == 12'000);
  plan.parts[1].comms.clear();
  cluster.overlaps = false;
  CHECK(exposed().seconds == Approx(4e-3));
  CHECK(exposed().bytes == 16'000);
  // Each rank by itself comes to the same.
  CHECK(simulate(plan, {.cluster = cluster, .folding = Folding::unfolded}).makespan == Approx(24e-3));
  const Simulation slow = simulate(plan, {.cluster = cluster, .overhead = 1e-4, .between_steps = 5e-3, .steps = 3});
  CHECK(slow.makespan > 3 * 29e-3);
  CHECK(slow.makespan < 3 * 32e-3);
}

TEST_CASE("a message between threads takes the time of the one that comes to it later") {
  Plan plan = parse_strategy("pipeline(micro=2, schedule=gpipe, partition=even)")(
      serial(some_parts(2), 2000, 0, {{"pipe", 2}}));
  plan.parts[0].cost = {.forward = 1e-3, .backward_input = 0.5e-3, .backward_weight = 0.5e-3, .output = 4000};
  plan.parts[1].cost = {.forward = 1e-3, .backward_input = 4e-3, .backward_weight = 4e-3, .output = 4000};
  Cluster cluster;
  cluster.nodes = {{.count = 1, .devices = 2}};
  cluster.inside.measured = {{CallKind::send, 2, 4000, 1e-3}};
  cluster.overlaps = false;
  const auto took = [&](bool second) {
    return simulate(plan, {.cluster = cluster, .second_copies = second, .steps = 2}).makespan / 2;
  };
  // Forward: f + c + f + c + f either way. Backward: rank 0 waits, so that rank 1, which has more to do, copies twice.
  CHECK(took(false) == Approx(5e-3 + 8e-3 + 8e-3 + 1e-3 + 1e-3));
  CHECK(took(true) == Approx(5e-3 + 8e-3 + 1e-3 + 8e-3 + 1e-3 + 1e-3));
  // Now rank 0 has more, and has asked for the second gradient when it begins to compute with the first: rank 1 copies.
  plan.parts[0].cost.backward_weight = 20e-3;
  CHECK(took(false) == Approx(5e-3 + 8e-3 + 1e-3 + 20.5e-3 + 1e-3 + 20.5e-3));
  CHECK(took(true) == Approx(5e-3 + 8e-3 + 1e-3 + 20.5e-3 + 20.5e-3));
}

TEST_CASE("messages of all schedules are taken in the order of time, whatever ranks do") {
  std::mt19937 random(11);
  const auto cost = [&] { return 1e-6 * static_cast<double>(random() % 1000); };
  for (const char* text :
       {"pipeline(micro=4, schedule=gpipe)", "pipeline(micro=4, schedule=1f1b)", "pipeline(micro=4, schedule=zb-h1)",
        "pipeline(micro=4, schedule=interleaved, chunks=2)", "pipeline(micro=4, schedule=zb-v)",
        "pipeline(micro=4, schedule=dualpipe-v)", "pipeline(micro=4, schedule=2bw)"})
    for (int round = 0; round < 20; ++round) {
      const bool chunks = std::string(text).find("chunks") != std::string::npos,
                 folds = std::string(text).find("-v") != std::string::npos;
      const int ranks = 2 + static_cast<int>(random() % 3), parts = chunks || folds ? 2 * ranks : ranks;
      if (chunks && ranks == 3) continue;  // micro-batches divide by ranks
      INFO(text << " on " << ranks);
      const std::string even = std::string(text, std::string(text).size() - 1) + ", partition=even)";
      Plan plan = parse_strategy(even)(serial(some_parts(parts), parts * 1000, 0, {{"pipe", ranks}}));
      for (PartInfo& part : plan.parts)
        part.cost = {.forward = cost(), .backward_input = cost(), .backward_weight = cost(), .output = 4000};
      Cluster cluster;
      cluster.nodes = {{.count = 1, .devices = ranks}};
      cluster.inside.measured = {{CallKind::send, 2, 4000, cost()}};
      cluster.overlaps = false;
      const auto run = [&](bool second) {
        return simulate(plan, {.cluster = cluster, .second_copies = second, .steps = 3});
      };
      const Simulation receives = run(false), second = run(true);
      CHECK(second.busy == receives.busy);
      // Nobody copies what is not sent: no rank has more than all messages of its own and of others to copy.
      CHECK(second.makespan > 0.4 * receives.makespan);
      CHECK(second.makespan < 2.5 * receives.makespan);
      cluster.inside.measured[0].seconds = 0;
      CHECK(run(true).makespan == Approx(run(false).makespan).epsilon(1e-9));
    }
}

TEST_CASE("components have names, and periods are those of the rarest actions") {
  const StepTimes t{.forward = 1, .backward = 2, .loss = 3, .update = 4, .other = 5, .waits = {{"pipe", 6}}, .host = 7};
  const std::vector<std::pair<std::string, double>> all{
      {"forward", 1},           {"backward", 2},           {"loss", 3},           {"update", 4},
      {"other computation", 5}, {"waiting, axis pipe", 6}, {"between actions", 7}};
  CHECK(components_of(t) == all);
  for (const auto& [text, period] : std::vector<std::pair<const char*, int>>{
           {"data_parallel", 1}, {"local_sgd(every=6)", 6}, {"gossip(global_every=5)", 5}, {"gossip", 1}})
    CHECK(period_of(parse_strategy(text)(serial(some_parts(2), 2000, 0, {{"data", 2}}))) == period);
  Plan plan = parse_strategy("local_sgd(every=6)")(serial(some_parts(2), 2000, 0, {{"data", 2}}));
  for (ProgramPhase& phase : plan.programs[0].phases)
    if (phase.trigger.every == 1) phase.trigger.every = 4;
  CHECK(period_of(plan) == 12);
}

TEST_CASE("a rank that begins its step later has the same parts") {
  const Plan plan = serial(some_parts(1), 1000, 0, {{"data", 2}});
  const auto id = [&](ActionKind kind) {
    return static_cast<ActionId>(std::ranges::find(plan.programs[0].actions, kind, &Action::kind) -
                                 plan.programs[0].actions.begin());
  };
  Timeline timeline{.measured = true};
  timeline.programs = {0, 0};
  for (const int rank : {0, 1}) {
    const double begin = 5 * rank;
    timeline.spans.push_back({rank, id(ActionKind::forward), begin, begin + 1});
    timeline.spans.push_back({rank, id(ActionKind::update), begin + 1.5, begin + 2});
  }
  const StepTimes t = times_of(plan, timeline, 2.5);
  CHECK(t.forward == Approx(1));
  CHECK(t.update == Approx(0.5));
  CHECK(t.host == Approx(1));
  CHECK(sum(t) == Approx(t.step));
}

TEST_CASE("mixing weights costs as many operations on vectors as its action says, behind its call") {
  constexpr double per_byte = 1e-6;
  for (const auto& [text, ranks, ops] : std::vector<std::tuple<const char*, int, int>>{
           {"gossip", 2, 4},  // a neighbour: two sums' products, the sum, the copy
           {"gossip", 4, 6},  // two of them
           {"gossip(graph=complete)", 3, 3},
           {"gossip(graph=star)", 3, 5},
           {"gossip(mode=push_sum)", 4, 13},
           {"local_sgd(every=1)", 2, 3},
           {"local_sgd(every=1, outer_momentum=0.5)", 2, 11},
           {"easgd(every=1)", 2, 5}}) {
    INFO(text << " on " << ranks);
    Plan plan = parse_strategy(text)(serial(some_parts(3), 3000, 0, {{"data", ranks}}));
    for (PartInfo& part : plan.parts) part.cost = {.forward = 1e-3, .backward_input = 2e-3, .backward_weight = 2e-3};
    int told = 0;
    for (const Action& a : plan.programs[0].actions)
      if (a.kind->vector_ops && plan.programs[0].trigger(a).runs_at(1)) told += a.kind->vector_ops(a, ranks);
    CHECK(told == ops);
    for (const auto& [overlaps, speed] : {std::pair{true, 1.0}, {false, 1.0}, {true, 0.5}})
      for (const Folding folding : {Folding::automatic, Folding::unfolded}) {
        Cluster cluster = flat_cluster(ranks, {.latency = 1e-4, .bandwidth = 1e8});
        cluster.overlaps = overlaps;
        for (NodeGroup& g : cluster.nodes) g.speed = speed;
        const auto makespan = [&](double vector_op) {
          return simulate(plan, {.cluster = cluster, .vector_op = vector_op, .step = 1, .steps = 3, .folding = folding})
              .makespan;
        };
        CHECK(makespan(per_byte) - makespan(0) == Approx(3 * ops * 12'000 * per_byte / speed).epsilon(1e-6));
      }
  }
}

TEST_CASE("the runtime mixes weights by as many operations on vectors as actions say") {
  const auto net = [] {
    Module all = Sequential{Linear(12, 16), relu, Linear(16, 3)};
    initialize(all, 1);
    return all;
  };
  // By rank: kernels that write vectors as long as all parameters, and how many actions of the step tell of.
  const auto ran = [&](const char* strategy, int ranks) {
    std::vector<std::pair<int, int>> counts(static_cast<std::size_t>(ranks));
    World::threads(ranks, [&](World& world) {
      Mesh mesh(world);
      Step step(net(), cross_entropy, Sgd{.lr = 0.1}, mesh, parse_strategy(strategy));
      const Tensor x = Tensor::full({2, 12}, 0.5), y = Tensor::zeros({2}, DType::i64);
      for (int i = 0; i < 3; ++i) (void)step(x, y).item();
      const Index size = step.parameters().size();
      auto& [seen, told] = counts[static_cast<std::size_t>(world.rank())];
      const Program& program = step.plan().programs[0];
      for (const Action& a : program.actions)
        if (a.kind->vector_ops && program.trigger(a).runs_at(3)) told += a.kind->vector_ops(a, ranks);
      const LaunchWatch watch([&, &kernels = seen](const LaunchWatch::Call& call) {
        kernels += call.operands[0].numel() == size || call.operands[0].numel() == size + 1;  // push-sum's
      });
      (void)step(x, y).item();
    });
    return counts;
  };
  const int beside = ran("local_sgd(every=100)", 2)[0].first;  // of the update
  // With the copies, which are no kernels.
  for (const auto& [strategy, ranks, copies] :
       std::vector<std::tuple<const char*, int, int>>{{"gossip", 2, 1},
                                                      {"gossip", 4, 1},
                                                      {"gossip(graph=exponential)", 4, 1},
                                                      {"gossip(graph=random)", 2, 1},
                                                      {"gossip(graph=complete)", 3, 1},
                                                      {"gossip(graph=star)", 3, 2},
                                                      {"gossip(mode=push_sum)", 2, 4},
                                                      {"gossip(mode=push_sum)", 4, 4},
                                                      {"local_sgd(every=4)", 3, 1},
                                                      {"local_sgd(every=2, outer_momentum=0.5)", 2, 4},
                                                      {"easgd(every=4)", 3, 1}}) {
    INFO(strategy << " on " << ranks);
    int most = 0, says = 0;
    for (const auto& [seen, told] : ran(strategy, ranks)) {
      most = std::max(most, seen - beside);
      says = told;
    }
    CHECK(says > 0);
    CHECK(std::abs(most + copies - says) <= 1);  // push-sum's one number more is a kernel of its own
  }
}

TEST_CASE("what mixes weights is measured as it is, and a step waits for as long") {
  const auto net = [] {
    Module all = Sequential{Linear(12, 16), relu, Linear(16, 3)};
    initialize(all, 1);
    return all;
  };
  for (const char* strategy : {"gossip", "gossip(graph=star)", "gossip(mode=push_sum)", "local_sgd(every=1)",
                               "local_sgd(every=1, outer_momentum=0.5)", "easgd(every=1)"}) {
    INFO(strategy);
    std::atomic<int> right = 0;
    World::threads(2, [&](World& world) {
      Mesh mesh(world);
      Step step(net(), cross_entropy, Sgd{.lr = 0.1}, mesh, parse_strategy(strategy));
      const Plan& plan = step.plan();
      PredictStepOptions how = measure_calls_of(mesh, plan, 1, 2);
      double all = 0;
      for (const Action& a : plan.programs[0].actions)
        if (a.kind->vector_ops && a.kind->is_collective) all += how.measured(a);
      const ModelProfile profile = linear_profile(static_cast<int>(plan.parts.size()), {4});
      how.rows = 4;
      const StepTimes t = predict_step(plan, profile, how);
      right +=
          all > 0 && t.waits.contains("data") && t.waits.at("data") > 0.999 * all && std::abs(sum(t) - t.step) < 1e-9;
    });
    CHECK(right == 2);
  }
}

TEST_CASE("a profile is measured on all ranks at the same time, and predicts the plan of a step") {
  const auto model = [] {
    Module net = Sequential{Linear(12, 16), relu, Linear(16, 4)};
    initialize(net, 1);
    return net;
  };
  const auto batch = [](Index rows) {
    const Tensor y = Tensor::zeros({rows}, DType::i64);
    return std::pair(Tensor::full({rows, 12}, 0.5), y);
  };
  std::atomic<int> right = 0;
  World::threads(2, [&](World& world) {
    const ModelProfile p = measure_model(world.comm(), {.model = model,
                                                        .loss = cross_entropy,
                                                        .optimizer = Sgd{.lr = 0.1},
                                                        .batch = batch,
                                                        .rows = {2, 5},
                                                        .runs = 2});
    const auto calls = measure_calls(world.comm(), std::vector<Index>{8, 4096}, 2);
    bool fine =
        p.ranks == 2 && p.sizes.size() == 2 && p.sizes[1].rows == 5 && p.parameters == 12 * 16 + 16 + 16 * 4 + 4;
    for (const auto& s : p.sizes) {
      double forward = 0;
      for (const PartCost& c : s.parts) forward += c.forward;
      fine = fine && s.forward.value > 0 && s.backward.value > 0 && std::abs(forward - s.forward.value) < 1e-9;
    }
    for (const MeasuredCall& c : calls) fine = fine && c.seconds > 0 && c.bytes >= 8;
    Mesh mesh(world);
    Step step(model(), cross_entropy, Sgd{.lr = 0.1}, mesh);
    const StepTimes t = predict_step(step.plan(), p, {.rows = 3, .calls = calls});
    fine = fine && t.step > 0 && std::abs(sum(t) - t.step) < 1e-9 && t.waits.contains("data");
    right += fine && calls.size() == 10;
  });
  CHECK(right == 2);
}

TEST_CASE("a rank's share of split layers is measured without messages, and predicts the plan of a step") {
  const auto model = [] {
    Module net = Sequential{Embedding(20, 16), SelfAttention(16, 4, {.causal = true}),
                            MixtureOfExperts(16, 8, {.experts = 4}), Linear(16, 20)};
    initialize(net, 1);
    return net;
  };
  const auto batch = [](Index rows) {
    return std::pair(Tensor::zeros({rows, 12}, DType::i64), Tensor::zeros({rows, 12}, DType::i64));
  };
  for (const auto& [text, axis] : std::vector<std::pair<std::string, std::string>>{{"context", "context"},
                                                                                   {"context(mode=ulysses)", "context"},
                                                                                   {"context(mode=ring)", "context"},
                                                                                   {"experts | data_parallel", "data"},
                                                                                   {"tensor", "tensor"}}) {
    INFO(text);
    std::atomic<int> right = 0;
    World::threads(2, [&, &text = text, &axis = axis](World& world) {
      Mesh mesh(world, {{axis, 2}});
      const Strategy strategy = parse_strategy(text);
      Step step(model(), cross_entropy, Sgd{.lr = 0.1}, mesh, strategy, {.profile = {.example = batch(3).first}});
      const ModelProfile p = measure_parts_of(mesh, step.plan(),
                                              {.model = model,
                                               .loss = cross_entropy,
                                               .optimizer = Sgd{.lr = 0.1},
                                               .batch = batch,
                                               .runs = 2,
                                               .split = strategy.split},
                                              3);
      PredictStepOptions how{.rows = 3, .calls = measure_calls(world.comm(), std::vector<Index>{8, 4096}, 2)};
      const StepTimes t = predict_step(step.plan(), p, how);
      double forward = 0;
      for (const PartCost& c : p.sizes[0].parts) forward += c.forward;
      bool fine = p.divided && p.names.size() == step.plan().parts.size() && forward > 0 && t.forward >= forward;
      for (std::size_t i = 0; i < p.names.size(); ++i) fine = fine && p.names[i] == step.plan().parts[i].name;
      right += fine && std::isfinite(t.step) && std::abs(sum(t) - t.step) < 1e-9;
    });
    CHECK(right == 2);
  }
  CHECK(can_measure_share(parse_strategy("experts").split));
  CHECK(!can_measure_share(parse_strategy("one_weird_trick").split));
}

TEST_CASE("the band holds the measured spread and the error of sizes that are left out") {
  ModelProfile profile;
  for (const Index rows : {1, 2, 4}) {
    const double each = rows == 2 ? 3e-3 : 1e-3 * static_cast<double>(rows);  // on a line it would be 2e-3
    profile.sizes.push_back(
        {.rows = rows, .forward = {each / 2}, .backward = {each / 2}, .parts = {{each / 2, each / 4, each / 4}}});
  }
  CHECK(std::abs(heldout_error(profile) - 1.0 / 3) < 1e-12);
  profile.sizes.pop_back();
  CHECK(heldout_error(profile) == 0);
  CHECK(error_band(Source::measured, 0.01, 0) == error_band(Source::measured));
  CHECK(error_band(Source::measured, 0.37, 0.2) == std::exp(0.74) - 1);
  CHECK(error_band(Source::measured, 0.01, 0.2) == 0.2);
  CHECK(error_band(Source::assumed, 0.01, 0.2) == error_band(Source::assumed));
}

}  // namespace test_predict
