// Searches of hyper-parameters, on functions instead of trainings: what each algorithm suggests. Spaces, Sobol's points
// and grids are in test_tune_space.cpp.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "kernels/core/error.h"
#include "tests/support/catch.h"
#include "tests/tools/tune_question.h"
#include "tools/study/asha.h"
#include "tools/study/importance.h"
#include "tools/study/pbt.h"
#include "tools/study/tpe.h"

namespace test_tune {

using namespace trireme;
using namespace trireme::test;

namespace {

/// The better the nearer to 0: one best point, whose third coordinate only one branch has.
double score_at(const Space& s, const Point& p) {
  const double lr = s[0].place(p[0]), batch = s[3].place(p[3]);
  const double branch = p[1] == 1 ? std::pow(s[2].place(p[2]) - 0.3, 2) : 0.15;
  return -(4 * std::pow(lr - 0.7, 2) + branch + std::pow(batch - 0.2, 2));
}

TrialState ended(int id, const Point& point, std::int64_t epochs, double score) {
  return {.id = id, .point = point, .target = epochs, .status = TrialStatus::finished, .scores = {{epochs, score}}};
}

double best_of(const std::string& algorithm, std::int64_t seed, int trials) {
  Question q = question(algorithm);
  q.options.seed = seed;
  q.options.trials = trials;
  const auto search = make_algorithm(q.options, q.space);
  double best = TrialState::worst;
  for (int id = 1;; ++id) {
    const Suggestion s = search->suggest();
    if (s.kind == Suggestion::Kind::done) return best;
    const double score = score_at(q.space, s.point);
    best = std::max(best, score);
    search->observe(ended(id, s.point, s.target, score));
  }
}

/// Trials on so many workers, each epoch as long as it happens to be; scores by trial and epoch.
struct Simulated {
  std::unique_ptr<SearchAlgorithm> search;
  std::mt19937_64 random;
  std::multimap<double, int> running = {};  // by when they end
  std::int64_t epochs = 0;
  std::vector<Suggestion> made = {};

  template <class Score>
  void run(int workers, const Score& score) {
    double now = 0;
    for (;;) {
      while (std::ssize(running) < workers) {
        const Suggestion s = search->suggest();
        if (s.kind == Suggestion::Kind::done && running.empty()) return;
        REQUIRE((s.kind != Suggestion::Kind::done || running.empty()));
        if (s.kind == Suggestion::Kind::wait || s.kind == Suggestion::Kind::done) break;
        begin(s, now);
      }
      const auto first = running.begin();
      now = first->first;
      TrialState t = search->trials()[static_cast<std::size_t>(first->second - 1)];
      running.erase(first);
      const std::int64_t from = t.scores.empty() ? t.from_epoch : t.scores.back().first;
      for (std::int64_t e = from + 1; e <= t.target; ++e) {
        t.scores.emplace_back(e, score(t, e));
        ++epochs;
      }
      t.status = t.target >= search->options().epochs ? TrialStatus::finished : TrialStatus::paused;
      search->observe(t);
    }
  }
  void begin(const Suggestion& s, double now) {
    made.push_back(s);
    TrialState t{.point = s.point, .parent = s.parent, .from_epoch = s.from_epoch};
    if (s.kind == Suggestion::Kind::go_on)
      t = search->trials()[static_cast<std::size_t>(s.trial - 1)];
    else
      t.id = static_cast<int>(search->trials().size()) + 1;
    const std::int64_t from = t.scores.empty() ? t.from_epoch : t.scores.back().first;
    t.target = s.target;
    t.status = TrialStatus::running;
    REQUIRE(t.target > from);
    if (s.replaces > 0) {
      TrialState out = search->trials()[static_cast<std::size_t>(s.replaces - 1)];
      REQUIRE(out.status == TrialStatus::paused);
      out.status = TrialStatus::stopped;
      search->observe(out);
    }
    search->observe(t);
    running.emplace(now + static_cast<double>(t.target - from) * (0.2 + uniform(random)), t.id);
  }
};

}  // namespace

TEST_CASE("random and Sobol points are functions of seed and number, and differ", "[tune]") {
  for (const char* name : {"random", "sobol"}) {
    Question q = question(name);
    std::set<std::string> seen;
    const auto a = make_algorithm(q.options, q.space);
    q.options.trials = 60;
    const auto b = make_algorithm(q.options, q.space);
    for (int id = 1; id <= 30; ++id) {
      const Suggestion s = a->suggest();
      CHECK(q.space.text(s.point) == q.space.text(b->suggest().point));
      CHECK(seen.insert(q.space.text(s.point)).second);
      a->observe(ended(id, s.point, 9, 0));
      b->observe({.id = id, .point = s.point, .status = TrialStatus::failed});
    }
    CHECK(a->suggest().kind == Suggestion::Kind::done);
    CHECK(b->suggest().kind == Suggestion::Kind::start);
  }
  CHECK_ERROR(make_algorithm(question("bayes").options, Space()), usage, "bayes");
}

TEST_CASE("TPE finds better points than random search", "[tune]") {
  std::vector<double> tpe, random;
  int wins = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    tpe.push_back(best_of("tpe", seed, 60));
    random.push_back(best_of("random", seed, 60));
    wins += tpe.back() > random.back();
  }
  std::ranges::sort(tpe);
  std::ranges::sort(random);
  CAPTURE(wins, tpe[10], random[10]);
  CHECK(wins >= 15);
  CHECK(-tpe[10] < -random[10] / 2);
}

TEST_CASE("a Parzen estimator is a density, and draws what it says", "[tune]") {
  std::mt19937_64 random(3);
  for (const std::size_t count : {0u, 1u, 2u, 9u}) {
    std::vector<double> places(count);
    for (double& p : places) p = uniform(random);
    const Parzen parzen(places);
    double mass = 0, mean = 0, drawn = 0;
    constexpr int steps = 4000;
    for (int i = 0; i < steps; ++i) {
      const double x = (i + 0.5) / steps, density = std::exp(parzen.log_density(x));
      mass += density / steps;
      mean += x * density / steps;
      drawn += parzen.draw(random) / steps;
    }
    CHECK(mass == Approx(1).epsilon(1e-3));
    CHECK(drawn == Approx(mean).margin(0.03));
  }
}

TEST_CASE("ASHA's rungs are those of the paper", "[tune]") {
  const auto rungs = [](int least, int most, int eta) {
    TuneOptions o;
    o.min_epochs = least;
    o.epochs = most;
    o.eta = eta;
    return asha_rungs(o);
  };
  CHECK(rungs(1, 9, 3) == std::vector<std::int64_t>{1, 3, 9});
  CHECK(rungs(1, 256, 4) == std::vector<std::int64_t>{1, 4, 16, 64, 256});
  CHECK(rungs(4, 64, 2) == std::vector<std::int64_t>{4, 8, 16, 32, 64});
  CHECK(rungs(1, 10, 3) == std::vector<std::int64_t>{1, 3, 10});
  CHECK(rungs(2, 3, 2) == std::vector<std::int64_t>{3});
  CHECK(rungs(9, 9, 3) == std::vector<std::int64_t>{9});
}

TEST_CASE("ASHA promotes the best of each rung, and only these", "[tune]") {
  for (const int workers : {1, 4, 25}) {
    Question q = question("asha");
    q.options.trials = 40;
    q.options.seed = workers;
    Simulated s{make_algorithm(q.options, q.space), std::mt19937_64(static_cast<std::uint64_t>(workers))};
    const auto score = [&](const TrialState& t, std::int64_t e) {
      return score_at(q.space, t.point) - 0.1 / double(e);
    };
    s.run(workers, score);
    const auto& trials = s.search->trials();
    REQUIRE(trials.size() == 40);
    std::vector<std::vector<double>> at(3);
    for (const TrialState& t : trials)
      for (std::size_t k = 0; k < 3; ++k)
        if (t.has(std::vector<std::int64_t>{1, 3, 9}[k])) at[k].push_back(score_at(q.space, t.point));
    CAPTURE(workers, at[1].size(), at[2].size());
    CHECK(at[0].size() == 40);
    for (std::size_t k = 0; k + 1 < 3; ++k) {
      CHECK(at[k + 1].size() >= at[k].size() / 3);
      CHECK(at[k + 1].size() <= at[k].size() / 3 + 12);  // promoted when fewer were known
      std::ranges::sort(at[k], std::greater());
      for (std::size_t i = 0; i < at[k].size() / 3; ++i)  // of those at the end all have gone on
        CHECK(std::ranges::find(at[k + 1], at[k][i]) != at[k + 1].end());
    }
    CHECK(std::ranges::max(at[2]) == std::ranges::max(at[0]));
    CHECK(s.epochs < 40 * 9 / 2);
    for (const Suggestion& made : s.made)
      if (made.kind == Suggestion::Kind::go_on) CHECK((made.target == 3 || made.target == 9));
  }
}

TEST_CASE("ASHA goes on past trials that fail", "[tune]") {
  Question q = question("asha");
  q.options.trials = 9;
  const auto search = make_algorithm(q.options, q.space);
  for (int id = 1; id <= 9; ++id) {
    const Suggestion s = search->suggest();
    if (s.kind != Suggestion::Kind::start) {  // of three one goes on: the only one with a score
      CHECK((s.kind == Suggestion::Kind::go_on && s.trial == 1));
      TrialState t = search->trials()[0];
      t.target = s.target;
      t.status = TrialStatus::failed;
      search->observe(t);
      --id;
      continue;
    }
    TrialState t{.id = id, .point = s.point, .target = s.target, .status = TrialStatus::failed};
    if (id == 1) {
      t.status = TrialStatus::paused;
      t.scores = {{1, 0.5}};
    }
    search->observe(t);
  }
  CHECK(search->suggest().kind == Suggestion::Kind::done);
}

TEST_CASE("PBT replaces the worst by the best, perturbed", "[tune]") {
  // The paper's toy: theta shrinks by a rate, and only by one of two; the best members are copied.
  const Question q = [&] {
    Question made = question("pbt", R"([space]
"optim.lr" = {type = "uniform", low = 0.0, high = 1.0}
"optim.momentum" = {type = "uniform", low = 0.0, high = 1.0})");
    made.options.trials = 10;
    made.options.epochs = 20;
    made.options.min_epochs = 2;
    return made;
  }();
  double with = 0, without = 0;
  for (int seed = 1; seed <= 5; ++seed) {
    for (const bool copies : {true, false}) {
      TuneOptions o = q.options;
      o.seed = seed;
      if (!copies) o.min_epochs = o.epochs;
      Simulated s{make_algorithm(o, q.space), std::mt19937_64(static_cast<std::uint64_t>(seed))};
      std::map<std::pair<int, std::int64_t>, std::array<double, 2>> theta;
      s.run(4, [&](const TrialState& t, std::int64_t e) {
        auto was = theta.find({t.id, e - 1});
        if (was == theta.end() && t.parent > 0) was = theta.find({t.parent, t.from_epoch});
        REQUIRE((was != theta.end() || e == 1));
        std::array<double, 2> now = was == theta.end() ? std::array{0.9, 0.9} : was->second;
        for (std::size_t i = 0; i < 2; ++i)
          now[i] -= 0.2 * t.point[i] * now[i] * (t.point[0] + t.point[1] > 1 ? 0.5 : 1);
        theta[{t.id, e}] = now;
        return 1.2 - now[0] * now[0] - now[1] * now[1];
      });
      double best = TrialState::worst;
      int children = 0, stopped = 0;
      for (const TrialState& t : s.search->trials()) {
        best = std::max(best, t.last());
        children += t.parent > 0;
        stopped += t.status == TrialStatus::stopped;
        CHECK((t.status == TrialStatus::finished || t.status == TrialStatus::stopped));
        if (t.parent == 0) continue;
        CHECK(s.search->trials()[static_cast<std::size_t>(t.parent - 1)].has(t.from_epoch));
        CHECK(t.from_epoch % 2 == 0);
      }
      CHECK(children == stopped);
      CHECK((children > 0) == copies);
      CHECK(std::ssize(s.search->trials()) == 10 + children);
      CHECK(s.epochs == 10 * 20);  // as many as without: what one loses the next has
      (copies ? with : without) += best;
    }
  }
  CHECK(with > without);
  const Question all = question("pbt");
  const Pbt pbt(all.options, all.space);
  for (int i = 1; i < 200; ++i) {
    const Point from = all.space.at({0.5, 0.4, 0.9, 0.5}), to = pbt.explore(from, i);
    CHECK(std::isnan(to[2]) == (to[1] == 0));
    for (std::size_t k = 0; k < 4; ++k)
      if (!std::isnan(to[k])) CHECK((to[k] >= all.space[k].low && to[k] <= all.space[k].high));
  }
}

TEST_CASE("the median rule ends what is worse than half of the others", "[tune]") {
  Question q = question("random");
  q.options.startup = 3;
  std::vector<TrialState> all;
  for (int id = 1; id <= 4; ++id) {
    all.push_back({.id = id, .target = 9, .status = TrialStatus::finished});
    for (std::int64_t e = 1; e <= 9; ++e) all.back().scores.emplace_back(e, id + 0.1 * static_cast<double>(e));
  }
  const auto stops = [&](std::vector<std::pair<std::int64_t, double>> scores) {
    TrialState t{.id = 5, .status = TrialStatus::running, .scores = std::move(scores)};
    return median_stops(q.options, all, t);
  };
  CHECK(stops({{1, 2.0}, {2, 2.6}}));  // the means up to epoch 2 are 1.15, 2.15, 3.15, 4.15
  CHECK_FALSE(stops({{1, 2.0}, {2, 2.7}}));
  CHECK_FALSE(stops({{1, 2.7}, {2, 0.1}}));  // its best counts
  CHECK_FALSE(stops({}));
  CHECK_FALSE(stops({{9, 0.0}}));  // it has ended anyway
  q.options.min_epochs = 3;
  CHECK_FALSE(stops({{2, 0.0}}));
  q.options.min_epochs = 1;
  q.options.startup = 5;
  CHECK_FALSE(stops({{2, 0.0}}));
}

TEST_CASE("importance is the share of the variance that a parameter explains", "[tune]") {
  std::mt19937_64 random(5);
  const auto shares = [&](auto f) {
    std::vector<std::vector<double>> rows(150, std::vector<double>(4));
    std::vector<double> scores;
    for (auto& row : rows) {
      for (double& x : row) x = uniform(random);
      scores.push_back(f(row));
    }
    return importance(rows, scores);
  };
  const auto one = shares([](const auto& x) { return 10 * x[2] + x[0]; });  // of the variance 0.99 and 0.01
  CHECK(one[2] > 0.8);
  CHECK((one[0] < 0.1 && one[1] < 0.1 && one[3] < 0.1));
  const auto two = shares([](const auto& x) { return x[0] - x[3]; });  // half each
  CHECK((two[0] > 0.3 && two[0] < 0.6 && two[3] > 0.3 && two[3] < 0.6));
  CHECK((two[1] < 0.1 && two[2] < 0.1));
  const auto both = shares([](const auto& x) { return (x[0] - 0.5) * (x[1] - 0.5); });  // nothing by one alone
  CHECK(both[0] + both[1] + both[2] + both[3] < 0.6);
  CHECK(shares([](const auto&) { return 1.0; }).empty());
  CHECK(importance({{0.1}, {0.2}}, {1, 2}).empty());
}

}  // namespace test_tune
