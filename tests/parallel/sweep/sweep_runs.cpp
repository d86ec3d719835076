// Random networks under random strategies on random meshes of threads: they equal the serial run with as many
// micro-batches, and so do runs that go on from their checkpoints elsewhere, or they are refused.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "parallel/strategies/codecs/codecs.h"
#include "tests/parallel/run_segments.h"
#include "tests/parallel/sweep/sweep.h"
#include "tests/support/temporary.h"

namespace trireme::test {
namespace {

struct Network {
  std::function<Module()> make;
  std::string text;
  Shape input;
};

/// A model that is no Sequential.
struct OneLayer {
  Sequential layers;
  Tensor operator()(const Tensor& x) const { return layers(x); }
  void visit(const StateVisitor& v) { v("layers", layers); }
};

/// Convolutions, norms, pools, skips and dense layers, as the dice say; the same each time it is made.
Network network(RandomChoice dice) {
  Index h = dice.between(3, 12), w = dice.between(3, 12), c = dice.between(1, 3);
  const Shape input{h, w, c};
  std::vector<std::function<void(Sequential&)>> parts;
  std::string text = fmt::format("{}x{}x{}", h, w, c);
  const auto add = [&](const std::string& what, auto&& part) {
    text += " " + what;
    parts.push_back([part](Sequential& s) { s.add(Module(part())); });
  };
  const auto activate = [&] {
    switch (dice.between(0, 4)) {
      case 0: return;
      case 1: return add("tanh", [] { return Module(static_cast<Tensor (*)(const Tensor&)>(tanh)); });
      case 2: return add("silu", [] { return Module(static_cast<Tensor (*)(const Tensor&)>(silu)); });
      default: return add("relu", [] { return Module(relu); });
    }
  };
  // What reads more than its own cell: each rank's part of it alone would be another model.
  const auto between = [&](Index channels) {
    switch (dice.between(0, 6)) {
      case 0: return add("group_norm", [channels] { return GroupNorm(1, channels); });
      case 1: return add("instance_norm", [channels] { return InstanceNorm(channels); });
      case 2: return add("layer_norm", [channels] { return LayerNorm(channels); });
      case 3: return add("dropout2d", [] { return Dropout2d(0.4); });
      case 4: return add("prelu", [channels] { return PReLU(channels); });
      case 5: {
        const int axis = static_cast<int>(dice.between(1, 3));
        return add(fmt::format("cumsum({})", axis),
                   [axis] { return Module([axis](const Tensor& x) { return scale(cumsum(x, axis), 0.25); }); });
      }
      default: return add("prelu1", [] { return PReLU(); });
    }
  };
  int skips = 0;
  for (Index blocks = dice.between(0, 3); blocks > 0; --blocks) {
    const Index k = std::min({dice.of({Index{1}, Index{2}, Index{3}, Index{5}}), h, w}), f = dice.between(1, 6);
    const Index stride = dice.chance(25) ? 2 : 1, pad = dice.between(0, k / 2);
    const ConvLayerOptions o{.stride = stride, .pad = pad, .bias = dice.chance(60)};
    const bool skip = dice.chance(20) && k % 2 == 1;
    const std::string name = "s" + std::to_string(skips++);
    if (skip) {
      add("stash", [name] { return Stash{name}; });
      add(fmt::format("conv{}({},{})same", k, c, c), [c, k] { return Conv2d(c, c, k, {.pad = k / 2}); });
      if (dice.chance(50)) add("norm", [c] { return BatchNorm(c); });
      activate();
      add("add", [name] { return AddStashed(name); });
    }
    add(fmt::format("conv{}({},{},s{},p{}{})", k, c, f, stride, pad, o.bias ? "" : ",nobias"),
        [c, f, k, o] { return Conv2d(c, f, k, o); });
    h = (h + 2 * pad - k) / stride + 1;
    w = (w + 2 * pad - k) / stride + 1;
    c = f;
    if (dice.chance(40)) add("norm", [f] { return BatchNorm(f); });
    if (dice.chance(12)) between(f);
    activate();
    if (dice.chance(50) && h >= 2 && w >= 2) {
      const bool max = dice.chance(50);
      add(max ? "max2" : "avg2", [max] { return max ? Module(MaxPool(2)) : Module(AvgPool(2)); });
      h /= 2;
      w /= 2;
    }
    if (dice.chance(25)) add("dropout", [] { return Dropout(0.3); });
  }
  Index features = h * w * c;
  if (dice.chance(25)) {
    add("mean", [] { return Module(global_avg_pool); });
    features = c;
  }
  add("flatten", [] { return Module(flatten); });
  for (Index dense = dice.between(0, 2); dense > 0; --dense) {
    const Index out = dice.between(1, 12);
    add(fmt::format("fc({},{})", features, out), [features, out] { return Linear(features, out); });
    if (dice.chance(20)) add("layer_norm", [out] { return LayerNorm(out); });
    activate();
    if (dice.chance(25)) add("dropout", [] { return Dropout(0.5); });
    features = out;
  }
  if (RandomChoice(static_cast<std::uint64_t>(dice.between(0, 1 << 30))).chance(35)) {  // weights of two or three parts
    text += fmt::format(" same({0},{0})", features);
    parts.push_back([features, thrice = dice.chance(40)](Sequential& s) {
      const Linear same(features, features);
      s.add(same).add(relu).add(same).add(relu);
      if (thrice) s.add(same);
    });
  }
  add(fmt::format("fc({},5)", features), [features] { return Linear(features, 5); });
  const bool one_layer = dice.chance(15) && text.find("stash") == text.npos;
  return {[parts, one_layer] {
            Sequential s;
            for (auto& part : parts) part(s);
            return one_layer ? Module(OneLayer{std::move(s)}) : Module(std::move(s));
          },
          text + (one_layer ? " as one layer" : ""), input};
}

std::string strategy_of(RandomChoice& dice, const std::string& name) {
  if (name == "accumulate") return fmt::format("accumulate(micro={})", dice.between(1, 6));
  if (name == "zero") {
    const Index stage = dice.between(1, 3);
    std::string text = fmt::format("zero({}", stage);
    if (stage == 3 && dice.chance(50)) text += fmt::format(", prefetch={}", dice.between(0, 3));
    if (stage == 3 && dice.chance(25)) text += ", reshard=false";
    return text + ")";
  }
  if (name == "pipeline") {
    const std::string schedule = dice.of(schedules()).name;
    return fmt::format("pipeline(micro={}, schedule={}, partition={}{})", dice.between(1, 6), schedule,
                       dice.of({"even", "auto"}),
                       dice.chance(20) ? fmt::format(", chunks={}", dice.between(1, 3)) : "");
  }
  if (name == "data_parallel" || name == "one_weird_trick")
    return fmt::format("{}(first_bucket={}, bucket={}, overlap={})", name, dice.between(1, 300), dice.between(1, 900),
                       dice.chance(70));
  if (name == "tensor" && dice.chance(40)) return "tensor(sequence=true)";
  if (name == "spatial") return fmt::format("spatial(axes={})", dice.of({"h", "h+w+d", "h+w", "h+w+d"}));
  if (name == "compress" && dice.chance(40))
    return fmt::format("compress({}, ratio=1, residual=false)", dice.of({"topk", "randomk", "codec=chunks, chunk=5"}));
  if (name == "compress") {
    const CodecRow& row = dice.of(codecs());
    const bool has_ratio = std::ranges::find(row.parameters, "ratio", &CodecParameter::name) != row.parameters.end();
    return fmt::format("compress(codec={}{})", row.codec->name,
                       has_ratio ? fmt::format(", ratio={}", 0.05 * static_cast<double>(dice.between(1, 19))) : "");
  }
  return name;
}

}  // namespace

Arrangement arrangement(RandomChoice& dice, int most_ranks) {
  Arrangement how;
  const auto axis = [&](const char* name, int percent) {
    if (!dice.chance(percent)) return false;
    const int size = static_cast<int>(dice.between(1, 4));
    if (how.ranks() * size > most_ranks) return false;
    how.mesh.push_back({name, size});
    return true;
  };
  std::vector<std::string> names;
  if (dice.chance(75)) {
    if (axis("pipe", 35))
      names.emplace_back("pipeline");
    else if (dice.chance(25))
      names.emplace_back("accumulate");
    const bool h = axis("h", 30), w = axis("w", 20);
    if (h || w) names.emplace_back("spatial");
    const bool tensor = axis("tensor", 35);
    if (tensor) names.emplace_back("tensor");
    if (axis("data", 60))
      names.emplace_back(dice.chance(h || w || tensor ? 3 : 20) ? "one_weird_trick" : "data_parallel");
    if (how.mesh.size() > 1 && dice.chance(30)) std::swap(how.mesh.front(), how.mesh.back());
    if (!names.empty() && dice.chance(40)) names.emplace_back(dice.chance(75) ? "zero" : "central_storage");
    if (!names.empty() && dice.chance(15)) names.emplace_back("compress");
  } else {
    for (const char* name : {"data", "pipe", "h", "tensor"}) axis(name, 40);
    std::vector<std::string> exact{"compress"};
    for (const StrategyRow& row : strategies())
      if (parse_strategy(row.name).claim() == Claim::exact && std::string(row.name) != "compress" &&
          std::string(row.name) != "context" && std::string(row.name) != "experts")
        exact.push_back(row.name);
    for (Index n = dice.between(1, 3); n > 0; --n) names.push_back(dice.of(exact));
  }
  if (how.mesh.empty()) how.mesh = {{"data", 1}};
  if (names.empty()) names.emplace_back("serial");
  std::vector<std::string> texts;
  for (auto& name : names) texts.push_back(strategy_of(dice, name));
  // Now and then along another axis, which may have a use already.
  static const std::map<std::string, std::string> axes = {{"tensor", "tensor"},
                                                          {"pipeline", "pipe"},
                                                          {"data_parallel", "data"},
                                                          {"one_weird_trick", "data"},
                                                          {"zero", "data"}};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (axes.contains(names[i]) && dice.chance(5)) {
      const std::string axis = dice.of(how.mesh).name;
      texts[i] = texts[i] == names[i] ? fmt::format("{}(axis={})", names[i], axis)
                                      : fmt::format("{}, axis={})", texts[i].substr(0, texts[i].size() - 1), axis);
    }
  how.strategy = fmt::format("{}", fmt::join(texts, " | "));
  return how;
}

std::string refusal(const std::string& what) {
  if (std::string pair = known_refusal(what); !pair.empty()) return pair;
  for (const char* text : {"the mesh has none of the axes",
                           "the mesh has no axis '",
                           " needs schedule=interleaved",
                           "needs at least 2 chunks per rank",
                           " micro-batches of a batch",
                           "and this op runs on whole tensors only",
                           "has two uses",
                           "which the mesh does not have",
                           "one value per channel",
                           " ranks share the ",
                           "ranks that share the batch: use data_parallel()",
                           "divides no layers",
                           "share the random layer",
                           "share the buffer",
                           "has other weights",
                           "a filter of ",
                           "adds a field '",
                           "has no row for each sample",
                           "may mean the part or the whole",
                           "Sums in f16 end at 65504"})
    if (what.find(text) != what.npos) return text;
  return "";
}

namespace {

/// The segment, or a refusal.
struct End {
  TrainedState result;
  std::string refusal = {};
};
End run(const Setup& s, const Arrangement& how, const RunSegment& segment) {
  End end;
  try {
    end.result = on_ranks(how.ranks(), [&](World& world) { return train_segment(s, world, how, segment); });
  } catch (const std::exception& e) { end.refusal = e.what(); }
  return end;
}

/// Whether a run is to equal the serial one. A strategy that is refused counts as exact.
bool is_exact(const std::string& strategy) {
  try {
    return parse_strategy(strategy).claim() == Claim::exact;
  } catch (const Error&) { return true; }
}

}  // namespace

OptimizerConfig any_optimizer(RandomChoice& dice) {
  if (dice.chance(60)) return Sgd{.lr = 0.05, .momentum = 0.9};
  if (dice.chance(50)) return Sgd{.lr = 0.05, .weight_decay = 0.01};
  if (dice.chance(50)) return Lars{.lr = 0.1, .weight_decay = 0};
  return Lamb{.lr = 0.01};
}

std::string sweep_runs(RandomChoice dice) {
  const Network net = network(RandomChoice(static_cast<std::uint64_t>(dice.between(0, 1 << 30))));
  Setup s{.model = net.make,
          .optimizer_config = any_optimizer(dice),
          .samples = dice.between(2, 24),
          .batch = dice.between(1, 12),
          .shape = net.input};
  if (dice.chance(20)) s.optimizer.clip_norm = 0.5;
  if (s.samples <= s.batch) s.samples = s.batch + 1;  // a second batch, for the second segment
  const Arrangement first = arrangement(dice, 8), second = arrangement(dice, 8);
  const std::string what = fmt::format("{}, batch {} of {}, {}, clip {}, {}", net.text, s.batch, s.samples,
                                       s.optimizer_config.name(), s.optimizer.clip_norm, first.text());
  const Temporary folder;
  const bool exact = is_exact(first.strategy);
  const auto serially = [&](const End& end, RunSegment segment) {
    const int micro = end.result.microbatches;
    return run(s, {{{"data", 1}}, micro > 1 ? fmt::format("accumulate(micro={})", micro) : "serial"}, segment);
  };
  const End here = run(s, first, {.from = "", .to = folder / "first", .steps = exact ? 1 : 2, .compares = true});
  const RunSegment begun{.from = "", .to = folder / "serial", .steps = 1};
  // The serial segment of a run whose weights are nudged at the begin of each segment.
  const auto nudged = [&](const End& end, RunSegment segment) {
    segment.to += "-nudged";
    segment.nudged = true;
    if (segment.from.empty()) return serially(end, segment);
    RunSegment before = begun;
    before.to = segment.from = begun.to + "-nudged";
    before.nudged = true;
    (void)serially(here, before);
    return serially(end, segment);
  };
  const auto judge = [&](const End& end, const RunSegment& serial, const std::string& name) {
    if (!end.refusal.empty() && std::getenv("SWEEP_SHOW")) fmt::print(stderr, "{}\n  {}\n", name, end.refusal);
    check(end.refusal.empty() || !refusal(end.refusal).empty(), "sweep", "{}\n  {}", name, end.refusal);
    if (!end.refusal.empty() || !exact) return false;
    const End reference = serially(end, serial);
    check(reference.refusal.empty(), "sweep", "{}\n  the serial run is refused: {}", name, reference.refusal);
    std::string found = difference(end.result, reference.result, 1e-9, 1e-3);
    if (!found.empty()) {  // sums that are zero in truth are as large as the rounding of what they add
      const End spread = nudged(end, serial);
      found = difference(end.result, reference.result, 1e-9, 1e-3, &spread.result);
    }
    check(found.empty(), "sweep", "{}\n  {} differ from the serial run's", name, found);
    return true;
  };
  const bool equal = judge(here, begun, what);
  if (!here.refusal.empty()) return "refused: " + refusal(here.refusal);
  if (!equal) return "copies equal";
  if (!is_exact(second.strategy)) return "equal, and not to go on exactly";
  const End there = run(s, second, {.from = folder / "first", .to = folder / "second", .steps = 1, .compares = true});
  if (!judge(there, {.from = folder / "serial", .to = folder / "on", .steps = 1},
             what + "\n  and on, " + second.text()))
    return "equal, and not to go on elsewhere";
  return "equal twice";
}

}  // namespace trireme::test
