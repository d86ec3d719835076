// Strategies whose workers train apart and meet: each beside serial runs of its workers whose weights this test mixes
// as the papers say.
#include <cmath>
#include <random>
#include <set>

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "parallel/plan/peers.h"
#include "parallel/runtime/step.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/averaging.h"
#include "tests/support/ranks.h"

namespace test_averaging {

using namespace trireme;
using namespace trireme::test;

namespace {

using Matrix = std::vector<std::vector<double>>;

/// The weights of every rank behind each step, by its share of the batches.
std::vector<std::vector<Weights>> trained(const AveragingCase& c, bool virtual_time = false) {
  std::vector<std::vector<Weights>> all(ranks_of(c.axes));
  const auto body = [&](World& world) {
    Mesh mesh(world, c.axes);
    Step step(network(), cross_entropy, Sgd{.lr = 0.2, .momentum = c.momentum}, mesh, parse_strategy(c.strategy),
              {.epoch_steps = c.epoch_steps});
    for (int s = 0; s < c.steps; ++s) {
      const Rows rows = batch(c, s);
      const RankShare mine = step.shard();
      const Rows own = dealt(rows, mine.rank, mine.rank + 1, mine.size, c.micro);
      (void)step(own.x, own.y).item();
      all[mine.rank].push_back(step.parameters().values().to_vector());
      const StepTraffic traffic = StepProbe(step).traffic();
      check(traffic.planned == traffic.counted, "test", "step {}: bytes planned and counted differ", s);
    }
  };
  if (virtual_time)
    World::virtual_time(ranks_of(c.axes), two_nodes(ranks_of(c.axes)), body);
  else
    World::threads(ranks_of(c.axes), body);
  return all;
}

/// The workers, each by itself, and what their meetings make of them: weights by step and worker.
std::vector<std::vector<Weights>> expected(const AveragingCase& c) {
  World alone;
  std::vector<std::unique_ptr<Step>> workers;
  const Strategy strategy = c.micro > 1 ? accumulate(c.micro) : Strategy();
  for (int w = 0; w < c.workers; ++w)
    workers.push_back(
        std::make_unique<Step>(network(), cross_entropy, Sgd{.lr = 0.2, .momentum = c.momentum}, alone, strategy));
  Step together(network(), cross_entropy, Sgd{.lr = 0.2, .momentum = c.momentum}, alone, strategy);
  std::vector<std::vector<Weights>> all;
  const int ranks = c.strategy.find("pipeline") != c.strategy.npos ? c.workers : ranks_of(c.axes);
  const int each = ranks / c.workers;
  for (int s = 0; s < c.steps; ++s) {
    const Rows rows = batch(c, s);
    std::vector<Weights> weights;
    std::vector<double> counts;
    for (int w = 0; w < c.workers; ++w) {
      Rows own = dealt(rows, w * each, (w + 1) * each, ranks, c.micro);
      BatchContext context = *own.x.batch();
      context.share.reset();
      context.global_batch = own.x.dim(0);
      counts.push_back(static_cast<double>(own.x.dim(0)));
      if (own.x.dim(0) > 0) (void)(*workers[w])(own.x.with_batch(context), own.y).item();
      weights.push_back(workers[w]->parameters().values().to_vector());
    }
    c.meet(s, counts, weights);
    for (int w = 0; w < c.workers; ++w)
      workers[w]
          ->parameters()
          .values()
          .rows(0, std::ssize(weights[w]))
          .copy_from(Tensor::of(weights[w], {std::ssize(weights[w])}, DType::f64));
    all.push_back(std::move(weights));
  }
  return all;
}

void mix(const Matrix& by, std::vector<Weights>& w) {
  const std::vector<Weights> before = w;
  for (std::size_t i = 0; i < w.size(); ++i)
    for (std::size_t k = 0; k < w[i].size(); ++k) {
      w[i][k] = 0;
      for (std::size_t j = 0; j < w.size(); ++j) w[i][k] += by[i][j] * before[j][k];
    }
}
/// Every worker gets the mean of those of its block of neighbours, by rows.
Matrix means(const std::vector<double>& rows, const std::vector<std::vector<int>>& groups) {
  Matrix m(rows.size(), std::vector<double>(rows.size(), 0));
  for (const auto& group : groups) {
    double all = 0;
    for (int j : group) all += rows[j];
    for (int i : group)
      for (int j : group) m[i][j] = all > 0 ? rows[j] / all : i == j;
  }
  return m;
}
std::vector<std::vector<int>> one_group(int workers) {
  std::vector<int> all(workers);
  for (int i = 0; i < workers; ++i) all[i] = i;
  return {all};
}
void mean_of_all(const std::vector<double>& rows, std::vector<Weights>& w) {
  mix(means(rows, one_group(static_cast<int>(w.size()))), w);
}
/// Each edge of the graph, once or twice, and what remains of 1 on the diagonal.
Matrix graph(const std::string& name, int n, int step) {
  std::set<std::pair<int, int>> edges;  // i takes from j
  const auto both = [&](int i, int j) {
    if (i != j) {
      edges.insert({i, j});
      edges.insert({j, i});
    }
  };
  if (name == "ring")
    for (int i = 0; i < n; ++i) both(i, (i + 1) % n);
  int rows = 1;
  for (int r = 1; r * r <= n; ++r)
    if (n % r == 0) rows = r;
  if (name == "torus")
    for (int i = 0; i < n; ++i) {
      const int columns = n / rows, r = i / columns, c = i % columns;
      both(i, r * columns + (c + 1) % columns);
      both(i, (r + 1) % rows * columns + c);
    }
  if (name == "exponential") {
    int rounds = 0;
    while ((1 << rounds) < n) ++rounds;
    for (int i = 0; i < n; ++i) edges.insert({(i + (1 << step % rounds)) % n, i});
  }
  Matrix m(n, std::vector<double>(n, 0));
  if (name == "star") {
    for (int i = 1; i < n; ++i) {
      m[i][0] = m[0][i] = 1.0 / n;
      m[i][i] = 1 - 1.0 / n;
    }
    m[0][0] = 1.0 / n;
    return m;
  }
  const double part = 1.0 / (1.0 + static_cast<double>(edges.size()) / n);
  for (int i = 0; i < n; ++i) m[i][i] = part;
  for (auto [i, j] : edges) m[i][j] = part;
  return m;
}

void compare(const AveragingCase& c) {
  INFO(c.strategy << " on " << to_string(c.axes));
  const auto want = expected(c);
  const auto got = trained(c);
  const int each = ranks_of(c.axes) / c.workers;
  double worst = 0;
  for (int s = 0; s < c.steps; ++s)
    for (int r = 0; r < ranks_of(c.axes); ++r)
      for (std::size_t k = 0; k < want[s][0].size(); ++k)
        worst = std::max(worst, std::abs(got[r][s][k] - want[s][r / each][k]));
  CHECK(worst < 1e-12);
  CHECK(trained(c, true) == got);  // in virtual time, bit for bit
}

}  // namespace

TEST_CASE("workers that average their weights now and then are serial runs whose weights become their mean") {
  if (threads_only()) return;
  for (int workers : {2, 3, 5})
    for (int every : {1, 2, 4})
      for (Index least : {0, 1, 3})
        compare({.strategy = "local_sgd(every=" + std::to_string(every) + ")",
                 .axes = {{"data", workers}},
                 .workers = workers,
                 .momentum = least > 0 ? 0.9 : 0,
                 .least = least,
                 .meet = [every](int s, const auto& rows, auto& w) {
                   if (s % every == every - 1) mean_of_all(rows, w);
                 }});
}

TEST_CASE("the outer step moves by what the workers have moved by, with momentum") {
  if (threads_only()) return;
  for (double lr : {0.5, 1.0})
    for (double momentum : {0.0, 0.6}) {
      auto o = std::make_shared<Weights>(), v = std::make_shared<Weights>();
      compare({.strategy = fmt::format("local_sgd(every=3, outer_lr={}, outer_momentum={})", lr, momentum),
               .meet = [=](int s, const auto& rows, auto& w) {
                 if (s == 0) {
                   World alone;
                   *o = Step(network(), cross_entropy, Sgd{}, alone).parameters().values().to_vector();
                   v->assign(o->size(), 0);
                 }
                 if (s % 3 != 2) return;
                 mean_of_all(rows, w);
                 for (std::size_t k = 0; k < o->size(); ++k) {
                   (*v)[k] = momentum * (*v)[k] + ((*o)[k] - w[0][k]);
                   (*o)[k] -= lr * (*v)[k];
                   for (Weights& worker : w) worker[k] = (*o)[k];
                 }
               }});
    }
}

TEST_CASE("two periods on two axes: neighbours average often, all of them seldom") {
  if (threads_only()) return;
  compare({.strategy = "local_sgd(every=2, axis=data) | local_sgd(every=4, axis=node)",
           .axes = {{"data", 2}, {"node", 2}},
           .workers = 4,
           .meet = [](int s, const auto& rows, auto& w) {
             if (s % 2 == 1) mix(means(rows, {{0, 1}, {2, 3}}), w);
             if (s % 4 == 3) mix(means(rows, {{0, 2}, {1, 3}}), w);
           }});
}

TEST_CASE("a worker may be many ranks: those along the other axes") {
  if (threads_only()) return;
  const auto meet = [](int s, const auto& rows, auto& w) {
    if (s % 2 == 1) mean_of_all(rows, w);
  };
  const std::vector<Axis> both{{"node", 2}, {"data", 2}};
  for (const char* within : {"data_parallel", "zero(1)", "data_parallel | zero(2)", "central_storage"})
    compare({.strategy = std::string(within) + " | local_sgd(every=2, axis=node)",
             .axes = both,
             .workers = 2,
             .meet = meet});
  compare({.strategy = "accumulate(micro=2) | local_sgd(every=2)", .workers = 3, .micro = 2, .meet = meet});
}

TEST_CASE("elastic averaging draws weights to a center, and the center to them") {
  if (threads_only()) return;
  for (double rho : {0.0, 0.5})
    for (int every : {1, 3}) {
      auto center = std::make_shared<Weights>();
      compare(
          {.strategy = fmt::format("easgd(every={}, rho={})", every, rho), .meet = [=](int s, const auto&, auto& w) {
             World alone;
             if (s == 0) *center = Step(network(), cross_entropy, Sgd{}, alone).parameters().values().to_vector();
             if (s % every != every - 1) return;
             const double a = rho > 0 ? rho * 0.2 : 0.9 / static_cast<double>(w.size());
             for (std::size_t k = 0; k < center->size(); ++k) {
               double moved = 0;
               for (Weights& worker : w) {
                 const double pull = a * (worker[k] - (*center)[k]);
                 worker[k] -= pull;
                 moved += pull;
               }
               (*center)[k] += moved;
             }
           }});
    }
}

TEST_CASE("gossip mixes weights by the matrix of its graph, which is doubly stochastic") {
  if (threads_only()) return;
  for (const std::string name : {"ring", "torus", "exponential", "star"})
    for (int workers : {2, 3, 4, 6, 9}) {
      for (int step : {0, 1, 2, 5})
        for (int i = 0; i < workers; ++i) {
          double row = 0, column = 0;
          const Matrix m = graph(name, workers, step);
          for (int j = 0; j < workers; ++j) {
            row += m[i][j];
            column += m[j][i];
          }
          CHECK((std::abs(row - 1) < 1e-12 && std::abs(column - 1) < 1e-12));
        }
      compare({.strategy = "gossip(graph=" + name + ")",
               .axes = {{"data", workers}},
               .workers = workers,
               .steps = 5,
               .meet = [=](int s, const auto&, auto& w) { mix(graph(name, workers, s), w); }});
    }
  compare({.strategy = "gossip(graph=complete)", .meet = [](int, const auto& rows, auto& w) { mean_of_all(rows, w); }});
  compare({.strategy = "gossip(graph=ring, global_every=3)",
           .axes = {{"data", 4}},
           .workers = 4,
           .meet = [](int s, const auto& rows, auto& w) {
             mix(graph("ring", 4, s), w);
             if (s % 3 == 2) mean_of_all(rows, w);
           }});
  compare({.strategy = "gossip(graph=random, seed=4)",
           .axes = {{"data", 6}},
           .workers = 6,
           .meet = [](int s, const auto&, auto& w) {
             Matrix m(6, std::vector<double>(6, 0));
             for (int i = 0; i < 6; ++i)
               for (const RankPair& pair : peers_at({.axis = "data", .pairs = "matching", .seed = 4}, i, 6, s))
                 m[i][i] = m[i][pair.from] = 0.5;
             mix(m, w);
           }});
}

TEST_CASE("stochastic gradient push: x and w are pushed along directed edges, and gradients are those at x / w") {
  if (threads_only()) return;
  // Whom a rank sends to, from the paper's descriptions; of "random" from the seed, as no paper says how to draw.
  const auto receivers = [](const std::string& graph, int i, int n, int step) {
    std::vector<int> to;
    const auto add = [&](int j) {
      if (j != i && std::ranges::find(to, j) == to.end()) to.push_back(j);
    };
    int rounds = 0, rows = 1;
    while ((1 << rounds) < n) ++rounds;
    for (int r = 1; r * r <= n; ++r)
      if (n % r == 0) rows = r;
    const int columns = n / rows, row = i / columns, column = i % columns;
    if (graph == "ring") add((i + 1) % n);
    if (graph == "exponential") add((i + (1 << step % rounds)) % n);
    if (graph == "torus")
      for (int by : {1, -1}) {
        add(row * columns + (column + by + columns) % columns);
        add((row + by + rows) % rows * columns + column);
      }
    if (graph == "random")
      for (const RankPair& pair : peers_at({.axis = "data", .pairs = "random_target", .seed = 7}, i, n, step))
        add(pair.to);
    return to;
  };
  double apart = 0;  // the furthest w from 1
  for (const std::string graph : {"ring", "exponential", "torus", "random"})
    for (int workers : {2, 3, 5, 6, 8}) {
      auto x = std::make_shared<std::vector<Weights>>(), z = std::make_shared<std::vector<Weights>>();
      auto w = std::make_shared<std::vector<double>>(workers, 1);
      compare({.strategy = "gossip(mode=push_sum, graph=" + graph + (graph == "random" ? ", seed=7)" : ")"),
               .axes = {{"data", workers}},
               .workers = workers,
               .momentum = workers % 2 == 0 ? 0.9 : 0,
               .steps = 6,
               .least = workers == 5 ? 0 : 1,
               .meet = [=, &apart](int s, const auto&, auto& updated) {
                 if (s == 0) {
                   World alone;
                   x->assign(workers, Step(network(), cross_entropy, Sgd{}, alone).parameters().values().to_vector());
                   *z = *x;
                 }
                 std::vector<Weights> mixed(workers, Weights((*x)[0].size()));
                 std::vector<double> weights(workers);
                 for (int i = 0; i < workers; ++i) {
                   std::vector<int> to = receivers(graph, i, workers, s);
                   to.push_back(i);
                   const double p = 1 / static_cast<double>(to.size());
                   for (int j : to) {
                     weights[j] += p * (*w)[i];
                     for (std::size_t k = 0; k < mixed[j].size(); ++k)
                       mixed[j][k] += p * ((*x)[i][k] + (updated[i][k] - (*z)[i][k]));  // x - lr u
                   }
                 }
                 *x = mixed;
                 *w = weights;
                 double sum = 0;
                 for (int i = 0; i < workers; ++i) {
                   for (std::size_t k = 0; k < mixed[i].size(); ++k) updated[i][k] = mixed[i][k] / weights[i];
                   sum += weights[i];
                   apart = std::max(apart, std::abs(weights[i] - 1));
                 }
                 *z = updated;
                 check(std::abs(sum - workers) < 1e-12, "test", "w adds up to {}", sum);
               }});
    }
  CHECK(apart > 0.3);
}

TEST_CASE("a worker of stochastic gradient push may be many ranks") {
  if (threads_only()) return;
  const std::vector<Axis> both{{"node", 3}, {"data", 2}};
  const auto weights = [&](const std::string& within) {
    const AveragingCase c{
        .strategy = within + " | gossip(mode=push_sum, graph=random, axis=node)", .axes = both, .meet = {}};
    return trained(c);
  };
  const auto plain = weights("data_parallel");
  for (const char* within : {"zero(1)", "data_parallel | zero(2)", "central_storage"}) {
    const auto got = weights(within);
    double worst = 0;
    for (std::size_t r = 0; r < plain.size(); ++r)
      for (std::size_t k = 0; k < plain[r].back().size(); ++k)
        worst = std::max(worst, std::abs(got[r].back()[k] - plain[r].back()[k]));
    INFO(within);
    CHECK(worst < 1e-12);
  }
}

}  // namespace test_averaging
