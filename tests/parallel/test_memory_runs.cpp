// What plans predict of memory beside what ranks hold in real steps: every strategy, several models. Bytes, no clock.
// TRIREME_TEST_PRINT=1 prints the table, TRIREME_TEST_ONLY=text runs the cases whose model and strategy have the text.
#include <sys/prctl.h>

#include <cstdio>
#include <random>

#include "datasets/core/tensors.h"
#include "models/registry/models.h"
#include "parallel/analysis/imagine.h"
#include "parallel/model/chain.h"
#include "parallel/model/memory.h"
#include "parallel/runtime/step_plan.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/split/split.h"
#include "tests/parallel/pairs.h"
#include "tests/support/ranks.h"

namespace test_memory_runs {

using namespace trireme;
using namespace trireme::test;

namespace {

/// A model, and a batch for it.
struct Subject {
  std::string name;
  std::function<Module()> model;
  Tensor x, y;
  bool pictures = true;
  bool recompute = false;
};

Subject pictures(const std::string& name, const Shape& input, Index batch, bool recompute = false) {
  const ModelOptions options{.input = input, .classes = 10, .recompute = recompute};
  Shape all{batch};
  for (const Index extent : input) all.push_back(extent);
  return {name,
          [=] { return make_model(name, options); },
          Tensor::full(all, 0.5),
          Tensor::zeros({batch}, DType::i64),
          true,
          recompute};
}

Subject text(Index batch, Index tokens) {
  const ModelOptions options{
      .input = {tokens}, .classes = 96, .arch = {.layers = 4, .heads = 4, .width = 128, .positions = tokens}};
  const Tensor ids = Tensor::zeros({batch, tokens}, DType::i64);
  return {"gpt2", [=] { return make_model("gpt2", options); }, ids, ids, false};
}

struct Case {
  std::string strategy;
  std::vector<Axis> mesh;
};

constexpr Index states = 1;  // of momentum

/// What a step's plan says of each program, with every rank imagined.
std::pair<Plan, std::vector<RankMemory>> predicted(const Subject& s, const Case& c) {
  const Strategy strategy = parse_strategy(c.strategy);
  World alone;
  Mesh mesh(alone, c.mesh, 0);
  Module model = s.model();
  if (strategy.split.any()) model = split(model, mesh, strategy.split, s.x, !strategy.acts_on_updates());
  Parameters parameters(model);
  const Chain chain(model);
  const Optimizer optimizer(parameters, Sgd{.lr = 0.1, .momentum = 0.9});
  auto parts = chain.parts(parameters);
  for (PartInfo& part : parts) part.divided = divided_slices(parameters, part.slice);
  const Index buffers = parts.back().buffers.end;
  Plan plan = strategy(serial(std::move(parts), parameters.size(), buffers, c.mesh));
  plan = with_agreements(plan, strategy, {}, optimizer, cross_entropy);
  const auto trains = std::ranges::find(plan.programs, false, &Program::serves);
  const std::string axis = batch_axis(plan, strategy.split);
  const Index shares = plan.microbatches * std::max(plan.size(*trains, axis.empty() ? "data" : axis), 1);
  const Index rows = (s.x.dim(0) + shares - 1) / shares;
  imagine(plan, strategy,
          {.model = s.model, .x = s.x.view_rows(0, rows), .loss = cross_entropy, .labels = s.y.view_rows(0, rows)});
  return {plan, predict_memory(plan, {.element = 4, .states = states, .page = host_page})};
}

/// The most that each rank held in some steps, and its program.
std::pair<std::vector<RankMemory>, std::vector<int>> measured(const Subject& s, const Case& c, int steps) {
  return on_ranks(ranks_of(c.mesh), [&](World& world) {
    Mesh mesh(world, c.mesh);
    const Strategy strategy = parse_strategy(c.strategy);
    Step step(s.model(), cross_entropy, Sgd{.lr = 0.01, .momentum = 0.9}, mesh, strategy,
              {.profile = {.example = strategy.split.any() ? s.x : Tensor()}});
    StepProbe(step).record(true);
    Loader loader(TensorDataset(s.x, s.y, 10), {.batch = s.x.dim(0), .shard = step.shard(), .workers = 0});
    std::vector<RankMemory> most(static_cast<std::size_t>(world.size()));
    Timeline last;
    for (int i = 0; i < steps; ++i)
      for (auto& [x, y] : loader) {
        step(x, y);
        if (i == 0) continue;  // before it every rank has all weights
        const auto now = StepProbe(step).memory();
        for (std::size_t r = 0; r < most.size(); ++r)
          for (Index RankMemory::*use : {&RankMemory::weights, &RankMemory::gradients, &RankMemory::optimizer,
                                         &RankMemory::activations, &RankMemory::halos, &RankMemory::packed})
            most[r].*use = std::max(most[r].*use, now[r].*use);
        last = StepProbe(step).timeline();
      }
    return std::pair(most, last.programs);
  });
}

/// The table of uses whose prediction is off, empty: none is.
std::string compare(const Subject& s, const Case& c, double tolerance, bool print) {
  const auto [plan, all] = predicted(s, c);
  const auto [ranks, programs] = measured(s, c, 4);
  std::string wrong;
  Index output = 0;
  for (const PartInfo& part : plan.parts) output = std::max(output, part.cost.output);
  std::vector<RankMemory> most(all.size());  // of the ranks of a program
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (Index RankMemory::*use : {&RankMemory::weights, &RankMemory::gradients, &RankMemory::optimizer,
                                   &RankMemory::activations, &RankMemory::halos, &RankMemory::packed})
      most[static_cast<std::size_t>(programs[r])].*use =
          std::max(most[static_cast<std::size_t>(programs[r])].*use, ranks[r].*use);
  for (std::size_t p = 0; p < all.size(); ++p) {
    const double is = static_cast<double>(most[p].total()), says = static_cast<double>(all[p].total());
    const RankMemory &a = all[p], &b = most[p];
    const std::string line = fmt::format(
        "{:<10} {:<60} {:<8} {:>9.3f} {:>9.3f} {:>+7.2f} %  w {}/{} g {}/{} o {}/{} a {}/{} h {}/{} p {}/{}\n", s.name,
        c.strategy + " " + to_string(c.mesh), plan.programs[p].name, says / 1e6, is / 1e6, 100 * (says / is - 1),
        a.weights, b.weights, a.gradients, b.gradients, a.optimizer, b.optimizer, a.activations, b.activations, a.halos,
        b.halos, a.packed, b.packed);
    if (print) std::fputs(line.c_str(), stdout);
    const bool in_time = c.strategy.find("mode=async") == std::string::npos;  // else messages may wait, or not
    const Index late = plan.has_stages() ? output : 0;                        // of a peer: then a message lives longer
    if (is - says > tolerance * is + static_cast<double>(late) || (in_time && says - is > tolerance * is))
      wrong += line;
  }
  return wrong;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const StrategyText& s : strategy_texts())
    for (int ranks : {2, 4})
      if (s.axis.empty() && ranks == 2)
        all.push_back({s.text, {{"data", 1}}});
      else if (!s.axis.empty())
        all.push_back({s.text, {{s.axis, ranks}}});
  for (const StrategyRow& row : strategies())
    if (parse_strategy(row.name).claim() != Claim::exact && row.name != "pipeline" && row.name != "compress")
      for (int ranks : {2, 4}) all.push_back({row.name, {{row.axis, ranks}}});
  const std::vector<Axis> two{{"data", 2}}, grid{{"pipe", 2}, {"data", 2}};
  for (const char* codec : {"bf16", "topk", "qsgd", "onebit", "powersgd"})
    all.push_back({fmt::format("compress(codec={})", codec), two});
  for (const char* more : {"data_parallel", "zero(1)", "zero(2)", "zero(3)", "local_sgd", "compress(codec=bf16)"}) {
    all.push_back({fmt::format("accumulate(micro=4) | {}", more), two});
    all.push_back({fmt::format("pipeline(micro=4, partition=even) | {}", more), grid});
  }
  all.push_back({"pipeline(micro=4, schedule=interleaved, chunks=2, partition=even)", {{"pipe", 2}}});
  all.push_back({"pipeline(micro=4, schedule=zb-v, partition=even)", {{"pipe", 2}}});
  for (const char* schedule : {"micro=1, schedule=pipedream", "micro=4, schedule=2bw"})
    all.push_back({fmt::format("pipeline({}, partition=even)", schedule), {{"pipe", 2}}});
  all.push_back({"gossip(mode=push_sum)", {{"data", 4}}});
  all.push_back({"gossip(graph=star)", {{"data", 4}}});
  all.push_back({"local_sgd(every=2, outer_momentum=0.5)", two});
  all.push_back({"parameter_server(servers=2)", {{"data", 4}}});
  all.push_back({"parameter_server(mode=async)", {{"data", 4}}});
  return all;
}

}  // namespace

/// What a strategy cannot do with a model of words, or with so few parts or micro-batches.
bool is_refused(const std::string& what) {
  return what.find("whole tensors") != std::string::npos || !known_refusal(what).empty();
}

/// Else the kernel may fill what is given back with huge pages, whenever it likes.
struct SmallPages {
  SmallPages() { (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }
  ~SmallPages() { (void)prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
};

TEST_CASE("memory: what plans predict is what ranks hold, for every strategy") {
  if (threads_only()) return;
  const SmallPages small;
  const bool print = std::getenv("TRIREME_TEST_PRINT") != nullptr;
  const char* only = std::getenv("TRIREME_TEST_ONLY");
  const bool in_full = print || only || std::getenv("TRIREME_TEST_ALL") != nullptr;
  std::random_device random;
  std::string wrong;
  for (const Subject& s : {pictures("mnist_cnn", {28, 28, 1}, 32), pictures("resnet20", {32, 32, 3}, 16), text(16, 64),
                           pictures("mlp", {28, 28, 1}, 128), pictures("resnet20", {32, 32, 3}, 16, true)})
    for (const Case& c : cases()) {
      const bool few = s.recompute || (brief() && s.name != "mlp");
      if (few && c.strategy.find("data_parallel") == std::string::npos) continue;
      // Of what takes long a third, another one in each run; with TRIREME_TEST_ALL all.
      if (!in_full && s.name != "mlp" && random() % 3 != 0) continue;
      if (only && (s.name + " " + c.strategy).find(only) == std::string::npos) continue;
      try {
        wrong += compare(s, c, 0.02, print);
      } catch (const std::exception& e) {
        if (print) std::printf("%s %s: %s\n", s.name.c_str(), c.strategy.c_str(), e.what());
        if (!is_refused(e.what())) wrong += s.name + " " + c.strategy + ": " + e.what() + "\n";
      }
    }
  CHECK(wrong == "");
}

}  // namespace test_memory_runs
