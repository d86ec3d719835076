// The search for strategies beside exhaustion: every candidate of generated small spaces is simulated, without bounds.
#include "parallel/search/search.h"

#include <algorithm>
#include <random>
#include <ranges>

#include "framework/ops/loss.h"
#include "models/text/gpt2.h"
#include "models/vision/mlp.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/search/imagined_models.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_search {

using namespace trireme;

namespace {

class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }
  double real(double most) { return most * static_cast<double>(engine_() >> 11) * 0x1p-53; }
  bool chance(int of) { return below(of) == 0; }

 private:
  std::mt19937_64 engine_;
};

struct PartLine {  // costs of a part by rows
  double fixed[3] = {}, per_row[3] = {};
  Index saved, output, weights;
};

/// A made-up model: its parts' costs are lines over rows, and splits divide some of it and send something.
struct MadeUpModel {
  std::vector<PartLine> parts = {};
  bool norms = false;   // each part sums something over data
  bool halves = false;  // weights are read in bf16

  std::optional<RankModel> operator()(const LayerSplit& split, bool recompute, Index rows, int data) const {
    const int over = split.divides_batch_axis ? data : ranks_of(split.axes);
    const bool tensor = split.strategy.starts_with("tensor"), weights = tensor || split.divides_batch_axis;
    if (over > 6) return {};
    RankModel model;
    Index at = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const PartLine& line = parts[p];
      const bool divided = weights ? p + 1 == parts.size() || (tensor && p % 2 == 0) : over > 1;
      const double share = divided ? 1.0 / over : 1;
      const Index size = weights && divided ? line.weights / over : line.weights;
      PartInfo part{.name = "part" + std::to_string(p), .slice = {at, at + size}};
      at += size;
      double seconds[3];
      for (int i = 0; i < 3; ++i) seconds[i] = share * (line.fixed[i] + line.per_row[i] * static_cast<double>(rows));
      if (recompute) seconds[1] += seconds[0];
      part.cost = {.forward = seconds[0],
                   .backward_input = seconds[1],
                   .backward_weight = seconds[2],
                   .saved = (recompute ? line.output : line.saved) * rows,
                   .output = line.output * rows};
      if (weights && divided && split.divides_batch_axis) part.divided = {{"data", {part.slice}}};
      if (tensor && divided) part.divided = {{"tensor", {part.slice}}};
      if (size > 0) part.tensors = {{part.slice.begin, {size}}};
      if (halves && size > 0 && p > 0) part.read_as = {{part.slice.begin, DType::bf16}};
      const auto sends = [&](CallKind kind, const std::string& axis, Index bytes, ActionKind during) {
        part.comms[during].push_back({kind, 2 * bytes, axis, 2});
      };
      if (tensor && divided) {
        sends(CallKind::all_reduce, "tensor", line.output * rows, ActionKind::forward);
        sends(CallKind::all_gather, "tensor", line.output * rows, ActionKind::backward_input);
      }
      if (split.cuts_inputs()) sends(CallKind::send, split.axes[0].name, line.output, ActionKind::backward_weight);
      if (norms && data > 1) sends(CallKind::all_reduce, "data", 64, ActionKind::forward);
      model.parts.push_back(std::move(part));
    }
    model.parameters = at;
    return model;
  }
};

MadeUpModel made_up(Numbers& n) {
  MadeUpModel model{.norms = n.chance(3), .halves = n.chance(4)};
  const int parts = 2 + n.below(5);
  for (int p = 0; p < parts; ++p) {
    PartLine line{.saved = 1 + n.below(4000), .output = 1 + n.below(4000), .weights = n.chance(4) ? 0 : n.below(5000)};
    for (int i = 0; i < 3; ++i) {
      line.fixed[i] = n.real(5e-6);
      line.per_row[i] = n.real(4e-6);
    }
    model.parts.push_back(line);
  }
  return model;
}

Cluster made_up_cluster(int ranks, Numbers& n) {
  const auto link = [&](double slower) {
    return Link{.latency = n.chance(4) ? 0 : n.real(3e-6) * slower,
                .bandwidth = n.chance(6) ? 0 : 1e8 + n.real(1e10) / slower};
  };
  Cluster c{.inside = link(1), .between = link(4)};
  c.nodes.clear();
  for (int left = ranks; left > 0;) {
    NodeGroup g{.count = 1 + n.below(2), .devices = 1 + n.below(ranks), .speed = n.chance(3) ? 0.5 + n.real(1) : 1};
    left -= g.count * g.devices;
    c.nodes.push_back(g);
  }
  c.cyclic = n.chance(4);
  c.overlaps = !n.chance(3);
  if (n.chance(3))
    for (const int size : {2, 4, ranks})
      for (const Index bytes : {1000, 20000})
        if (size > 1)
          c.between.measured.push_back(
              {CallKind::all_reduce, size, bytes, n.real(1e-5) + 1e-9 * static_cast<double>(bytes)});
  return c;
}

SearchSpace made_up_space(int ranks, int parts, Numbers& n) {
  SearchSpace space{.ranks = ranks, .batch = 1 + n.below(24), .parts = parts, .most_micro = 8};
  space.buckets = {500 + n.below(1000), 100000};
  space.chunks = {2};
  for (const int t : divisors(ranks))
    if (t > 1 && n.chance(2))
      space.splits.push_back({n.chance(2) ? "tensor" : "tensor(sequence=true)", {{"tensor", t}}});
  if (ranks % 2 == 0 && n.chance(2)) space.splits.push_back({"spatial", {{"h", 2}}});
  if (n.chance(2)) space.splits.push_back({"one_weird_trick", {}, true});
  if (n.chance(2)) space.recompute = {false, true};
  if (n.chance(2)) space.both_orders = false;
  if (n.chance(2))
    space.host = divisors(ranks)[static_cast<std::size_t>(n.below(static_cast<int>(divisors(ranks).size())))];
  return space;
}

/// The search beside all candidates of a space, one by one.
void compare(const SearchInput& in, const std::string& what) {
  const auto all = candidates(in.space);
  std::vector<RankedStrategy> fit;
  Index least = std::numeric_limits<Index>::max();
  CandidateBounds bounds(in.space, in.model, *in.machine.cluster, in.numbers);
  for (const SearchCandidate& c : all) {
    const auto outcome = evaluate(in, c);
    const auto* r = std::get_if<RankedStrategy>(&outcome);
    if (!r) continue;
    const auto bound = bounds.of(c);
    INFO(what << "overlaps " << in.machine.cluster->overlaps << " measured "
              << in.machine.cluster->between.measured.size() << ": " << to_string(r->mesh) << " " << r->strategy
              << " takes " << r->seconds << " at least " << bound->seconds);
    REQUIRE(bound.has_value());
    CHECK(bound->bytes <= r->memory.total());
    least = std::min(least, r->memory.total());
    if (in.memory > 0 && r->memory.total() > in.memory) continue;
    CHECK(bound->seconds <= r->seconds * (1 + 1e-12));
    fit.push_back(*r);
  }
  std::ranges::stable_sort(fit, {}, &RankedStrategy::seconds);
  const SearchResult found = search(in);
  INFO(what << all.size() << " candidates, " << fit.size() << " fit, " << found.simulated << " simulated");
  CHECK(found.candidates == std::ssize(all));
  CHECK(found.ranked.empty() == fit.empty());
  if (fit.empty()) {
    CHECK(found.nearest.has_value() == (least != std::numeric_limits<Index>::max()));
    if (found.nearest) CHECK(found.nearest->memory.total() >= least);
    return;
  }
  CHECK(found.complete);
  CHECK(found.best_is_known);
  REQUIRE(found.ranked.size() > 0);
  const RankedStrategy& best = found.ranked.front();
  INFO("found " << to_string(best.mesh) << " " << best.strategy << ", known " << to_string(fit[0].mesh) << " "
                << fit[0].strategy);
  CHECK(std::abs(best.seconds - fit[0].seconds) <= 1e-12 * fit[0].seconds);
  CHECK((in.memory == 0 || best.memory.total() <= in.memory));
  std::size_t next = 0;  // each that is ranked is the best of those that differ in buckets alone
  for (const RankedStrategy& r : found.ranked) {
    while (next < fit.size() &&
           std::ranges::any_of(fit.begin(), fit.begin() + static_cast<std::ptrdiff_t>(next),
                               [&](const RankedStrategy& f) { return f.candidate.is_alike(fit[next].candidate); }))
      ++next;
    REQUIRE(next < fit.size());
    CHECK(std::abs(r.seconds - fit[next++].seconds) <= 1e-12 * r.seconds);
  }
}

}  // namespace

TEST_CASE("the search finds the best of all candidates, and no bound is above what is simulated") {
  for (int ranks = 1; ranks <= 16; ++ranks)
    for (int run = 0; run < (test::brief() ? 1 : ranks <= 8 ? 6 : 2); ++run) {
      Numbers n(static_cast<std::uint64_t>(1000 * ranks + run));
      const MadeUpModel model = made_up(n);
      SearchInput in{.model = model};
      in.space = made_up_space(ranks, static_cast<int>(model.parts.size()), n);
      in.machine.cluster = made_up_cluster(ranks, n);
      in.machine.update = n.chance(2) ? 1e-9 : 0;
      in.machine.loss = n.real(1e-6);
      in.machine.overhead = n.chance(2) ? 1e-7 : 0;
      in.numbers.states = n.below(3);
      in.work = Index{1} << 40;
      in.top = 1 + n.below(10);
      compare(in, "ranks " + std::to_string(ranks) + " run " + std::to_string(run) + ": ");
      // As much as the least that any needs, and somewhat more.
      Index least = std::numeric_limits<Index>::max();
      for (const SearchCandidate& c : candidates(in.space))
        if (const auto outcome = evaluate(in, c); std::holds_alternative<RankedStrategy>(outcome))
          least = std::min(least, std::get<RankedStrategy>(outcome).memory.total());
      if (least == std::numeric_limits<Index>::max()) continue;
      in.memory = n.chance(5) ? least - 1 : least + n.below(static_cast<int>(least));
      compare(in, "with memory, ranks " + std::to_string(ranks) + " run " + std::to_string(run) + ": ");
    }
}

TEST_CASE("hybrid sharding within hosts is found where links between hosts are slow and weights do not fit") {
  MadeUpModel model;
  for (int p = 0; p < 4; ++p)
    model.parts.push_back({.per_row = {1e-6, 1e-6, 1e-6}, .saved = 100, .output = 100, .weights = 100000});
  SearchInput in{.model = model};
  in.space = {.ranks = 8, .batch = 64, .parts = 4, .micro = {1}, .host = 4};
  in.machine.cluster = Cluster{.nodes = {{.count = 2, .devices = 4}},
                               .inside = {.latency = 1e-6, .bandwidth = 1e11},
                               .between = {.latency = 1e-5, .bandwidth = 1e9}};
  in.space.mesh = {{"data", 8}};
  const SearchResult flat = search(in);
  in.space.mesh = {{"data", 2}, {"shard", 4}};
  const SearchResult hybrid = search(in);
  REQUIRE(!hybrid.ranked.empty());
  for (const RankedStrategy& r : hybrid.ranked) {
    CHECK(r.candidate.shard == 4);
    CHECK(r.strategy.starts_with("data_parallel | zero(3, axis=shard"));
    CHECK(r.least <= r.seconds);
    for (const RankedStrategy& other : flat.ranked) CHECK(r.seconds < other.seconds);
  }
  // Without stages, and without room for whole weights, weights are gathered again for backward.
  in.space.mesh = {};
  in.space.parts = 1;
  in.memory = hybrid.ranked.back().memory.total();
  const RankedStrategy best = search(in).ranked.at(0);
  CHECK(to_string(best.mesh) == "data=2,shard=4");
  CHECK(best.strategy == "data_parallel | zero(3, axis=shard)");
  CHECK(best.memory.total() <= in.memory);
  // A pipeline leaves fewer ranks of a host along shard; one host has no replicas on others.
  const auto meshes = [&](int ranks, int host) {
    SearchSpace space{.ranks = ranks, .batch = 64, .parts = 4, .micro = {1}, .host = host};
    space.both_orders = false;
    std::vector<std::string> all;
    for (const SearchCandidate& c : candidates(space))
      if (const std::string mesh = to_string(mesh_of(space, c));
          c.shard > 1 && std::ranges::find(all, mesh) == all.end())
        all.push_back(mesh);
    return all;
  };
  CHECK(meshes(16, 8) == std::vector<std::string>{"data=2,shard=8", "data=2,shard=4,pipe=2", "data=2,shard=2,pipe=4"});
  CHECK(meshes(8, 8).empty());
  CHECK(meshes(32, 1) == std::vector<std::string>{"data=16,shard=2", "data=8,shard=4", "data=4,shard=8",
                                                  "data=8,shard=2,pipe=2", "data=4,shard=4,pipe=2",
                                                  "data=2,shard=8,pipe=2", "data=4,shard=2,pipe=4",
                                                  "data=2,shard=4,pipe=4"});
}

TEST_CASE("sequence, context and expert parallelism are searched for transformers, and take less memory of GPT-2") {
  const auto ids = [](Index rows) {
    return std::pair(Tensor::zeros({rows, 8}, DType::i64), Tensor::zeros({rows, 8}, DType::i64));
  };
  ImaginedModels gpt({.model =
                          [](bool recompute) {
                            return gpt2({.layers = 2,
                                         .heads = 4,
                                         .width = 32,
                                         .positions = 8,
                                         .vocabulary = 40,
                                         .experts = 8,
                                         .recompute = recompute});
                          },
                      .samples = ids,
                      .loss = cross_entropy});
  const Link link{.latency = 1e-6, .bandwidth = 1e10};
  const auto splits = tensor_splits(gpt, 2, 4, link);
  REQUIRE(splits.size() >= 2);
  CHECK(splits.front().strategy == "tensor");
  CHECK(splits.back().strategy == "tensor(sequence=true)");

  ImaginedModels plain({.model =
                            [](bool) {
                              return mlp({.input = {4, 4, 1}, .classes = 4});
                            },
                        .samples =
                            [](Index rows) {
                              return std::pair(Tensor::zeros({rows, 4, 4, 1}), Tensor::zeros({rows}, DType::i64));
                            },
                        .loss = cross_entropy});
  for (const LayerSplit& split : tensor_splits(plain, 2, 4, link))
    CHECK(split.strategy.find("sequence") == std::string::npos);

  for (const int ranks : {2, 4, 8}) {
    SearchInput in{.model = std::ref(gpt)};
    in.space = {.ranks = ranks, .batch = 16, .parts = gpt.parts(), .splits = {{}}, .micro = {1, 2}};
    in.space.splits.insert(in.space.splits.end(), splits.begin(), splits.end());
    for (const char* strategy : {"context", "context(mode=ring)"})
      in.space.splits.push_back({strategy, {{"context", 2}}});
    in.space.splits.push_back({"experts", {}, false, true});
    in.space.recompute = {false, true};
    in.space.host = std::max(2, ranks / 2);
    in.machine.cluster = Cluster{.nodes = {{.count = 4, .devices = in.space.host}},
                                 .inside = link,
                                 .between = {.latency = 1e-5, .bandwidth = 1e9}};
    in.work = Index{1} << 40;
    compare(in, "gpt2 on " + std::to_string(ranks) + " ranks: ");
    if (ranks > 2) continue;
    std::map<std::string, Index> memory;
    for (const SearchCandidate& c : candidates(in.space))
      if (c.stages == 1 && c.micro == 1 && !c.recompute)
        memory[strategy_of(in.space, c)] = std::get<RankedStrategy>(evaluate(in, c)).memory.total();
    CHECK(memory.at("tensor(sequence=true)") < memory.at("tensor"));
    CHECK(memory.at("context(mode=ring)") <= memory.at("context"));
    const auto least = [&](const std::string& begin) {
      Index bytes = std::numeric_limits<Index>::max();
      for (const auto& [strategy, of] : memory)
        if (strategy.starts_with(begin)) bytes = std::min(bytes, of);
      return bytes;
    };
    CHECK(least("experts | data_parallel") < least("data_parallel"));
    in.memory = memory.at("tensor(sequence=true)");
    in.space.zero = {0};
    in.space.recompute = {false};
    in.space.micro = {1};
    in.space.mesh = {{"tensor", 2}};
    CHECK(search(in).ranked.at(0).strategy == "tensor(sequence=true)");
  }
}

TEST_CASE("cuts of tokens are searched where attention is causal, and zig-zag is fastest in a ring") {
  const auto model_of = [](bool causal) {
    return ImaginedModelOptions{
        .model =
            [causal](bool) {
              return Sequential{Embedding(40, 32), SelfAttention(32, 4, {.causal = causal}), Linear(32, 40)};
            },
        .samples =
            [](Index rows) {
              return std::pair(Tensor::zeros({rows, 256}, DType::i64), Tensor::zeros({rows, 256}, DType::i64));
            },
        .loss = cross_entropy};
  };
  const auto names = [](const std::vector<LayerSplit>& splits) {
    std::vector<std::string> all;
    for (const LayerSplit& split : splits) all.push_back(split.strategy);
    return all;
  };
  ImaginedModels causal(model_of(true)), full(model_of(false));
  for (const int ranks : {2, 4}) {
    CHECK(names(context_splits(full, ranks)) ==
          std::vector<std::string>{"context", "context(mode=ulysses)", "context(mode=ring)"});
    const auto splits = context_splits(causal, ranks);
    // Under ulysses each rank has all tokens of its heads, so all cuts are equal work.
    CHECK(names(splits) == std::vector<std::string>{"context", "context(cut=zigzag)", "context(cut=striped)",
                                                    "context(mode=ulysses)", "context(mode=ring)",
                                                    "context(mode=ring, cut=zigzag)",
                                                    "context(mode=ring, cut=striped)"});
    const Link fast{.latency = 1e-6, .bandwidth = 1e11};
    SearchInput in{.model = std::ref(causal)};
    in.space = {.ranks = ranks, .batch = 2, .parts = causal.parts(), .splits = splits, .micro = {1}};
    in.space.mesh = {{"context", ranks}};
    in.space.zero = {0};
    in.machine.cluster = Cluster{.nodes = {{.count = 1, .devices = ranks}}, .inside = fast, .between = fast};
    in.work = Index{1} << 40;
    std::map<std::string, double> seconds;
    for (const SearchCandidate& c : candidates(in.space)) {
      const RankedStrategy r = std::get<RankedStrategy>(evaluate(in, c));
      seconds[r.strategy] = r.seconds;
    }
    CHECK(seconds.at("context(mode=ring, cut=zigzag)") < seconds.at("context(mode=ring, cut=striped)"));
    CHECK(seconds.at("context(mode=ring, cut=striped)") < seconds.at("context(mode=ring)"));
    CHECK(seconds.at("context(cut=zigzag)") < seconds.at("context"));
    CHECK(search(in).ranked.at(0).seconds == std::ranges::min(seconds | std::views::values));
  }
}

TEST_CASE("the weakest source is that of links which ranks have, wherever they lie") {
  Cluster c{.inside = {1e-6, 1e9}, .between = {1e-5, 1e9}};
  c.inside.source = Source::datasheet;
  c.between.source = Source::assumed;
  const auto weakest = [&](int ranks) { return weakest_source(c, ranks, Source::measured); };
  c.nodes = {{.count = 2, .devices = 2}};
  CHECK(weakest(1) == Source::measured);
  CHECK(weakest(2) == Source::datasheet);
  CHECK(weakest(3) == Source::assumed);
  c.cyclic = true;  // ranks 0 and 2 are on one node, 1 is not
  CHECK(weakest(3) == Source::assumed);
  CHECK((used_links(c, 2).between && !used_links(c, 2).inside));
  CHECK((used_links(c, 3).between && used_links(c, 3).inside));
  c.nodes = {{.devices = 1}, {.devices = 4}};
  c.cyclic = false;
  c.inside.source = Source::assumed;
  c.between.source = Source::datasheet;
  CHECK(weakest(2) == Source::datasheet);
  CHECK(weakest(3) == Source::assumed);
}

}  // namespace test_search
