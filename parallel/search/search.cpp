#include "parallel/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "parallel/comm/world/mesh.h"

namespace trireme {
namespace {

constexpr const char* too_much = "memory";
constexpr const char* cannot = "the model cannot be split this way";
/// Up to this number each rank is simulated if links differ; beyond it, each program uses its slowest links.
constexpr int most_apart = 64;

/// The reason of a refusal, without details that differ between candidates.
std::string in_short(const std::string& error) { return "refused: " + error.substr(0, error.find(" (")); }

/// The machine on which candidates are simulated.
SimulateOptions machine_of(const SearchInput& in) {
  SimulateOptions machine = in.machine;
  Cluster& cluster = machine.cluster.emplace(in.machine.cluster.value_or(flat_cluster(in.space.ranks)));
  machine.steps = 1;
  cluster.jitter = 0;
  if (in.space.ranks <= most_apart) return machine;
  machine.folding = Folding::slowest;
  double slowest = cluster.speed_of(0);
  for (int r = 0; r < in.space.ranks; ++r) slowest = std::min(slowest, cluster.speed_of(r));
  for (NodeGroup& g : cluster.nodes) g.speed = slowest;
  return machine;
}

double exposed_seconds(const Simulation& s) {
  double most = 0;
  for (const auto& program : s.exposed) {
    double all = 0;
    for (const AxisTraffic& t : program) all += t.seconds;
    most = std::max(most, all);
  }
  return most;
}

/// State of one search.
class Search {
 public:
  explicit Search(const SearchInput& in) : in_(in), machine_(machine_of(in)) {}

  std::variant<RankedStrategy, std::string> evaluate(const SearchCandidate& c) {
    try {
      return simulated(c);
    } catch (const Error& e) { return in_short(e.what()); }
  }
  SearchResult run();

 private:
  struct Bounded {
    int candidate;
    CandidateBound bound;
  };
  std::variant<RankedStrategy, std::string> simulated(const SearchCandidate& c);
  std::vector<Bounded> bounded(const std::vector<SearchCandidate>&);
  void go_through(const std::vector<SearchCandidate>&, const std::vector<Bounded>&);
  void find_nearest(const std::vector<SearchCandidate>&);
  void judge();
  bool keep(RankedStrategy);

  const SearchInput& in_;
  SimulateOptions machine_;
  SearchResult result_;
  std::vector<Bounded> too_large_;
  Index work_ = 0;
};

std::variant<RankedStrategy, std::string> Search::simulated(const SearchCandidate& c) {
  const SearchSpace& space = in_.space;
  RankedStrategy r{.candidate = c, .mesh = mesh_of(space, c), .strategy = strategy_of(space, c)};
  std::optional<RankModel> model = model_of(in_.model, space, c);
  if (!model) return cannot;
  const Strategy strategy = in_.strategy(r.strategy);
  const Index buffers = model->parts.back().buffers.end;
  Plan plan = strategy(serial(std::move(model->parts), model->parameters, buffers, r.mesh));
  if (in_.finish) plan = in_.finish(std::move(plan), strategy);
  r.partition = plan.partition;
  for (const RankMemory& m : predict_memory(plan, in_.numbers))
    if (m.total() > r.memory.total()) r.memory = m;
  Index actions = 0;
  for (const Program& p : plan.programs) actions += std::ssize(p.actions);
  work_ += actions;
  if (in_.memory > 0 && r.memory.total() > in_.memory) return r;  // seconds 0: not simulated
  const auto faults = check(plan, size_along(r.mesh, plan.reduced_axis()));
  if (!faults.empty()) return "unsound: " + faults.front();
  if (in_.beside) in_.beside(machine_, rows_of(space, c));
  const Simulation s = simulate(plan, machine_);
  work_ += actions * (s.folded ? 1 : space.ranks / std::ssize(plan.programs)) + space.ranks / 4;
  r.seconds = s.makespan;
  r.bubble = s.bubble;
  r.exposed = exposed_seconds(s);
  return r;
}

/// Candidates whose lower bound of memory fits, fastest bound first.
std::vector<Search::Bounded> Search::bounded(const std::vector<SearchCandidate>& all) {
  CandidateBounds bounds(in_.space, in_.model, *machine_.cluster, in_.numbers);
  std::vector<Bounded> fit;
  for (int i = 0; i < std::ssize(all); ++i) {
    const auto bound = bounds.of(all[i]);
    if (!bound)
      ++result_.dropped[cannot];
    else
      (in_.memory > 0 && bound->bytes > in_.memory ? too_large_ : fit).push_back({i, *bound});
  }
  if (!too_large_.empty()) result_.dropped[too_much] += std::ssize(too_large_);
  std::ranges::stable_sort(fit, {}, [](const Bounded& b) { return b.bound.seconds; });
  return fit;
}

/// Inserts a result at its rank. Returns false if a candidate that differs only in buckets is as fast.
bool Search::keep(RankedStrategy r) {
  auto& ranked = result_.ranked;
  const auto same =
      std::ranges::find_if(ranked, [&](const RankedStrategy& other) { return other.candidate.is_alike(r.candidate); });
  if (same != ranked.end()) {
    if (same->seconds <= r.seconds) return false;
    ranked.erase(same);
  }
  const auto at = std::ranges::upper_bound(ranked, r.seconds, {}, &RankedStrategy::seconds);
  ranked.insert(at, std::move(r));
  if (std::ssize(ranked) > in_.top) ranked.pop_back();
  return true;
}

void Search::go_through(const std::vector<SearchCandidate>& all, const std::vector<Bounded>& fit) {
  auto& ranked = result_.ranked;
  std::size_t next = 0;
  for (; next < fit.size(); ++next) {
    const bool full = std::ssize(ranked) == in_.top;
    if (full && fit[next].bound.seconds > ranked.back().seconds) break;
    if (work_ > in_.work && !ranked.empty()) break;
    if (work_ > 4 * in_.work) break;
    auto outcome = evaluate(all[fit[next].candidate]);
    if (auto* why = std::get_if<std::string>(&outcome)) {
      ++result_.dropped[*why];
    } else if (auto& r = std::get<RankedStrategy>(outcome);
               r.seconds == 0 && in_.memory > 0 && r.memory.total() > in_.memory) {
      ++result_.dropped[too_much];
      too_large_.push_back(fit[next]);
    } else {
      ++result_.simulated;
      r.least = fit[next].bound.seconds;
      (void)keep(std::move(r));
    }
  }
  result_.least_left = next < fit.size() ? fit[next].bound.seconds : 0;
  const Index left = std::ssize(fit) - static_cast<Index>(next);
  result_.complete = left == 0 || (std::ssize(ranked) == in_.top && result_.least_left > ranked.back().seconds);
  result_.best_is_known = left == 0 || (!ranked.empty() && result_.least_left >= ranked.front().seconds);
  if (left > 0) result_.dropped[result_.complete ? "slower, by their bounds" : "not looked at"] += left;
}

/// Among candidates that do not fit, finds the candidate that needs least memory, starting from the lowest bounds.
void Search::find_nearest(const std::vector<SearchCandidate>& all) {
  std::ranges::stable_sort(too_large_, {}, [](const Bounded& b) { return b.bound.bytes; });
  int made = 0;
  for (const Bounded& b : too_large_) {
    if (made == 32 || (result_.nearest && b.bound.bytes >= result_.nearest->memory.total())) break;
    const auto outcome = evaluate(all[b.candidate]);
    const auto* r = std::get_if<RankedStrategy>(&outcome);
    if (!r) continue;
    ++made;
    if (!result_.nearest || r->memory.total() < result_.nearest->memory.total()) result_.nearest = *r;
  }
}

void Search::judge() {
  result_.weakest = weakest_source(*machine_.cluster, in_.space.ranks, in_.costs);
  result_.band = in_.band.value_or(error_band(result_.weakest, in_.jitter, in_.heldout));
  const auto& ranked = result_.ranked;
  result_.margin =
      ranked.size() < 2 ? std::numeric_limits<double>::infinity() : ranked[1].seconds / ranked[0].seconds - 1;
  for (const RankedStrategy& r : ranked) result_.alike += r.seconds <= ranked[0].seconds * (1 + result_.band);
}

SearchResult Search::run() {
  const int devices = machine_.cluster->devices();
  check(in_.space.ranks <= devices, "search", "{} ranks on a cluster of {} devices", in_.space.ranks, devices);
  const auto all = candidates(in_.space);
  result_.candidates = std::ssize(all);
  const auto fit = bounded(all);
  if (!fit.empty()) go_through(all, fit);
  if (result_.ranked.empty()) find_nearest(all);
  judge();
  return std::move(result_);
}

}  // namespace

double error_band(Source source) {
  constexpr double bands[] = {0.1, 0.2, 0.5};
  return bands[static_cast<int>(source)];
}

double error_band(Source source, double jitter, double heldout) {
  return std::max({error_band(source), std::exp(2 * jitter) - 1, heldout});
}

UsedLinks used_links(const Cluster& cluster, int ranks) {
  UsedLinks used;
  std::vector<char> taken;  // by node
  for (int r = 0; r < ranks && !(used.inside && used.between); ++r) {
    const auto node = static_cast<std::size_t>(cluster.node_of(r));
    taken.resize(std::max(taken.size(), node + 1));
    used.between = used.between || (r > 0 && !taken[node]);
    used.inside = used.inside || std::exchange(taken[node], 1);
  }
  return used;
}

Source weakest_source(const Cluster& cluster, int ranks, Source costs) {
  Source weakest = costs;
  int before = 0;
  for (const NodeGroup& g : cluster.nodes) {
    if ((cluster.cyclic || before < ranks) && g.speed != 1) weakest = std::max(weakest, g.source);
    before += g.count * g.devices;
  }
  const UsedLinks used = used_links(cluster, ranks);
  if (used.inside) weakest = std::max(weakest, cluster.inside.source);
  if (used.between) weakest = std::max(weakest, cluster.between.source);
  return weakest;
}

std::variant<RankedStrategy, std::string> evaluate(const SearchInput& in, const SearchCandidate& c) {
  return Search(in).evaluate(c);
}

SearchResult search(const SearchInput& in) {
  check(in.top >= 1 && in.work > 0 && in.memory >= 0, "search",
        "{} strategies to rank, {} actions of work, {} bytes of memory: the first two must be above 0, the last 0 or "
        "more",
        in.top, in.work, in.memory);
  check(static_cast<bool>(in.model), "search", "no model is given");
  return Search(in).run();
}

std::pair<std::string, Index> largest_use(const RankMemory& m) {
  const std::pair<std::string, Index> uses[] = {{"weights", m.weights},     {"gradients", m.gradients},
                                                {"optimizer", m.optimizer}, {"activations", m.activations},
                                                {"halos", m.halos},         {"packed", m.packed}};
  return *std::ranges::max_element(uses, {}, &std::pair<std::string, Index>::second);
}

}  // namespace trireme
