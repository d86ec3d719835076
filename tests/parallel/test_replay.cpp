// Runs with servers whose workers go at their own pace, repeated by the recorded order of arrivals: on threads, whose
// pace nothing controls, and in virtual time.
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "parallel/runtime/reducer.h"
#include "parallel/runtime/step.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/runtime/step_resume.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary.h"

namespace test_replay {

using namespace trireme;
using namespace trireme::test;

namespace {

struct Run {
  ParameterServerOptions servers;
  int workers;
  std::uint64_t pace = 0;  // by which workers sleep; 0: they do not
  std::string replay = {}, resume = {}, save = {};
  int begin = 0, end = 12;  // steps
  bool virtual_time = false;
};
/// The weights, and the losses of each rank.
using Result = std::pair<std::vector<double>, std::vector<std::vector<double>>>;

Result train(const Run& run) {
  const int ranks = run.workers + run.servers.groups + run.servers.servers;
  Result result;
  result.second.resize(ranks);
  std::mutex mutex;
  const auto body = [&](World& world) {
    Module model = Sequential{Linear(6, 7), relu, Linear(7, 3)};
    convert(model, DType::f64);
    initialize(model, 1);
    Mesh mesh(world, {{"data", ranks}});
    Step step(model, cross_entropy, Sgd{.lr = 0.1, .momentum = 0.9}, mesh, parameter_server(run.servers),
              {.profile = {.example = Tensor::zeros({3, 6}, DType::f64)}});
    if (!run.resume.empty()) step.load_checkpoint(run.resume);
    if (!run.replay.empty()) StepResume(step).replay(run.replay);
    std::vector<double> losses;
    for (int i = run.begin; i < run.end; ++i) {
      const Index rows = 2 + world.rank() % 3;
      Tensor x = Tensor::zeros({rows, 6}, DType::f64), y = Tensor::zeros({rows}, DType::i64);
      for (Index k = 0; k < x.numel(); ++k) x.data<double>()[k] = std::sin(i + 3.0 * world.rank() + 0.7 * double(k));
      for (Index k = 0; k < rows; ++k) y.data<std::int64_t>()[k] = (world.rank() + i + k) % 3;
      if (run.pace > 0 && !run.virtual_time)
        std::this_thread::sleep_for(std::chrono::microseconds(mix(run.pace * 1000 + i * 16 + world.rank()) % 3000));
      losses.push_back(step(x, y).item());
    }
    if (!run.save.empty())
      save_checkpoint(run.save, step.parameters(), step.optimizer(), {.step = run.end},
                      {.shard = step.checkpoint_shard()});
    StepProbe(step).consolidate();
    const std::lock_guard lock(mutex);
    result.second[world.rank()] = losses;
    if (world.rank() == 0) result.first = step.parameters().values().to_vector();
  };
  run.virtual_time ? World::virtual_time(ranks, two_nodes((ranks + 1) / 2), body) : World::threads(ranks, body);
  return result;
}

std::string newest(const std::string& run) { return find_latest(run)->path; }

}  // namespace

TEST_CASE("a run on threads is repeated bit for bit by its order of arrivals, on threads and in virtual time") {
  if (threads_only()) return;
  int differing = 0;
  for (const ParameterServerOptions& o :
       {ParameterServerOptions{.servers = 1, .mode = "async"}, ParameterServerOptions{.servers = 2, .mode = "async"},
        ParameterServerOptions{.servers = 2, .mode = "ssp", .staleness = 2},
        ParameterServerOptions{.servers = 1, .backup = 1},
        ParameterServerOptions{.servers = 2, .mode = "async", .groups = 2}})
    for (const int workers : {2, 3, 4, 5}) {
      CAPTURE(o.mode, o.servers, o.backup, o.groups, workers);
      if (workers <= o.backup || (o.groups > 0 && workers % o.groups != 0)) continue;
      const Temporary first, second;
      const Result recorded = train({.servers = o, .workers = workers, .pace = 1, .save = first.path()});
      const std::string order = newest(first.path());
      // The same pace of none: another order, but for luck.
      differing += train({.servers = o, .workers = workers, .pace = 2}) != recorded;
      CHECK(train({.servers = o, .workers = workers, .pace = 2, .replay = order, .save = second.path()}) == recorded);
      CHECK(train({.servers = o, .workers = workers, .replay = order, .virtual_time = true}) == recorded);
      // What was repeated is a record again.
      CHECK(train({.servers = o, .workers = workers, .pace = 3, .replay = newest(second.path())}) == recorded);
    }
  CHECK(differing > 5);
}

TEST_CASE("a repeated run may stop and go on, as the recorded one may have") {
  if (threads_only()) return;
  const ParameterServerOptions o{.servers = 2, .mode = "async"};
  const Temporary half, whole, again;
  train({.servers = o, .workers = 3, .pace = 1, .save = half.path(), .end = 5});
  const Run rest{
      .servers = o, .workers = 3, .pace = 2, .resume = newest(half.path()), .save = whole.path(), .begin = 5};
  const Result recorded = train(rest);
  const std::string order = newest(whole.path());
  CHECK(train({.servers = o, .workers = 3, .pace = 3, .replay = order, .resume = newest(half.path()), .begin = 5}) ==
        recorded);
  train({.servers = o, .workers = 3, .pace = 4, .replay = order, .save = again.path(), .end = 5});
  CHECK(train({.servers = o, .workers = 3, .pace = 5, .replay = order, .resume = newest(again.path()), .begin = 5}) ==
        recorded);
}

TEST_CASE("what cannot be repeated is refused in a line") {
  if (threads_only()) return;
  const ParameterServerOptions o{.mode = "async"};
  const Temporary folder, other;
  train({.servers = o, .workers = 2, .save = folder.path(), .end = 3});
  train({.servers = {.servers = 2, .mode = "async"}, .workers = 2, .save = other.path(), .end = 3});
  CHECK_ERROR(train({.servers = o, .workers = 2, .replay = newest(folder.path()), .end = 4}), usage, 12, 2);
  CHECK_ERROR(train({.servers = o, .workers = 2, .replay = newest(other.path())}), usage, "data=4", "data=3",
              "parameter_server");
  // A run that went another way so far.
  const Temporary slow, fast;
  const auto half = [&](const Temporary& to, std::uint64_t pace) {
    return train({.servers = o, .workers = 3, .pace = pace, .save = to.path(), .end = 12});
  };
  const Result one = half(slow, 1);
  std::uint64_t pace = 2;
  while (half(fast, pace) == one) ++pace;
  CHECK_ERROR(train({.servers = o,
                     .workers = 3,
                     .replay = newest(slow.path()),
                     .resume = newest(fast.path()),
                     .begin = 12,
                     .end = 13}),
              usage, "replay");
  CHECK_ERROR(train({.servers = {}, .workers = 2, .replay = newest(folder.path())}), usage, "replay");
  World world;
  Module model = Linear(3, 2);
  Step step(model, cross_entropy, Sgd{}, world);
  CHECK_ERROR(StepResume(step).replay(newest(folder.path())), usage, "replay");
}

}  // namespace test_replay
