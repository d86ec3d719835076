// The search for strategies beside exhaustion: every candidate of generated small spaces is simulated, without bounds.
#include "parallel/search/search.h"

#include <algorithm>
#include <random>

#include "parallel/comm/world/mesh.h"
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
  bool norms = false;  // each part sums something over data

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
      const auto sends = [&](CallKind kind, const std::string& axis, Index bytes, ActionKind during) {
        part.comms[during].push_back({kind, 2 * bytes, axis, 2});
      };
      if (tensor && divided) {
        sends(CallKind::all_reduce, "tensor", line.output * rows, ActionKind::forward);
        sends(CallKind::all_gather, "tensor", line.output * rows, ActionKind::backward_input);
      }
      if (split.cuts_images()) sends(CallKind::send, split.axes[0].name, line.output, ActionKind::backward_weight);
      if (norms && data > 1) sends(CallKind::all_reduce, "data", 64, ActionKind::forward);
      model.parts.push_back(std::move(part));
    }
    model.parameters = at;
    return model;
  }
};

MadeUpModel made_up(Numbers& n) {
  MadeUpModel model{.norms = n.chance(3)};
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
    if (t > 1 && n.chance(2)) space.splits.push_back({"tensor", {{"tensor", t}}});
  if (ranks % 2 == 0 && n.chance(2)) space.splits.push_back({"spatial", {{"h", 2}}});
  if (n.chance(2)) space.splits.push_back({"one_weird_trick", {}, true});
  if (n.chance(2)) space.recompute = {false, true};
  if (n.chance(2)) space.both_orders = false;
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
