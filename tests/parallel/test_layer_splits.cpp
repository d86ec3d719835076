// Assignments of splits to parts beside all assignments that there are.
#include "parallel/search/layer_splits.h"

#include <algorithm>
#include <random>

#include "tests/support/catch.h"

namespace test_layer_splits {

using namespace trireme;

TEST_CASE("the best assignments are those that enumerating all of them finds") {
  std::mt19937_64 random(7);
  for (int run = 0; run < 200; ++run) {
    LayerChoices c;
    const int parts = 1 + static_cast<int>(random() % 6), count = 1 + static_cast<int>(random() % 12);
    std::vector<std::vector<int>> all{{}};
    for (int p = 0; p < parts; ++p) {
      auto& choices = c.parts.emplace_back(1 + random() % 3);
      for (PartChoice& choice : choices)
        choice = {static_cast<double>(random() % 8), static_cast<Index>(random() % 8)};  // ties are frequent
      std::vector<std::vector<int>> longer;
      for (const auto& begun : all)
        for (int i = 0; i < std::ssize(choices); ++i) {
          longer.push_back(begun);
          longer.back().push_back(i);
        }
      all = std::move(longer);
    }
    const std::uint64_t salt = random() % 100;
    if (run % 3 > 0)
      c.relayout = [salt](int part, int before, int now) {
        return before == now ? 0.0 : static_cast<double>((salt + 7 * part + 3 * before + now) % 5);
      };
    c.seconds_per_byte = run % 2 ? 0.5 : 0;
    const auto cost = [&](const std::vector<int>& choices) {
      double sum = 0;
      for (int p = 0; p < parts; ++p) {
        const PartChoice& choice = c.parts[p][choices[p]];
        sum += choice.seconds + c.seconds_per_byte * static_cast<double>(choice.bytes);
        if (p > 0 && c.relayout) sum += c.relayout(p, choices[p - 1], choices[p]);
      }
      return sum;
    };
    std::vector<double> known;
    for (const auto& choices : all) known.push_back(cost(choices));
    std::ranges::sort(known);
    const auto found = best_assignments(c, count);
    INFO("run " << run << ", " << all.size() << " assignments, " << count << " wanted");
    REQUIRE(found.size() == std::min(all.size(), static_cast<std::size_t>(count)));
    std::vector<std::vector<int>> seen;
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i].cost == known[i]);
      CHECK(cost(found[i].choices) == found[i].cost);
      CHECK(std::ranges::find(seen, found[i].choices) == seen.end());
      seen.push_back(found[i].choices);
    }
  }
  LayerChoices none{.parts = {{{1, 1}}, {}}};
  CHECK_THROWS(best_assignments(none, 1));
  CHECK_THROWS(best_assignments({}, 1));
}

}  // namespace test_layer_splits
