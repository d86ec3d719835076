// Random models that are no plain row of layers, under random strategies on 2 to 4 ranks: they equal the serial run, to
// the bit where all numbers are integers, or they are refused as usage.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <regex>

#include "framework/tensor/create.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/sweep/random_model.h"
#include "tests/parallel/training.h"

namespace trireme::test {
namespace {

struct ModelRun {
  Outcome result;
  std::vector<double> evaluated;  ///< outputs for all samples behind the last step
  int microbatches = 1;
  bool apart = false;  ///< losses are those of a worker's rows
  std::string refusal = {};
  ErrorKind kind = ErrorKind::usage;
};

struct Training {
  RandomModel model;
  OptimizerConfig optimizer_config;
  OptimizerOptions optimizer;
  Index batch;
  int steps;
  bool integers;
  double nudge = 0;  ///< change of the weights at the start, relative and absolute
};

/// The outputs for all samples, rank 0's or, where each has its rows, all ranks'.
std::vector<double> evaluate(Step& step, World& world, const Training& t) {
  const Inference inference;
  const bool divided = StepProbe(step).is_tensor_parallel();
  const RankShare share = divided ? RankShare(step.shard().rank, step.shard().size) : RankShare();
  const Index samples = t.model.data.x.dim(0);
  Tensor sums;
  for (auto& batch : Loader(TensorDataset(t.model.data.x, t.model.data.y),
                            {.batch = samples, .shard = share, .workers = 0, .training = false})) {
    const Tensor p = step.model()(batch.x);
    Tensor y = divided ? whole(p) : p;
    if (p.fields().contains("second")) y = concat({y, divided ? whole(p.at("second")) : p.at("second")}, 1);
    y = concat({y, ones({y.dim(0), 1}, y.dtype())}, 1);  // the last column counts the ranks that computed a row
    if (!sums) sums = Tensor::zeros({samples, y.dim(1)}, DType::f64);
    const Tensor at = expand(unsqueeze(batch.samples, 1), y.shape());
    sums = scatter_add(sums, at, y, 0).detach();
  }
  world.comm().all_reduce(sums).wait();
  const Tensor counts = slice(sums, 1, -1);
  return (sums / counts).to_vector();
}

ModelRun train(const Training& t, const Arrangement& how) {
  ModelRun run;
  try {
    run = on_ranks(how.ranks(), [&](World& world) {
      Module model = t.model.make();
      if (t.integers)
        with_integers(model);
      else
        initialize(model, 1 + static_cast<std::uint64_t>(world.rank()));  // rank 0's start is what counts
      if (t.nudge != 0)
        model.visit(StateVisitor([&](const NamedState& leaf) {
          if (leaf.kind != StateKind::buffer) leaf.tensor->copy_from(*leaf.tensor * (1 + t.nudge) + t.nudge);
        }));
      Mesh mesh(world, how.mesh);
      Step step(model, t.model.loss, t.optimizer_config, mesh, parse_strategy(how.strategy),
                {.seed = 5, .optimizer = t.optimizer});
      Loader loader(TensorDataset(t.model.data.x, t.model.data.y),
                    {.batch = t.batch, .shuffle = true, .seed = 3, .shard = step.shard(), .workers = 0});
      std::vector<Tensor> losses;
      while (static_cast<int>(losses.size()) < t.steps)
        for (auto& [x, y] : loader) {
          losses.push_back(step(x, y));
          if (static_cast<int>(losses.size()) == t.steps) break;
        }
      std::vector<double> values;
      for (auto& loss : losses) values.push_back(loss.item());
      StepProbe(step).consolidate();
      ModelRun mine{.result = outcome(world, std::move(values), step.parameters()),
                    .evaluated = evaluate(step, world, t),
                    .microbatches = step.plan().microbatches,
                    .apart = StepProbe(step).trains_apart()};
      return mine;
    });
  } catch (const Error& e) {
    run.refusal = e.what();
    run.kind = e.kind();
  }
  return run;
}

/// distance(), of tensors that start as zeros and whose gradients are zero in truth to a thousandth.
double furthest(std::vector<double> a, std::vector<double> b, std::vector<std::size_t> ends) {
  if (ends.empty()) ends = {b.size()};
  if (a.size() != b.size()) return 1e300;
  double most = 0;
  for (std::size_t t = 0, i = 0; t < ends.size(); ++t) {
    double off = 0, largest = 1e-3;
    for (; i < ends[t]; ++i) {
      const double d = std::abs(a[i] - b[i]);
      off = d <= off ? off : d;  // NaN stays
      largest = std::max(largest, std::abs(b[i]));
    }
    most = off / largest <= most ? most : off / largest;
  }
  return most;
}

/// The message with numbers and names taken out.
std::string shape_of(const std::string& message) {
  std::string text = std::regex_replace(message, std::regex("rank [0-9]+: "), "");
  text = std::regex_replace(text, std::regex("'[^']*'"), "'*'");
  text = std::regex_replace(text, std::regex("\\[[-0-9, ]*\\]"), "[]");
  return std::regex_replace(text, std::regex("-?[0-9]+"), "#");
}

/// Whether a change of inputs by a few roundings changes what comes out by more than it should: weights that grow
/// without bound, norms of values that are nearly equal.
bool is_sensitive(Training t, const Arrangement& how, const ModelRun& before) {
  const Tensor given = t.model.data.x;
  const Outcome& b = before.result;
  // A batch norm of equal numbers gives 0, or over several ranks a rounding error of either sign, and a relu behind it
  // has one slope or the other.
  for (const double nudge : {4e-16, -4e-16}) {
    Tensor x = scale(given, 1 + nudge);
    for (const auto& [name, field] : given.fields()) x = x.with(name, field);
    t.model.data.x = x;
    t.nudge = nudge;
    const ModelRun after = train(t, how);
    if (!after.refusal.empty() || furthest(after.result.weights, b.weights, b.weight_ends) > 1e-12 ||
        furthest(after.evaluated, before.evaluated, {}) > 1e-12)
      return true;
  }
  return false;
}

/// Strategies under which workers train apart, with the options under which they equal the serial run, if there are
/// such.
Arrangement apart(RandomChoice& dice) {
  const int ranks = static_cast<int>(dice.between(2, 4));
  const std::string name = dice.of({"local_sgd", "easgd", "gossip", "gossip(mode=push_sum)", "parameter_server"});
  Arrangement how{{{"data", ranks}}, name};
  std::vector<std::string> limits;
  for (const ClaimedText& claimed : claims_of(name))
    if (claimed.claim.kind == StrategyClaim::Kind::limit) limits.push_back(claimed.strategy);
  if (!limits.empty()) how.strategy = dice.of(limits);
  return how;
}

}  // namespace

std::string sweep_models(RandomChoice dice) {
  const bool integers = dice.chance(30);
  Training t{.model = random_model(RandomChoice(static_cast<std::uint64_t>(dice.between(0, 1 << 30))), integers),
             .optimizer_config = integers ? OptimizerConfig(Sgd{.lr = 1. / 64}) : any_optimizer(dice),
             .optimizer = {},
             .batch = 0,
             .steps = integers ? 1 : 3,
             .integers = integers};
  const Index samples = t.model.data.x.dim(0);
  t.batch = dice.between(2, samples);
  if (!integers && dice.chance(20)) t.optimizer.clip_norm = 0.5;
  Arrangement how = arrangement(dice, 4);
  const bool alone = !integers && !t.model.batch_norm && !t.model.loss.ignored() && dice.chance(15);
  if (alone) {  // as many rows for each worker
    how = apart(dice);
    t.optimizer_config = Sgd{.lr = 0.05};
    t.optimizer = {};
    const int workers = how.ranks() - how.strategy.starts_with("parameter_server");
    t.batch = workers * dice.between(1, samples / workers);
    t.steps = static_cast<int>(std::min<Index>(3, samples / t.batch));
  }
  const auto what = [&] {
    return fmt::format("{}, batch {}, {}, clip {}, {}", t.model.text, t.batch, t.optimizer_config.name(),
                       t.optimizer.clip_norm, how.text());
  };
  if (std::getenv("SWEEP_SHOW")) fmt::print(stderr, "{}\n", what());
  const ModelRun serial = train(t, {{{"data", 1}}, "serial"});
  if (!serial.refusal.empty()) {
    if (serial.kind == ErrorKind::numerics) return "diverges";
    const bool constant = serial.refusal.find("nothing to differentiate") != serial.refusal.npos;
    check(constant || !refusal(serial.refusal).empty(), "sweep", "{}\n  the serial run is refused: {}", what(),
          serial.refusal);
    return "refused serially: " + shape_of(serial.refusal);
  }
  for (const double loss : serial.result.losses)
    if (integers && std::abs(loss) > 1e9) return "too large for exact sums";
  // Another arrangement where one is refused: most are for the sake of the strategies, not of the model.
  ModelRun run;
  for (int tries = 0; tries < 4; ++tries) {
    if (tries > 0) how = arrangement(dice, 4);
    run = train(t, how);
    if (run.refusal.empty()) break;
    if (std::getenv("SWEEP_SHOW")) fmt::print(stderr, "  {}: {}\n", how.text(), run.refusal);
    // Batch norms take the statistics of each micro-batch, with which the training may diverge on one rank, too.
    const std::size_t micro = how.strategy.find("micro=");
    if (run.kind == ErrorKind::numerics && t.model.batch_norm && micro != how.strategy.npos) {
      const int count = std::stoi(how.strategy.substr(micro + 6));
      if (train(t, {{{"data", 1}}, fmt::format("accumulate(micro={})", count)}).kind == ErrorKind::numerics)
        return "diverges";
    }
    if (run.kind == ErrorKind::numerics && run.refusal.find("Sums in f16 end at 65504") != run.refusal.npos)
      return "too large for sums in f16";
    check(run.kind == ErrorKind::usage, "sweep", "{}\n  it ends with kind {}: {}", what(), name_of(run.kind),
          run.refusal);
    check(std::getenv("SWEEP_ANY") || !refusal(run.refusal).empty(), "sweep", "{}\n  {}", what(), run.refusal);
    if (alone || run.refusal.find("divides no layers") != run.refusal.npos) break;
  }
  if (!run.refusal.empty()) return "refused: " + shape_of(run.refusal);
  // Batch norms take the statistics of each micro-batch.
  const bool divided = t.model.batch_norm && run.microbatches > 1;
  const Arrangement reference{{{"data", 1}},
                              divided ? fmt::format("accumulate(micro={})", run.microbatches) : "serial"};
  const ModelRun same = divided ? train(t, reference) : serial;
  check(same.refusal.empty(), "sweep", "{}\n  the serial run is refused: {}", what(), same.refusal);
  const Strategy strategy = parse_strategy(how.strategy);
  if (strategy.claim(t.model.batch_norm) != Claim::exact && (!alone || strategy.name() == "easgd"))
    return "trained under " + strategy.name();
  bool sensitive = false;
  const auto close = [&](const std::string& name, const std::vector<double>& a, const std::vector<double>& b,
                         const std::vector<std::size_t>& ends, double bound) {
    const double distance = furthest(a, b, ends);
    if (!integers && distance > bound && (sensitive = sensitive || is_sensitive(t, reference, same))) return;
    check(distance <= bound, "sweep", "{}\n  {} differ by {}", what(), name, distance);
  };
  check(run.result.agreed, "sweep", "{}\n  ranks end with other weights", what());
  const Outcome &a = run.result, &b = same.result;
  const double bound = integers ? 0 : 1e-10;
  if (!run.apart) close("losses", a.losses, b.losses, {}, bound);
  close("weights", a.weights, b.weights, b.weight_ends, bound);
  close("running statistics", a.buffers, b.buffers, b.buffer_ends, bound);
  close("outputs", run.evaluated, same.evaluated, {}, 1e-10);  // by weights that have fractions
  return sensitive ? "magnifies rounding" : "equal under " + strategy.name();
}

}  // namespace trireme::test
