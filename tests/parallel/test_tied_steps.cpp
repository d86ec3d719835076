// Steps of models whose stages share weights: norms, traffic, memory, verify(), GPT-2, and what is refused.
#include "models/text/gpt2.h"
#include "parallel/analysis/simulate.h"
#include "parallel/analysis/verify.h"
#include "parallel/model/chain.h"
#include "parallel/model/memory.h"
#include "parallel/model/planned_traffic.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/ties.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/strategies/on_call.h"
#include "tests/parallel/tied.h"

namespace test_tied_steps {

using namespace trireme;
using namespace trireme::test;

namespace {

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) { return e.what(); }
  return "";
}

}  // namespace

TEST_CASE("the norm of gradients counts shared weights once") {
  for (const TiedModel& m : tied_models) {
    const auto norm = [&](World& world, std::vector<Axis> axes, const Strategy& strategy) {
      const Setup s = tied_setup(m.make);
      TiedRun run(s, world, std::move(axes), strategy);
      run.feed(s, 1);
      return StepProbe(*run.step).grad_norm();
    };
    World one;
    const double expected = norm(one, {}, accumulate(2));
    CHECK(expected > 0.1);
    for (auto [stages, data, after] :
         {std::tuple{2, 1, ""}, {3, 1, ""}, {2, 2, ""}, {3, 2, "zero(1)"}, {3, 2, "zero(3)"}}) {
      if (other_ranks(stages * data)) continue;
      const Strategy behind = after[0] != '\0' ? parse_strategy(after) : data_parallel();
      const Strategy strategy = data > 1 ? pipeline({.micro = 2}) | behind : pipeline({.micro = 2});
      const double got = on_ranks(stages * data, [&](World& world) {
        return norm(world, {{"pipe", stages}, {"data", data}}, strategy);
      });
      CHECK(got == Approx(expected).epsilon(1e-12));
    }
  }
}

TEST_CASE("a step with shared weights sends what its plan says, and what the simulator counts") {
  if (threads_only()) return;
  for (const TiedModel& m : tied_models)
    for (const char* text : {"pipeline(micro=4) | data_parallel", "pipeline(micro=4, schedule=zb-h1) | zero(1)",
                             "pipeline(micro=2, schedule=gpipe) | zero(3)", "pipeline(micro=4) | local_sgd(every=2)",
                             "pipeline(micro=4, schedule=interleaved, chunks=2) | data_parallel"}) {
      INFO(m.name << ": " << text);
      const std::string fault = on_ranks(4, [&](World& world) {
        Setup s = tied_setup(m.make);
        if (std::string(text).find("local_sgd") != std::string::npos) s.optimizer = {};
        TiedRun run(s, world, {{"pipe", 2}, {"data", 2}}, parse_strategy(text),
                    {.profile = {.example = Tensor::zeros({2, 3, 2, 1}, DType::f64)}});
        run.feed(s, 3);
        StepProbe(*run.step).consolidate();
        std::string found;
        for (const std::string phase : {"", phases::evaluation, phases::set_up}) {
          const auto [planned, counted] = StepProbe(*run.step).traffic(phase);
          if (planned != counted) found += "phase '" + phase + "' sends other bytes; ";
        }
        const Plan& plan = run.step->plan();
        const bool sums = std::ranges::any_of(plan.programs[0].actions, [](const Action& a) { return is_tied_sum(a); });
        if (!sums) found += "no sum; ";
        for (const Folding folding : {Folding::folded, Folding::unfolded}) {
          const Simulation sim = simulate(plan, {.element = 8, .step = 2, .folding = folding});
          const auto stage = static_cast<std::size_t>(run.mesh.index("pipe"));
          const Traffic planned = planned_traffic(
              plan, stage, {.parameters = DType::f64, .buffers = DType::f64, .loss = DType::f64, .step = 2});
          for (const AxisTraffic& axis : sim.traffic[stage])
            if (planned.at(axis.axis).bytes != axis.bytes)
              found += fmt::format("the simulator counts {} bytes along {}; ", axis.bytes, axis.axis);
        }
        const Tensor all = Tensor::full({1}, found.empty(), DType::i64);
        world.comm().all_reduce(all, ReduceOp::min).wait();
        return all.item() == 1 ? std::string() : "some rank: " + found;
      });
      CHECK(fault == "");
    }
}

TEST_CASE("verify finds no difference") {
  if (threads_only()) return;
  for (const TiedModel& m : tied_models) {
    const Subject subject{
        .model =
            [&] {
              Module model = m.make();
              initialize(model, 7);
              convert(model, DType::f64);
              return model;
            },
        .loss = cross_entropy,
        .optimizer_config = Sgd{.lr = 0.05, .momentum = 0.9},
        .batch =
            [](int step) {
              std::vector<double> x, y;
              for (std::uint64_t i = 0; i < 12 * 6; ++i)
                x.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(step) * 1000 + i) % 100) / 100);
              for (std::uint64_t i = 0; i < 12; ++i) y.push_back(static_cast<double>(mix(i) % 5));
              return std::pair(Tensor::of(x, {12, 3, 2, 1}, DType::f64), Tensor::of(y, {12}, DType::i64));
            }};
    const auto found = [&](const std::vector<Axis>& axes, const Strategy& strategy) {
      return on_ranks(ranks_of(axes), [&](World& world) {
        Mesh mesh(world, axes);
        const auto difference = verify(subject, mesh, strategy);
        return difference ? difference->to_string() : std::string();
      });
    };
    CHECK(found({{"pipe", 3}}, pipeline({.micro = 2})) == "");
    CHECK(found({{"pipe", 2}, {"data", 2}}, parse_strategy("pipeline(micro=4) | zero(3)")) == "");
    CHECK(found({{"pipe", 2}, {"data", 2}}, parse_strategy("pipeline(micro=4, schedule=zb-h1) | data_parallel")) == "");
    CHECK(found({{"data", 3}}, zero(3)) == "");
  }
}

TEST_CASE("GPT-2 with its embedding as its head trains as in a serial run, on stages and shards") {
  if (threads_only()) return;
  const auto tokens = [](int step) {
    std::vector<Index> ids;
    for (std::uint64_t i = 0; i < 12 * 9; ++i)
      ids.push_back(static_cast<Index>(mix(1000 * static_cast<std::uint64_t>(step) + i) % 31));
    return ids;
  };
  const Subject subject{.model =
                            [] {
                              Module model =
                                  gpt2({.layers = 3, .heads = 2, .width = 16, .positions = 8, .vocabulary = 31});
                              initialize(model, 7);
                              convert(model, DType::f64);
                              return model;
                            },
                        .loss = cross_entropy,
                        .optimizer_config = AdamW{.lr = 0.01},
                        .batch =
                            [&](int step) {
                              std::vector<Index> x, y;
                              const std::vector<Index> text = tokens(step);
                              for (Index i = 0; i < 12; ++i)
                                for (Index t = 0; t < 8; ++t) {
                                  x.push_back(text[static_cast<std::size_t>(i * 9 + t)]);
                                  y.push_back(text[static_cast<std::size_t>(i * 9 + t + 1)]);
                                }
                              return std::pair(Tensor::from(x, {12, 8}), Tensor::from(y, {12, 8}));
                            }};
  for (const auto& [axes, strategy] : std::vector<std::pair<std::vector<Axis>, const char*>>{
           {{{"pipe", 2}}, "pipeline(micro=4)"},
           {{{"pipe", 4}}, "pipeline(micro=2, schedule=zb-h1)"},
           {{{"pipe", 2}}, "pipeline(micro=2, schedule=interleaved, chunks=2)"},
           {{{"pipe", 2}}, "pipeline(micro=2, schedule=zb-v)"},
           {{{"pipe", 2}}, "pipeline(micro=2, schedule=dualpipe-v)"},
           {{{"data", 3}}, "zero(3)"},
           {{{"pipe", 2}, {"data", 2}}, "pipeline(micro=2) | zero(1)"},
           {{{"pipe", 3}, {"data", 2}}, "pipeline(micro=2) | zero(3)"}}) {
    INFO(strategy);
    const std::string found = on_ranks(ranks_of(axes), [&](World& world) {
      Mesh mesh(world, axes);
      const auto difference = verify(subject, mesh, parse_strategy(strategy), {.steps = 4, .tolerance = 1e-12});
      return difference ? difference->to_string() : std::string();
    });
    CHECK(found == "");
  }
}

TEST_CASE("both stages' memory counts shared weights") {
  const auto numbers = [](Sequential layers) {
    Module model = std::move(layers);
    Parameters parameters(model);
    const Chain chain(model);
    const Plan plan = pipeline({.micro = 2, .partition = "even"})(
        serial(chain.parts(parameters), parameters.size(), 0, {{"pipe", 2}}));
    return predict_memory(plan, {.element = 4, .states = 2});
  };
  const Embedding wte(vocabulary, 4);
  const auto tied = numbers(tied_model()),
             untied = numbers([] {
               Sequential layers = tied_model();
               const Embedding other(vocabulary, 4);
               return Sequential{ids_of,
                                 other,
                                 flatten,
                                 Linear(24, 4),
                                 relu,
                                 LayerNorm(4),
                                 Linear(4, 5),
                                 Linear(5, 4),
                                 relu,
                                 Linear(4, 4),
                                 LmHead(Tensor::zeros({vocabulary, 4}), Tensor::zeros({vocabulary}))};
             }());
  for (int stage : {0, 1}) {  // but for padding
    CHECK(std::abs(tied[stage].weights - untied[stage].weights) < 64);
    CHECK(std::abs(tied[stage].gradients - untied[stage].gradients) < 64);
    CHECK(std::abs(tied[stage].optimizer - untied[stage].optimizer) < 128);
  }
}

TEST_CASE("what cannot be done with shared weights is refused by name") {
  const auto refused = [](std::vector<Axis> axes, const Strategy& strategy, const std::function<Module()>& model,
                          bool unsound = false) {
    return error_of([&] {
      World::threads(ranks_of(axes), [&](World& world) {
        Mesh mesh(world, axes);
        Step step(model(), cross_entropy, Sgd{}, mesh, strategy, {.refuse_unsound = !unsound});
      });
    });
  };
  const std::vector<Axis> two{{"pipe", 2}}, four{{"pipe", 2}, {"data", 2}};
  for (const char* schedule : {"pipedream", "2bw"})
    CHECK_THAT(refused(two, pipeline({.micro = schedule == std::string("2bw") ? 2 : 1, .schedule = schedule}),
                       tied_models[0].make),
               contains("[0, 32)") && contains("schedule=1f1b"));
  CHECK_THAT(refused(four, parse_strategy("pipeline | gossip(graph=ring, mode=async)"), tied_models[0].make),
             contains("mode=async") && contains("use mode=sync"));
  const auto buffers = [] {
    const BatchNorm same(4);
    return Sequential{flatten, Linear(6, 4), same, relu, Linear(4, 4), same, Linear(4, 5)};
  };
  CHECK_THAT(refused(two, pipeline({.partition = "even"}), buffers),
             contains("share the buffer") && contains("cut elsewhere"));
  // A plan by hand that knows nothing of ties.
  const Strategy unaware = pipeline({.partition = "even"}) | Strategy("unaware", Claim::exact, [](Plan plan) {
                             for (Program& program : plan.programs) {
                               const ActionId sum = tied_sums(program, {0, plan.parameters}).at(0);
                               program.actions.erase(program.actions.begin() + sum);
                               for (Action& a : program.actions) {
                                 std::erase(a.after, sum);
                                 for (ActionId& id : a.after) id -= id > sum;
                               }
                             }
                             return plan;
                           });
  for (const bool unsound : {false, true})
    CHECK_THAT(refused(two, unaware, tied_models[0].make, unsound), contains("sum"));
}

}  // namespace test_tied_steps
