// Spaces of hyper-parameters and the files that state them; Sobol's points and grids over them.
#include <cmath>
#include <random>
#include <set>

#include "kernels/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/tools/tune_question.h"
#include "tools/study/algorithm.h"
#include "tools/study/grid.h"
#include "tools/study/sobol.h"

namespace test_tune_space {

using namespace trireme;
using namespace trireme::test;

TEST_CASE("a space's points are places of a unit cube, texts and JSON", "[tune]") {
  const Question q = question("random");
  REQUIRE(q.space.size() == 4);
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::set<std::string> names;
  for (int i = 0; i < 300; ++i) {
    std::vector<double> places(4);
    for (double& p : places) p = i < 2 ? i : uniform(random);
    const Point point = q.space.at(places);
    CHECK(std::isnan(point[2]) == (point[1] == 0));
    names.insert(q.space[1].text(point[1]));
    for (std::size_t k = 0; k < 4; ++k) {
      if (std::isnan(point[k])) continue;
      CHECK((point[k] >= q.space[k].low && point[k] <= q.space[k].high));
      CHECK(q.space[k].number(q.space[k].text(point[k])) == point[k]);
      CHECK(q.space[k].at(q.space[k].place(point[k])) == Approx(point[k]).epsilon(1e-5));
    }
    const Point again = q.space.from_json(q.space.to_json(point));
    for (std::size_t k = 0; k < 4; ++k) CHECK((again[k] == point[k] || (std::isnan(again[k]) && std::isnan(point[k]))));
    const TrainerOptions c = settings_at(q.space, point, {});
    CHECK((c.optim.lr == point[0] && c.data.batch == static_cast<std::int64_t>(point[3])));
    CHECK(c.optim.name == q.space[1].text(point[1]));
  }
  CHECK(names.size() == 3);
  CHECK(to_toml(parse_tune(to_toml(q), "again")) == to_toml(q));
  CHECK_ERROR(q.space.from_json(R"({"optim.name": "adagrad"})"), data, "study", "optim.name");
  CHECK_THROWS_AS(q.space.from_json("[1"), Error);
}

TEST_CASE("files of a search that cannot be are refused in a line", "[tune]") {
  const auto refused = [](const std::string& toml, const std::string& says) {
    INFO(toml);
    CHECK_ERROR(
        [&] {
          Question q = parse_tune(toml, "s.toml");
          complete(q, {});
        }(),
        usage, says);
  };
  const std::string lr = "[space]\n\"optim.lr\" = {type = \"log\", low = 0.001, high = 0.1}\n";
  refused("", "is empty");
  refused("[tune]\ntrials = 3\n[space]\n", "is empty");
  refused("[tun]\n", "[space] is empty");
  refused("tune = 3\n" + lr, "s.toml:1: tune must be a table");
  refused("[tune]\ntrial = 3\n" + lr, "tune.trials");
  refused("[tune]\ntrials = 0\n" + lr, "s.toml:2");
  refused("[tune]\nalgorithm = \"bayes\"\n" + lr, "random, sobol, grid, tpe, asha, pbt");
  refused("[tune]\nobjective = \"test_top\"\n" + lr, "no evaluation reports 'test_top' (did you mean 'test_top1'?)");
  refused("[tune]\nmin_epochs = 5\nepochs = 4\n" + lr, "min_epochs is 5, but a trial has 4");
  refused("[tune]\nalgorithm = \"asha\"\ntrials = 8\nepochs = 9\n" + lr, "rungs 1, 3, 9 with eta 3; use at least 9");
  refused("[tune]\nalgorithm = \"pbt\"\n" + lr + "\"arch.layers\" = {type = \"integer\", low = 1, high = 3}",
          "arch.layers cannot change");
  refused("[tune]\nalgorithm = \"asha\"\nmedian_stop = true\n" + lr, "median_stop is for");
  refused("[space]\n\"optim.lr\" = {type = \"logg\", low = 1, high = 2}", "there is no 'logg' (did you mean 'log'?)");
  refused("[space]\n\"optim.lr\" = {type = \"log\", low = 0, high = 2}", "above 0");
  refused("[space]\n\"optim.lr\" = {type = \"log\", low = 2, high = 2}", "s.toml:2: optim.lr has no room");
  refused("[space]\n\"optim.lr\" = {type = \"uniform\", low = 2, high = 1}", "low 2 is not below high 1");
  refused("[space]\n\"optim.lr\" = {type = \"uniform\", low = 2}", "needs numbers low and high");
  refused("[space]\n\"optim.lr\" = {type = \"uniform\", low = -1, high = 1}", "optim.lr = -1");
  refused("[space]\n\"optim.lr\" = {type = \"uniform\", low = nan, high = 1}", "low is nan");
  refused("[space]\n\"optim.lr\" = {type = \"uniform\", low = 0, high = 1, step = 2}", "there is no 'step'");
  refused("[space]\n\"data.batch\" = {type = \"integer\", low = 1.5, high = 3}", "a whole number");
  refused("[space]\n\"data.batch\" = {type = \"uniform\", low = 1.5, high = 3}", "data.batch = 1.5");
  refused("[space]\n\"optim.name\" = {type = \"choice\", values = [\"adam\"]}", "at least two values");
  refused("[space]\n\"optim.name\" = {type = \"choice\", values = [\"adam\", \"adam\"]}", "a value twice");
  refused("[space]\n\"optim.name\" = {type = \"choice\", values = [\"adam\", \"adamm\"]}", "optim.name = adamm");
  refused("[space]\n\"optim.lrr\" = {type = \"uniform\", low = 0, high = 1}", "optim.lr");
  refused("[space]\n\"epochs\" = {type = \"integer\", low = 1, high = 9}", "the search sets it");
  for (const char* levels : {"2.5", "\"3\"", "0", "99999999999"})
    refused(std::string("[space]\n\"data.batch\" = {type = \"integer\", low = 1, high = 3, levels = ") + levels + "}",
            "s.toml:2: data.batch: levels");
  refused("[space]\n\"optim.name\" = {type = \"choice\", values = [\"adam\", [\"sgd\"]]}",
          "values must be texts, numbers");
  refused("[space]\n\"optim.lr\" = 3", "must be a table");
  refused(lr + "\"optim.momentum\" = {type = \"uniform\", low = 0, high = 0.9, only_if = {\"optim.name\" = \"sgd\"}}",
          "which is not a parameter");
  refused(lr + "\"optim.momentum\" = {type = \"uniform\", low = 0, high = 0.9, only_if = 3}", "only_if needs");
  refused(lr + "\"optim.momentum\" = {type = \"uniform\", low = 0, high = 0.9, only_if = {\"optim.lr\" = 0.01}}",
          "is never '0.01'");
  refused(
      "[space]\n\"optim.momentum\" = {type = \"integer\", low = 0, high = 9, only_if = {\"optim.lr\" = 1}}\n"
      "\"optim.lr\" = {type = \"integer\", low = 0, high = 9, only_if = {\"optim.momentum\" = 1}}",
      "forms a circle");
  refused("[space]\n\"data.batch\" = {type = \"uniform\", low = 10, high = 50}", "data.batch = ");
  refused(
      "[space]\n\"data.batch\" = {type = \"integer\", low = 1, high = 9}\nbatch = {type = \"integer\", low = 1, high = "
      "9}",
      "the space has data.batch twice, as data.batch and as batch");
  refused("[space]\nranks = {type = \"integer\", low = 1, high = 2}", "the search sets it");
  refused("[tune]\nalgorithm = \"pbt\"\n[space]\nbatch = {type = \"integer\", low = 1, high = 9}",
          "batch cannot change");
  for (const char* key : {"test_loss", "train_loss", "step_ms_p50", "memory_mb", "test_mse", "test_perplexity"})
    refused(fmt::format("[tune]\nobjective = \"{}\"\n", key) + lr, fmt::format("use '-{}'", key));
  refused("[tune]\nobjective = \"-test_top1\"\n" + lr, "use 'test_top1'");
  for (const char* key : {"test_dice", "test_iou", "-test_mse", "-test_perplexity", "-test_bits_per_byte", "test_r2"}) {
    Question q = parse_tune(fmt::format("[tune]\nobjective = \"{}\"\n", key) + lr, "s.toml");
    CHECK_NOTHROW(complete(q, {}));
    CHECK(q.options.trials == 20);
  }
  std::string many = "[tune]\nalgorithm = \"sobol\"\n[space]\n";
  TrainerOptions any;
  int count = 0;
  for (const Option& o : option_table(any))
    if (std::holds_alternative<double*>(o.value) || std::holds_alternative<std::int64_t*>(o.value))
      if (!o.name.starts_with("run.") && !o.name.starts_with("checkpoint.") && ++count <= 40)
        many += "\"" + o.name + "\" = {type = \"integer\", low = 1, high = 2}\n";
  CHECK_THROWS_AS(
      [&] {
        Question q = parse_tune(many, "s");
        complete(q, {});
      }(),
      OptionError);
}

TEST_CASE("Sobol's points are SciPy's", "[tune]") {
  const Sobol sobol(Sobol::most);
  const Oracle oracle;
  if (oracle.run("sobol.py", "1024 32", Python::oracles)) {
    const std::vector<double> expected = oracle.get("points");
    std::size_t wrong = 0;
    for (std::uint32_t i = 0; i < 1000; ++i) {
      const std::vector<double> point = sobol.at(i);
      for (std::size_t d = 0; d < Sobol::most; ++d) wrong += point[d] != expected[i * Sobol::most + d];
    }
    CHECK(wrong == 0);
  }
  CHECK_THROWS_AS(Sobol(Sobol::most + 1), Error);
}

TEST_CASE("scrambled or not, each dimension's first 2^k points lie one in each 2^k-th", "[tune]") {
  const Sobol sobol(Sobol::most);
  for (const std::uint64_t seed : {0u, 1u, 2u, 77u}) {
    std::vector<std::set<int>> cells(Sobol::most);
    for (std::uint32_t i = 0; i < 256; ++i) {
      const std::vector<double> point = sobol.at(i, seed);
      for (std::size_t d = 0; d < point.size(); ++d) cells[d].insert(static_cast<int>(point[d] * 256));
    }
    for (const auto& each : cells) CHECK(each.size() == 256);
    std::set<std::pair<int, int>> squares;  // and of the first two any 16 x 16
    for (std::uint32_t i = 0; i < 256; ++i)
      squares.emplace(static_cast<int>(sobol.at(i, seed)[0] * 16), static_cast<int>(sobol.at(i, seed)[1] * 16));
    CHECK(squares.size() == 256);
  }
  CHECK(sobol.at(5, 1) != sobol.at(5, 2));
  CHECK(sobol.at(5, 1) == Sobol(Sobol::most).at(5, 1));
}

TEST_CASE("a grid has every combination once, and none of what does not apply", "[tune]") {
  Question q = question("grid", R"([space]
"optim.name" = {type = "choice", values = ["adam", "sgd"]}
"optim.momentum" = {type = "uniform", low = 0.5, high = 0.9, levels = 3, only_if = {"optim.name" = "sgd"}}
"data.batch" = {type = "log_integer", low = 8, high = 32, levels = 3})");
  q.options.trials = 100;
  complete(q, {});
  CHECK(q.options.trials == 12);
  q.options.trials = 0;  // all, also where there are more than searches have trials unless told
  complete(q, {});
  CHECK(q.options.trials == 12);
  CHECK(left_out_of_grid(q).empty());
  Question large = parse_tune(R"([tune]
algorithm = "grid"
[space]
"optim.lr" = {type = "log", low = 1e-5, high = 1}
"data.batch" = {type = "choice", values = [2, 4, 8, 16, 32]})",
                              "s.toml");
  complete(large, {});
  CHECK(large.options.trials == 25);
  CHECK(left_out_of_grid(large).empty());
  large.options.trials = 20;
  complete(large, {});
  CHECK(large.options.trials == 20);
  CHECK_THAT(left_out_of_grid(large), mentions(25, 20));
  std::set<std::string> seen;
  const auto points = GridSearch::points(q.space, 100);
  for (const Point& p : points) seen.insert(q.space.text(p));
  CHECK(seen.size() == 12);
  CHECK(seen.contains("optim.name=adam data.batch=16"));
  CHECK(seen.contains("optim.name=sgd optim.momentum=0.7 data.batch=32"));
  CHECK(q.space.text(GridSearch(q.options, q.space).next(12)) == q.space.text(points.back()));
}

}  // namespace test_tune_space
