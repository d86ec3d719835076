// verify_claims(): what every strategy claims is measured and holds; what is claimed without being so is found.
#include <set>

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "parallel/analysis/verify_claims.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_kind.h"
#include "tests/parallel/codec_runs.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_claims {

using namespace trireme;
using namespace trireme::test;

namespace {

Subject subject() {
  return {.model =
              [] {
                Module model = Sequential{Linear(5, 8), relu, Dropout(0.2), Linear(8, 6), relu, Linear(6, 3)};
                initialize(model, 7);
                convert(model, DType::f64);
                return model;
              },
          .loss = cross_entropy,
          .optimizer_config = Adam{.lr = 0.01},  // claims are measured with SGD
          .batch =
              [](int step) {
                const Index rows = 26;  // not as many for each rank
                std::vector<double> x, y;
                for (Index i = 0; i < rows * 5; ++i)
                  x.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(step * 1000 + i)) % 1000) / 500 - 1);
                for (Index i = 0; i < rows; ++i)
                  y.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(i + step)) % 3));
                return std::pair(Tensor::of(x, {rows, 5}, DType::f64), Tensor::of(y, {rows}, DType::i64));
              }};
}

struct Measured {
  std::string text;  // claims and what was measured, a line each
  std::size_t claims = 0, hold = 0;
};
Measured measured(const std::string& strategy, const std::vector<Axis>& axes, const std::vector<StrategyRow>& own = {},
                  int steps = 8, const Subject& on = subject()) {
  return on_ranks(ranks_of(axes), [&](World& world) {
    Mesh mesh(world, axes);
    const auto parse = [&](const std::string& text) { return parse_strategy(text, own); };
    Measured all;
    for (const ClaimResult& r : verify_claims(on, mesh, claims_of(strategy, own), parse, {.steps = steps})) {
      all.text += fmt::format("{}: {}: {}\n", r.holds ? "ok" : "not so", r.claim, r.measured);
      ++all.claims;
      all.hold += r.holds;
    }
    return all;
  });
}
void check_holds(const std::string& strategy, const std::vector<Axis>& axes, std::size_t claims) {
  const Measured all = measured(strategy, axes);
  INFO(strategy << " on " << to_string(axes) << ":\n" << all.text);
  CHECK(all.claims == claims);
  CHECK(all.hold == claims);
}

}  // namespace

TEST_CASE("every strategy that is not exact claims something, and all of it holds") {
  for (const int ranks : rank_counts({2, 3, 4})) {
    const std::vector<Axis> data{{"data", ranks}};
    for (const char* options : {"", "every=3", "every=2, outer_momentum=0.5", "every=1"})
      check_holds(fmt::format("local_sgd({})", options), data, 2);
    for (const char* options : {"every=1", "every=3, rho=0.5"}) check_holds(fmt::format("easgd({})", options), data, 1);
    for (const char* graph : {"ring", "torus", "exponential", "star", "complete", "ring, global_every=3"})
      check_holds(fmt::format("gossip(graph={})", graph), data, 2);
    for (const char* graph : {"ring", "torus", "exponential", "random"})
      check_holds(fmt::format("gossip(mode=push_sum, graph={})", graph), data, 2);
    if (ranks % 2 == 0) check_holds("gossip(graph=random)", data, 2);
    if (ranks % 2 == 0) check_holds("gossip(mode=async)", data, 2);
    check_holds("gossip(mode=async, graph=random)", data, 2);
    check_holds("parameter_server", data, 2);
    check_holds("parameter_server(mode=async)", data, 3);
    check_holds("parameter_server(mode=ssp, staleness=1)", data, 3);
    if (ranks > 2) check_holds("parameter_server(mode=async, servers=2)", data, 3);
    if (ranks > 2) check_holds("parameter_server(backup=1)", data, 2);
    for (const std::string& options : lossy()) {
      const bool summed = options.find("bf16") != options.npos || options.find("f16") != options.npos;
      const bool one = summed || options.find("onebit") != options.npos, none = options.find("qsgd") != options.npos;
      check_holds("compress(" + options + ")", data, none ? 0 : one ? 1 : 2);
    }
  }
}

TEST_CASE("claims of strategies that stand together") {
  if (threads_only()) return;
  const std::vector<Axis> two{{"node", 2}, {"data", 2}};
  check_holds("local_sgd(every=2, axis=data) | local_sgd(every=4, axis=node)", two, 4);
  check_holds("data_parallel | gossip(graph=ring, axis=node)", two, 2);
  check_holds("data_parallel | zero(2) | gossip(mode=push_sum, axis=node)", two, 2);
  check_holds("accumulate(micro=2) | data_parallel(bucket=20, first_bucket=10) | compress(topk, ratio=0.1)",
              {{"data", 3}}, 2);
  check_holds("pipeline(micro=2, partition=even) | data_parallel | compress(onebit, block=16)",
              {{"pipe", 2}, {"data", 2}}, 1);
  check_holds("pipeline(micro=2, partition=even) | local_sgd(every=2)", {{"pipe", 2}, {"data", 2}}, 2);
  check_holds("pipeline(micro=2, partition=even) | gossip(mode=async)", {{"pipe", 2}, {"data", 2}}, 2);
  check_holds("accumulate(micro=2) | gossip(mode=async, graph=random)", {{"data", 3}}, 2);
  const auto texts = [](const std::string& strategy) {
    std::string all;
    for (const ClaimedText& c : claims_of(strategy)) all += c.strategy + "\n";
    return all;
  };
  CHECK(texts("data_parallel") == "");
  CHECK(texts("local_sgd(every=2, axis=data) | local_sgd(every=4, axis=node)")
            .find("local_sgd(axis=data, every=1, from_epoch=0, outer_lr=1, outer_momentum=0) | "
                  "local_sgd(axis=node, every=1, from_epoch=0, outer_lr=1, outer_momentum=0)\n") == 0);
  // Of a codec without a limit nothing equals the serial run; what the other one keeps is still accounted for.
  CHECK(texts("parameter_server(mode=ssp, staleness=3)") ==
        "parameter_server(backup=0, mode=sync)\nparameter_server(backup=0, mode=ssp, staleness=0)\n"
        "parameter_server(mode=ssp, staleness=3)\n");
}

namespace {

using Kind = StrategyClaim::Kind;
/// A strategy that claims something of what another one of that text makes, then changed.
StrategyRow row(const std::string& text, const StrategyClaim& claim, std::function<Plan(Plan)> change = {}) {
  return {"planted",
          [=](StrategyOptions&) {
            Strategy s = parse_strategy(text);
            if (change) s = s | Strategy("change", Claim::statistical, change);
            return s;
          },
          "data",
          1,
          {claim}};
}
Action& first(Plan& plan, const std::string& kind) {
  for (Program& p : plan.programs)
    for (Action& a : p.actions)
      if (a.kind->name == kind) return a;
  fail("test", "no {}", kind);
}
/// Every rank's weights become their sum, scaled: the sum of all is preserved by a scale of 1 / ranks only.
const ActionRow sums{
    .name = "sums",
    .is_collective = true,
    .access =
        [](const Plan&, const Program&, const Liveness&, const Action& a) {
          return std::vector<Operand>{{.kind = OperandKind::weights, .slice = a.slice, .written = true}};
        },
    .start =
        [](ActionContext& now) {
          const Tensor all = scale(now.values(), now.argument("scale"));
          now.memory = all;
          return now.comm->all_reduce(all);
        },
    .finish = [](ActionContext& now) { now.values().copy_from(std::any_cast<Tensor>(now.memory)); }};

const ActionRow halve{
    .name = "halve",
    .access =
        [](const Plan&, const Program&, const Liveness&, const Action& a) {
          return std::vector<Operand>{{.kind = OperandKind::gradients, .slice = a.slice, .written = true}};
        },
    .start =
        [](ActionContext& now) {
          now.gradients().copy_from(scale(now.gradients(), 0.5));
          return Work();
        }};

}  // namespace

TEST_CASE("a claim that is not so is found") {
  if (threads_only()) return;
  struct Fault {
    StrategyRow row;
    std::string words;
  };
  const auto keeps = [](double scale) {
    return [scale](Plan plan) {
      Action& mean = first(plan, "mean");
      mean.kind = sums;
      mean.arguments = {{"scale", scale}};
      return plan;
    };
  };
  const std::vector<Fault> planted = {
      {row("local_sgd(every=2)", {.kind = Kind::limit}), "of layer '5' differs by"},
      {row("gossip(graph=ring)", {.kind = Kind::limit}), "of layer '5' differs by"},
      {row("compress(codec=topk, ratio=0.5)", {.kind = Kind::limit}), "differs by"},
      {row("gossip(graph=complete)", {.kind = Kind::mean_preserved}, keeps(0.26)), "changed it by"},
      {row("easgd(every=2)", {.kind = Kind::mean_preserved},
           [](Plan plan) {  // meetings come later than it says
             for (Program& p : plan.programs)
               for (ProgramPhase& phase : p.phases)
                 if (phase.trigger.every == 2) phase.trigger.from = 1000;
             return plan;
           }),
       "no exchange in 8 steps"},
      {row("easgd(every=2)", {.kind = Kind::mean_preserved}), "changed it by"},  // without its center
      {row("gossip(mode=push_sum, graph=random)", {.kind = Kind::mean_preserved}), "changed it by"},  // z, not x
      {row("compress(codec=dgc, ratio=0.1)", {.kind = Kind::error_feedback}), "steps within"},        // momentum grows
      {row("compress(codec=topk, ratio=0.1, residual=false)", {.kind = Kind::error_feedback}),
       "no reduction keeps a residual"},
      {row("parameter_server(mode=async)", {.kind = Kind::delayed},
           [](Plan plan) {  // servers do as they please with what they take
             Program& server = plan.programs.back();
             const ActionId update = find(server, ActionKind::update);
             const Action& a = server.actions[static_cast<std::size_t>(update)];
             insert(server, update, {.kind = halve, .slice = a.slice, .phase = a.phase});
             return plan;
           }),
       "does not use any worker's"},
  };
  for (const Fault& fault : planted) {
    INFO(fault.words);
    Measured all;
    try {
      all = measured("planted", {{"data", 4}}, {fault.row});
    } catch (const Error& e) { all.text = e.what(); }
    INFO(all.text);
    CHECK(all.hold == 0);
    CHECK(all.claims == 1);
    CHECK(all.text.find(fault.words) != all.text.npos);
  }
  const Measured sound =
      measured("planted", {{"data", 4}}, {row("gossip(graph=complete)", {.kind = Kind::mean_preserved}, keeps(0.25))});
  INFO(sound.text);
  CHECK(sound.hold == 1);
}

TEST_CASE("steps that end before workers meet are refused") {
  if (threads_only()) return;
  const std::vector<Axis> axes{{"data", 2}};
  CHECK_ERROR(measured("local_sgd(every=50)", axes), usage, "data", 50, 8);
  CHECK_ERROR(measured("easgd(every=4)", axes, {}, 2), usage, "data", 4, 2);
  CHECK(measured("easgd(every=4)", axes, {}, 3).hold == 1);
  CHECK(measured("easgd(every=4)", axes, {}, 4).hold == 1);
}

}  // namespace test_claims
