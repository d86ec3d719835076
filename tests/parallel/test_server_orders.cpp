// Asynchronous, stale and backed-up servers against a serial loop that applies the same gradients in the order in which
// they came. Only that order, and which weights each gradient was made with, is read from the run.
#include <bit>
#include <map>
#include <tuple>

#include "framework/autograd/tape.h"
#include "parallel/async/channel_plan.h"
#include "parallel/comm/virtual_clock.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_kind.h"
#include "parallel/runtime/step.h"
#include "tests/parallel/training.h"

namespace test_server_orders {

using namespace trireme;
using namespace trireme::test;

namespace {

using Numbers = std::vector<double>;
constexpr int steps = 12;
/// Learning rate, by the steps that all workers have done.
double rate_at(std::int64_t step) { return 0.1 / (1 + 0.2 * static_cast<double>(step)); }

/// What ranks have noted, each in its place.
struct Record {
  struct Computed {  // a step of a worker
    Numbers weights, gradient;
    bool operator==(const Computed&) const = default;
  };
  struct Updated {  // an update of a server: what it took, and the weights behind it
    Numbers taken, weights;
    bool operator==(const Updated&) const = default;
  };
  std::vector<std::map<std::int64_t, Computed>> workers;
  std::vector<std::vector<Updated>> servers;
  std::vector<Slice> shares;  // of servers
  std::vector<Nanoseconds> ends;
  Numbers start;
  bool operator==(const Record&) const = default;
};
Record* recording = nullptr;
thread_local int place = 0;  // of this rank among the workers or the servers

const ActionRow note_weights{.name = "note_weights", .start = [](ActionContext& now) {
                               recording->workers[place][now.step].weights = now.values().to_vector();
                               return Work();
                             }};
const ActionRow note_gradient{.name = "note_gradient", .start = [](ActionContext& now) {
                                recording->workers[place][now.step].gradient = now.gradients().to_vector();
                                return Work();
                              }};
const ActionRow note_taken{.name = "note_taken", .start = [](ActionContext& now) {
                             recording->servers[place].push_back({now.gradients().to_vector(), {}});
                             return Work();
                           }};
const ActionRow note_update{.name = "note_update", .start = [](ActionContext& now) {
                              recording->servers[place].back().weights = now.values().to_vector();
                              return Work();
                            }};

/// Ranks note what the serial loop wants to know.
Strategy noted(const ParameterServerOptions& o) {
  return parameter_server(o) | Strategy("noted", Claim::delayed, [](Plan plan) {
           for (Program& p : plan.programs) {
             const auto first = [&](ActionKind kind) {
               return static_cast<ActionId>(std::ranges::find(p.actions, kind, &Action::kind) - p.actions.begin());
             };
             if (p.serves()) {
               const ActionId update = first(ActionKind::update);
               const Slice slice = p.actions[update].slice;
               insert(p, update + 1, {.kind = note_update, .slice = slice});
               insert(p, update, {.kind = note_taken, .slice = slice});
             } else {
               insert(p, first(ActionKind::send), {.kind = note_gradient, .slice = {0, plan.parameters}});
               insert(p, 0, {.kind = note_weights, .slice = {0, plan.parameters}});
             }
           }
           return plan;
         });
}

Module network() {
  Module model = Sequential{Linear(6, 5), relu, Linear(5, 3)};
  convert(model, DType::f64);
  return model;
}
/// Workers have different numbers of rows.
std::pair<Tensor, Tensor> rows_of(int worker, std::int64_t step) {
  const Index rows = 2 + worker % 3;
  Tensor x = Tensor::zeros({rows, 6}, DType::f64), y = Tensor::zeros({rows}, DType::i64);
  for (Index k = 0; k < x.numel(); ++k) x.data<double>()[k] = std::sin(double(step) + 3.0 * worker + 0.7 * double(k));
  for (Index k = 0; k < rows; ++k) y.data<std::int64_t>()[k] = (worker + step + k) % 3;
  return {x, y};
}

Cluster machines(std::vector<double> speeds, double jitter = 0, std::uint64_t seed = 0) {
  Cluster c{.nodes = {}, .inside = {2e-6, 1e9}, .between = {2e-6, 1e9}, .jitter = jitter, .seed = seed, .flops = 1e7};
  for (double speed : speeds) c.nodes.push_back({.speed = speed});
  return c;
}
Cluster random_machines(int ranks, std::uint64_t seed) {
  std::vector<double> speeds;
  for (int r = 0; r < ranks; ++r) speeds.push_back(0.1 + double(mix(seed * 100 + r) % 1000) / 1000);
  return machines(speeds, seed % 2 == 0 ? 0.5 : 0, seed);
}

Record run(const ParameterServerOptions& o, int workers, const Cluster& cluster) {
  Record record;
  record.workers.resize(workers);
  record.servers.resize(o.servers);
  record.ends.resize(workers + o.servers);
  recording = &record;
  World::virtual_time(workers + o.servers, cluster, [&](World& world) {
    place = world.rank() < workers ? world.rank() : world.rank() - workers;
    Module model = network();
    initialize(model, 1);
    Mesh mesh(world, {{"data", world.size()}});
    Step step(model, cross_entropy, Sgd{.lr = Schedule(rate_at)}, mesh, noted(o),
              {.profile = {.example = Tensor::zeros({3, 6}, DType::f64)}});
    if (world.rank() == 0) {
      record.start = step.parameters().values().to_vector();
      for (std::size_t p = 1; p < step.plan().programs.size(); ++p)
        record.shares.push_back(step.plan().updated(p).front());
    }
    for (int i = 0; i < steps; ++i) {
      const auto [x, y] = rows_of(place, i);
      (void)step(x, y);
    }
    record.ends[world.rank()] = world.clock()->now();
  });
  return record;
}

Numbers part(const Numbers& all, const Slice& s) { return {all.begin() + s.begin, all.begin() + s.end}; }

/// The papers' servers, one update after the other, with gradients of its own making.
class SerialLoop {
 public:
  SerialLoop(const Record& record, const ParameterServerOptions& o)
      : record_(record), o_(o), workers_(static_cast<int>(record.workers.size())), versions_(record.servers.size()) {
    initialize(model_, 1);
    for (std::size_t s = 0; s < versions_.size(); ++s) versions_[s] = {part(record.start, record.shares[s])};
    applied_.assign(versions_.size(), {std::vector<int>(workers_)});
    for (int w = 0; w < workers_; ++w)
      for (const auto& [step, computed] : record.workers[w])
        for (std::size_t s = 0; s < versions_.size(); ++s)
          used_[{w, step}].push_back(version_of(s, part(computed.weights, record.shares[s])));
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < versions_.size(); ++s)
        while (versions_[s].size() <= record_.servers[s].size() && update(s)) moved = true;
    }
    for (std::size_t s = 0; s < versions_.size(); ++s) REQUIRE(versions_[s].size() == record_.servers[s].size() + 1);
    CHECK(farthest < 1e-12);
  }

  double farthest = 0;  // weights of the run from those of the loop

  std::size_t used(int worker, std::int64_t step, std::size_t server) const { return used_.at({worker, step})[server]; }
  /// How many of a worker's gradients are in a version of a server's weights.
  int applied(std::size_t server, std::size_t version, int worker) const { return applied_[server][version][worker]; }
  /// The worker's step and the version that it made, by server, in order.
  struct Use {
    int worker;
    std::int64_t step;
    std::size_t version;
  };
  std::vector<Use> uses(std::size_t server) const {
    std::vector<Use> all;
    for (const auto& [key, version] : made_)
      if (std::get<0>(key) == server) all.push_back({std::get<1>(key), std::get<2>(key), version});
    return all;
  }

 private:
  std::size_t version_of(std::size_t s, const Numbers& weights) const {
    if (weights == part(record_.start, record_.shares[s])) return 0;
    for (std::size_t v = 0; v < record_.servers[s].size(); ++v)
      if (record_.servers[s][v].weights == weights) return v + 1;
    FAIL("a worker has weights that no server ever had");
    return 0;
  }
  /// The step of which a worker's gradient may be in the server's next update; -1: none.
  std::int64_t next_step(std::size_t s, int worker) const {
    const auto& computed = record_.workers[worker];
    const auto at = o_.mode == "sync" ? static_cast<std::int64_t>(versions_[s].size()) - 1
                                      : std::int64_t{applied_[s].back()[worker]};
    return computed.contains(at) ? at : -1;
  }
  double scale() const { return 1.0 / (o_.mode == "sync" ? workers_ - o_.backup : workers_); }
  int together() const { return o_.mode == "sync" ? workers_ - o_.backup : 1; }

  /// The next update, if the weights that its gradients were made with are there: of every server.
  bool update(std::size_t s) {
    const std::size_t number = versions_[s].size() - 1;
    const Slice& share = record_.shares[s];
    for (unsigned set = 1; set < 1u << workers_; ++set) {
      if (std::popcount(set) != together()) continue;
      Numbers sum;
      for (int w = 0; w < workers_ && (set >> w) > 0; ++w) {
        if ((set >> w) % 2 == 0) continue;
        const std::int64_t step = next_step(s, w);
        if (step < 0) {
          sum.clear();
          break;
        }
        const Numbers g = part(record_.workers[w].at(step).gradient, share);
        sum.resize(g.size(), -0.0);
        for (std::size_t i = 0; i < g.size(); ++i) sum[i] += g[i];
      }
      for (double& v : sum) v *= scale();
      if (sum != record_.servers[s][number].taken) continue;
      return apply(s, set);
    }
    FAIL("server " << s << " has used what no workers' gradients add up to");
    return false;
  }

  bool apply(std::size_t s, unsigned set) {
    const Slice& share = record_.shares[s];
    Numbers next = versions_[s].back();
    const auto number = static_cast<std::int64_t>(versions_[s].size()) - 1;
    const double lr = rate_at(o_.mode == "sync" ? number : number / workers_);
    std::vector<int> counts = applied_[s].back();
    for (int w = 0; w < workers_; ++w) {
      if ((set >> w) % 2 == 0) continue;
      const std::int64_t step = next_step(s, w);
      const Numbers* all = gradient(w, step);
      if (all == nullptr) return false;
      for (std::size_t i = 0; i < next.size(); ++i) next[i] -= lr * scale() * (*all)[share.begin + i];
      ++counts[w];
    }
    for (int w = 0; w < workers_; ++w)
      if ((set >> w) % 2 == 1) made_[{s, w, next_step(s, w)}] = versions_[s].size();
    const Numbers& run = record_.servers[s][versions_[s].size() - 1].weights;
    for (std::size_t i = 0; i < next.size(); ++i) farthest = std::max(farthest, std::abs(next[i] - run[i]));
    versions_[s].push_back(next);
    applied_[s].push_back(counts);
    return true;
  }

  /// Null: of weights that the loop has not come to.
  const Numbers* gradient(int worker, std::int64_t step) {
    const auto at = gradients_.find({worker, step});
    if (at != gradients_.end()) return &at->second;
    Numbers weights(record_.start.size());
    for (std::size_t s = 0; s < versions_.size(); ++s) {
      const std::size_t version = used(worker, step, s);
      if (version >= versions_[s].size()) return nullptr;
      std::ranges::copy(versions_[s][version], weights.begin() + record_.shares[s].begin);
    }
    {
      const NoGrad off;
      const Index n = std::ssize(weights);
      parameters_.values().rows(0, n).copy_from(Tensor::of(weights, {n}, DType::f64));
    }
    parameters_.clear_grads();
    const auto [x, y] = rows_of(worker, step);
    cross_entropy(model_(x), y).backward();
    return &(gradients_[{worker, step}] = parameters_.grads().to_vector());
  }

  const Record& record_;
  const ParameterServerOptions& o_;
  const int workers_;
  std::vector<std::vector<Numbers>> versions_;                             // by server
  std::vector<std::vector<std::vector<int>>> applied_;                     // by server, version and worker
  std::map<std::pair<int, std::int64_t>, std::vector<std::size_t>> used_;  // versions, by worker and step
  std::map<std::tuple<std::size_t, int, std::int64_t>, std::size_t> made_;
  std::map<std::pair<int, std::int64_t>, Numbers> gradients_;
  Module model_ = network();
  Parameters parameters_{model_};
};

}  // namespace

TEST_CASE("an asynchronous run is a serial loop that applies the same gradients in the order of their arrival") {
  if (threads_only()) return;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const int workers = 1 + static_cast<int>(mix(seed) % 6);
    const ParameterServerOptions o{.servers = 1 + static_cast<int>(seed % 3), .mode = "async"};
    CAPTURE(seed, workers, o.servers);
    const Cluster cluster = random_machines(workers + o.servers, seed);
    const Record record = run(o, workers, cluster);
    SerialLoop loop(record, o);
    loop.run();
    for (std::size_t s = 0; s < record.servers.size(); ++s) {
      CHECK(std::ssize(record.servers[s]) == workers * steps);  // each gradient once
      for (const auto& [worker, step, version] : loop.uses(s))  // who sent it goes on with the weights behind it
        if (step + 1 < steps) CHECK(loop.used(worker, step + 1, s) == version);
    }
    CHECK(run(o, workers, cluster) == record);
  }
}

TEST_CASE("a stale synchronous run is such a loop, and no worker is ever further ahead than its bound") {
  if (threads_only()) return;
  for (const std::int64_t staleness : {0, 1, 3}) {
    std::int64_t most = 0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const int workers = 2 + static_cast<int>(mix(seed) % 4);
      const ParameterServerOptions o{
          .servers = 1 + static_cast<int>(seed % 2), .mode = "ssp", .staleness = staleness, .shard = "layer"};
      CAPTURE(seed, workers, staleness);
      const Cluster cluster = random_machines(workers + o.servers, seed);
      const Record record = run(o, workers, cluster);
      SerialLoop loop(record, o);
      loop.run();
      bool own = true;
      for (int w = 0; w < workers; ++w)
        for (int step = 0; step < steps; ++step)
          for (std::size_t s = 0; s < record.servers.size(); ++s)
            for (int other = 0; other < workers; ++other) {
              const int seen = loop.applied(s, loop.used(w, step, s), other);
              if (other == w) own = own && seen == step;  // its own updates are all in its weights
              most = std::max<std::int64_t>(most, step - seen);
            }
      CHECK(own);
      CHECK(run(o, workers, cluster) == record);
    }
    CHECK(most == staleness);
  }
}

TEST_CASE("with backup workers each step is one update by the first gradients, and late ones are dropped") {
  if (threads_only()) return;
  int late = 0, left_out = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    const int workers = 2 + static_cast<int>(mix(seed) % 5);
    const ParameterServerOptions o{.servers = 1 + static_cast<int>(seed % 2),
                                   .backup = 1 + static_cast<int>(mix(seed + 50) % (workers - 1))};
    CAPTURE(seed, workers, o.servers, o.backup);
    const Cluster cluster = random_machines(workers + o.servers, seed);
    const Record record = run(o, workers, cluster);
    SerialLoop loop(record, o);
    loop.run();
    for (std::size_t s = 0; s < record.servers.size(); ++s) {
      CHECK(std::ssize(record.servers[s]) == steps);
      const auto uses = loop.uses(s);
      CHECK(std::ssize(uses) == steps * (workers - o.backup));
      bool newest = true;
      for (const auto& [worker, step, version] : uses)
        newest = newest && loop.used(worker, step, s) + 1 == version && version == static_cast<std::size_t>(step) + 1;
      CHECK(newest);  // no gradient of old weights is used
      for (const auto& worker : record.workers) late += static_cast<int>(worker.size());
      late -= static_cast<int>(uses.size());
    }
    for (const auto& worker : record.workers) left_out += steps - static_cast<int>(worker.size());
    CHECK(run(o, workers, cluster) == record);
  }
  CHECK(late > 50);
  CHECK(left_out > 50);
}

TEST_CASE("workers are as fast as they are under async, and nobody waits for a slow one with a backup") {
  if (threads_only()) return;
  const auto ends = [](const ParameterServerOptions& o, double slow) {
    return run(o, 4, machines({1, 1, 1, slow, 1})).ends;
  };
  const auto sync = ends({}, 0.1), async = ends({.mode = "async"}, 0.1), backed = ends({.backup = 1}, 0.1),
             equal = ends({}, 1);
  CHECK(sync[0] > 0.9 * sync[3]);
  CHECK(async[0] < 0.2 * async[3]);
  CHECK(async[0] < 0.2 * sync[0]);
  for (int worker = 0; worker < 3; ++worker) CHECK(backed[worker] < 1.1 * equal[worker]);
  CHECK(backed[3] < 0.3 * sync[3]);
  const auto ahead = ends({.mode = "ssp", .staleness = 2}, 0.1);
  CHECK(ahead[0] > async[0]);
  CHECK(ahead[0] < sync[0]);
}

}  // namespace test_server_orders
