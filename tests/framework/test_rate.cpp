#include "framework/optim/schedule.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_rate {

using namespace trireme;

TEST_CASE("schedules equal torch.optim.lr_scheduler") {
  constexpr int steps = 40;
  const std::vector<std::pair<std::string, Schedule>> schedules{
      {"step", step_decay(0.3, 7, 0.5)},
      {"milestones", milestones(0.3, {25, 5, 12}, 0.2)},
      {"exponential", exponential(0.3, 0.9)},
      {"cosine", cosine(0.3, steps, 0.01)},
      {"one_cycle", one_cycle(0.3, steps)},
      {"one_cycle_short", one_cycle(0.3, steps, 0.1)},
      {"polynomial", polynomial(0.3, 30, 2)},
      {"warm_up", warm_up(0.3, 10, 0.25)},
      {"restarts", cosine_restarts(0.3, 7, 1, 0.01)},
      {"restarts_longer", cosine_restarts(0.3, 5, 2, 0.01)},
      {"in_turn", linear(0.06, 0.3, 8).then(8, exponential(0.3, 0.9))},
      {"nanogpt", linear(0.3 / 6, 0.3, 5).then(5, cosine(0.3, 25, 0.03))},
      {"timm", linear(1e-3, 0.3, 6).then(6, cosine(0.3, 30, 1e-5))},
  };
  test::Oracle torch;
  if (!torch.run("torch_rates.py", std::to_string(steps))) return;
  for (auto& [name, rate] : schedules) {
    std::vector<double> ours;
    for (int step = 0; step < steps; ++step) ours.push_back(rate(step));
    INFO(name);
    CHECK(test::distance(ours, torch.get(name)) < 1e-14);
  }
}

TEST_CASE("schedules stay at their end") {
  CHECK(cosine(1, 10, 0.1)(50) == Approx(0.1));
  CHECK(polynomial(1, 10, 1, 0.1)(50) == Approx(0.1));
  CHECK(one_cycle(1, 10)(50) == Approx(one_cycle(1, 10)(9)));
}

TEST_CASE("warm-up starts at a share of the schedule and then follows it") {
  const Schedule rate = warm_up(cosine(0.4, 100), 5);
  CHECK(rate(0) == 0);
  CHECK(rate(2) == Approx(0.4 * 2 / 5));
  for (int step : {5, 6, 50, 100}) CHECK(rate(step) == cosine(0.4, 100)(step));
}

TEST_CASE("a schedule without steps is refused") {
  CHECK_ERROR(cosine(0.1, 0), usage, 0, 1);
  CHECK_ERROR(one_cycle(0.1, 10, 2), usage, 2, "one_cycle", "warm_share", 0, 1);
}

}  // namespace test_rate
