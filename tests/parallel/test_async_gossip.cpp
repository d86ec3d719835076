// Asynchronous gossip beside a serial loop that makes the same exchanges in the order in which they were recorded; its
// runs repeated, stopped and gone on with.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "framework/io/checkpoint.h"
#include "parallel/comm/virtual_clock.h"
#include "parallel/comm/world/compare.h"
#include "parallel/plan/peers.h"
#include "parallel/runtime/step_resume.h"
#include "tests/parallel/averaging.h"
#include "tests/support/temporary.h"

namespace test_async_gossip {

using namespace trireme;
using namespace trireme::test;

namespace {

struct Run {
  std::string graph = "ring";
  int ranks = 4, seed = 0;
  int begin = 0, end = 9, flush_behind = -1;  // steps
  std::uint64_t pace = 0;                     // by which ranks sleep; 0: they do not
  std::string replay = {}, resume = {}, save = {};
  bool virtual_time = false;
  std::string strategy() const { return fmt::format("gossip(mode=async, graph={}, seed={})", graph, seed); }
  Peer peer() const {
    return {.axis = "data",
            .pairs = graph == "ring" ? "bipartite_ring" : "bipartite",
            .seed = static_cast<std::uint64_t>(seed)};
  }
  AveragingCase rows() const { return {.strategy = strategy(), .axes = {{"data", ranks}}, .meet = {}}; }
};
struct Order {  // in which a rank has answered
  std::vector<double> senders, steps;
  bool operator==(const Order&) const = default;
};
struct Result {
  std::vector<Weights> weights;  // by rank
  std::vector<Order> orders;
  bool operator==(const Result&) const = default;
};

/// Weights of all ranks behind the last step, as rank 0 (under MPI: each) has them.
Result train(const Run& run) {
  return on_ranks(
      run.ranks,
      [&](World& world) {
        Mesh mesh(world, {{"data", run.ranks}});
        Step step(network(), cross_entropy, Sgd{.lr = 0.2, .momentum = 0.9}, mesh, parse_strategy(run.strategy()));
        if (!run.resume.empty()) step.load_checkpoint(run.resume);
        if (!run.replay.empty()) StepResume(step).replay(run.replay);
        for (int s = run.begin; s < run.end; ++s) {
          const Rows own = dealt(batch(run.rows(), s), world.rank(), world.rank() + 1, run.ranks, 1);
          if (run.pace > 0)
            std::this_thread::sleep_for(std::chrono::microseconds(mix(run.pace * 1000 + s * 16 + world.rank()) % 2000));
          (void)step(own.x, own.y).item();
          if (s == run.flush_behind) step.flush();
        }
        step.flush();
        const Weights own = step.parameters().values().to_vector();
        const CheckpointShard shard = step.checkpoint_shard();
        const auto column = [&](const char* name) {
          const auto at = shard.local.find(name);
          return at == shard.local.end() ? std::vector<double>{} : at->second.to_vector();
        };
        Order order{column("inbox.arrivals"), column("inbox.arrival_places")};
        order.steps.resize(order.senders.size());                // a checkpoint leaves out places that are all 0
        for (double& at : order.steps) at = std::floor(at / 2);  // a step has two places: forward and backward
        if (!run.save.empty())
          save_checkpoint(run.save, step.parameters(), step.optimizer(), {.step = run.end}, {.shard = shard});
        Result all;
        const auto gathered = [&](const std::vector<double>& mine) {
          const Index count = std::ssize(mine);
          const auto counts = gather_numbers(world.comm(), {&count, 1});
          Index total = 0;
          for (const Index n : counts) total += n;
          const Tensor out = Tensor::empty({total}, DType::f64);
          world.comm().all_gatherv(out, Tensor::of(mine, {count}, DType::f64), counts).wait();
          std::vector<std::vector<double>> parts;
          Index from = 0;
          for (const Index n : counts) {
            parts.push_back(out.rows(from, from + n).to_vector());
            from += n;
          }
          return parts;
        };
        all.weights = gathered(own);
        const auto senders = gathered(order.senders), steps = gathered(order.steps);
        for (int r = 0; r < run.ranks; ++r) all.orders.push_back({senders[r], steps[r]});
        return all;
      },
      run.virtual_time);
}

/// One worker of the serial loop.
struct Worker {
  explicit Worker() : step(network(), cross_entropy, Sgd{.lr = 0.2, .momentum = 0.9}, alone) {}
  Weights now() { return step.parameters().values().to_vector(); }
  void add(const Weights& part) {
    Weights w = now();
    for (std::size_t k = 0; k < w.size(); ++k) w[k] += part[k];
    step.parameters().values().rows(0, std::ssize(w)).copy_from(Tensor::of(w, {std::ssize(w)}, DType::f64));
  }
  World alone;
  Step step;
  int updates = 0;
  bool flushed = false;
  std::size_t answered = 0;           // of the recorded order
  std::vector<Weights> sent, answer;  // by step: of an active rank
  Weights due;                        // of a passive one
};

/// The same by definition: x += gradient step; an exchange of (a, b) moves a by (b - a) / 2 and b by (a - b) / 2.
std::vector<Weights> by_hand(const Run& run, const std::vector<Order>& orders) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (int r = 0; r < run.ranks; ++r) workers.push_back(std::make_unique<Worker>());
  const auto moved = [](const Weights& to, const Weights& from) {
    Weights part(to.size());
    for (std::size_t k = 0; k < to.size(); ++k) part[k] = (to[k] - from[k]) / 2;
    return part;
  };
  const auto update = [&](int r) {
    Worker& w = *workers[r];
    Rows own = dealt(batch(run.rows(), w.updates++), r, r + 1, run.ranks, 1);
    BatchContext context = *own.x.batch();
    context.share.reset();
    context.global_batch = own.x.dim(0);
    (void)w.step(own.x.with_batch(context), own.y).item();
  };
  const auto flushes = [&](int done) { return done == run.end || (done > 0 && done == run.flush_behind + 1); };
  const auto asked = [&](int rank, int steps) {  // how often, before that step
    std::size_t all = 0;
    for (int t = 0; t < steps; ++t) all += peers_at(run.peer(), rank, run.ranks, t).size();
    return all;
  };
  /// The next thing that a rank does: false where it waits for another's.
  const auto active = [&](Worker& w, int r) {
    if (w.answer.size() < w.sent.size()) return false;
    const auto take = [&] { w.add(moved(w.answer.back(), w.sent.back())); };
    if (flushes(w.updates) && !std::exchange(w.flushed, true)) {
      take();
      return true;
    }
    if (w.updates == run.end) return false;
    const bool open = w.updates > 0 && !std::exchange(w.flushed, false);
    update(r);
    if (open) take();
    w.sent.push_back(w.now());
    return true;
  };
  const auto passive = [&](Worker& w, int r) {
    const Order& order = orders[r];
    const auto add_due = [&] {
      w.add(w.due);
      w.due.assign(w.due.size(), 0);
    };
    if (flushes(w.updates) && !w.flushed && w.answered == asked(r, w.updates)) {
      add_due();
      return w.flushed = true;
    }
    const std::size_t at = w.answered;
    if (at < order.senders.size() && static_cast<int>(order.steps[at]) == w.updates) {
      const auto sender = static_cast<std::size_t>(order.senders[at]);
      check(sender < workers.size(), "test", "the order of rank {} names rank {}", r, order.senders[at]);
      Worker& other = *workers[sender];
      const auto step = static_cast<std::int64_t>(other.answer.size());
      const bool is_there = other.answer.size() < other.sent.size() &&
                            peers_at(run.peer(), static_cast<int>(sender), run.ranks, step)[0].to == r;
      if (!is_there) return false;
      Weights mine = w.now();
      for (std::size_t k = 0; k < mine.size(); ++k) mine[k] += w.due[k];
      const Weights part = moved(other.sent.back(), mine);
      for (std::size_t k = 0; k < mine.size(); ++k) w.due[k] += part[k];
      other.answer.push_back(mine);
      ++w.answered;
      return true;
    }
    if (w.updates == run.end || (flushes(w.updates) && !w.flushed)) return false;
    w.flushed = false;
    update(r);
    add_due();
    return true;
  };
  for (auto& w : workers) w->due.assign(w->now().size(), 0);
  for (bool any = true; any;) {
    any = false;
    for (int r = 0; r < run.ranks; ++r) any = (r % 2 == 0 ? active(*workers[r], r) : passive(*workers[r], r)) || any;
  }
  std::vector<Weights> all;
  for (int r = 0; r < run.ranks; ++r) {
    Worker& w = *workers[r];
    check(w.flushed && w.answered == orders[r].senders.size(), "test", "rank {} came to step {} and {} answers of {}",
          r, w.updates, w.answered, orders[r].senders.size());
    all.push_back(w.now());
  }
  return all;
}

double difference(const std::vector<Weights>& a, const std::vector<Weights>& b) {
  double worst = 0;
  for (std::size_t r = 0; r < a.size(); ++r)
    for (std::size_t k = 0; k < a[r].size(); ++k) worst = std::max(worst, std::abs(a[r][k] - b[r][k]));
  return worst;
}

std::string newest(const std::string& run) { return find_latest(run)->path; }

}  // namespace

TEST_CASE("asynchronous gossip equals a serial loop that makes the same exchanges in the recorded order") {
  std::size_t messages = 0, in_midst = 0;
  for (const int ranks : rank_counts({2, 3, 4, 5, 8}))
    for (const std::string graph : {"ring", "random"})
      for (const bool virtual_time : {false, true})
        for (const int seed : {0, 1, 2}) {
          if ((graph == "ring" && ranks % 2 == 1) || (virtual_time && under_mpi())) continue;
          const Run run{.graph = graph,
                        .ranks = ranks,
                        .seed = seed,
                        .flush_behind = seed == 1 ? 3 : -1,
                        .pace = virtual_time ? 0u : static_cast<std::uint64_t>(seed),
                        .virtual_time = virtual_time};
          CAPTURE(ranks, graph, virtual_time, seed);
          const Result got = train(run);
          CHECK(difference(got.weights, by_hand(run, got.orders)) < 1e-12);
          for (const Order& order : got.orders) messages += order.senders.size();
          for (const Order& order : got.orders)
            for (const double at : order.steps) in_midst += at > 0 && at < run.end;
          if (virtual_time) CHECK(train(run) == got);
        }
  CHECK(messages > 0);
  CHECK(in_midst > messages / 5);
}

TEST_CASE("the mean of all weights is what updates alone make of it") {
  if (threads_only()) return;
  for (const int ranks : {2, 5, 6}) {
    const auto sums = on_ranks(ranks, [&](World& world) {
      Step step(
          network(), [](const Tensor& x, const Tensor& y) { return scale(cross_entropy(x, y), 0); }, Sgd{.lr = 1},
          world, parse_strategy("gossip(mode=async, graph=random)"));
      const Tensor w = step.parameters().values().rows(0, step.parameters().size());
      w.copy_from(add(w, Tensor::full(w.shape(), world.rank() * 0.37, DType::f64)));
      const auto sum = [&] {
        const Tensor all = w.clone();
        world.comm().all_reduce(all).wait();
        return all.to_vector();
      };
      const auto before = sum();
      const double own = w.to_vector()[0];
      for (int s = 0; s < 12; ++s) {
        const Rows rows = batch({.strategy = "", .axes = {{"data", ranks}}, .meet = {}}, s);
        const Rows mine = dealt(rows, world.rank(), world.rank() + 1, ranks, 1);
        (void)step(mine.x, mine.y).item();
      }
      step.flush();
      return std::vector{before, sum(), {own, w.to_vector()[0]}};
    });
    for (std::size_t k = 0; k < sums[0].size(); ++k) CHECK(std::abs(sums[0][k] - sums[1][k]) < 1e-12);
    CHECK(sums[2][0] != sums[2][1]);
  }
}

TEST_CASE("asynchronous gossip is repeated bit for bit by the order of its answers, on threads and in virtual time") {
  if (threads_only()) return;
  int differing = 0;
  for (const std::string graph : {"ring", "random"})
    for (const int ranks : {4, 6}) {
      CAPTURE(graph, ranks);
      const Temporary first, second;
      Run run{.graph = graph, .ranks = ranks, .pace = 1, .save = first.path()};
      const Result recorded = train(run);
      run.replay = newest(first.path());
      run.save = second.path();
      run.pace = 2;
      CHECK(train(run) == recorded);
      run.replay = newest(second.path());
      run.save = "";
      run.virtual_time = true;
      CHECK(train(run) == recorded);
      run.replay = "";
      run.virtual_time = false;
      differing += train(run) != recorded;
    }
  CHECK(differing > 0);
}

TEST_CASE("asynchronous gossip goes on where a checkpoint has stopped it") {
  if (threads_only()) return;
  for (const bool virtual_time : {true, false}) {
    const Temporary half;
    Run run{.ranks = 4, .seed = 5, .flush_behind = 4, .virtual_time = virtual_time};
    const Temporary whole;
    run.save = whole.path();
    const Result straight = train(run);
    run.flush_behind = -1;
    run.end = 5;
    run.save = half.path();
    run.replay = newest(whole.path());
    train(run);
    run.begin = 5;
    run.end = 9;
    run.save = "";
    run.resume = newest(half.path());
    if (!virtual_time) {
      CHECK(train(run) == straight);  // in the recorded order
      continue;
    }
    CHECK(train(run) == straight);
  }
}

TEST_CASE("a slow worker holds up nobody but by an answer") {
  if (threads_only()) return;
  const auto seconds = [&](const std::string& strategy, int slow) {
    Cluster cluster{.nodes = {{.count = 1, .devices = slow},
                              {.count = 1, .devices = 1, .speed = 0.25},
                              {.count = 1, .devices = 6 - slow - 1}},
                    .inside = {.latency = 1e-7, .bandwidth = 1e10},
                    .between = {.latency = 1e-7, .bandwidth = 1e10}};
    std::vector<double> all(6);
    World::virtual_time(6, cluster, [&](World& world) {
      Module model = Sequential{Linear(64, 128), relu, Linear(128, 10)};
      initialize(model, 1);
      Step step(model, cross_entropy, Sgd{.lr = 0.01}, world, parse_strategy(strategy),
                {.profile = {.example = Tensor::zeros({16, 64}, DType::f32)}});
      const auto begin = world.clock()->now();
      for (int s = 0; s < 20; ++s) {
        BatchContext context;
        context.share = RankShare(world.rank(), 6, 1);
        context.global_batch = 96;
        context.samples = Tensor::zeros({16}, DType::i64);
        (void)step(Tensor::zeros({16, 64}, DType::f32).with_batch(context), Tensor::zeros({16}, DType::i64)).item();
      }
      all[world.rank()] = static_cast<double>(world.clock()->now() - begin);
    });
    return all;
  };
  for (const int slow : {1, 2}) {  // a passive rank, an active one
    const auto sync = seconds("gossip", slow), async = seconds("gossip(mode=async, graph=random)", slow);
    CAPTURE(slow, sync, async);
    for (int r = 0; r < 6; ++r)
      if (r != slow && (slow == 2 || r % 2 == 1)) CHECK(async[r] < 0.35 * sync[r]);  // as fast as it can be: 0.25
  }
}

}  // namespace test_async_gossip
