// Tickets: rows that workers at their own pace take from a queue. How often the gradient of each sample has been
// applied is read from the weights: a sample is a one in a place of its own, so that its gradient moves one weight
// by 1.
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "parallel/async/tickets.h"
#include "parallel/comm/virtual_clock.h"
#include "parallel/runtime/step.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/runtime/step_resume.h"
#include "parallel/runtime/step_tickets.h"
#include "tests/parallel/plans.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary.h"

namespace test_tickets {

using namespace trireme;
using namespace trireme::test;

namespace {

struct Run {
  ParameterServerOptions servers;
  int workers = 3;
  Index batch = 12, samples = 60;            // of an epoch
  std::vector<std::int64_t> intervals = {};  // batches of each, over and over; empty: those of an epoch
  int epochs = 1;
  std::string resume = {}, save = {}, replay = {};
  Index from = 0;  // epochs before
  double lr = 1, momentum = 0;
  std::uint64_t pace = 0;   // by which ranks sleep in real time; 0: they do not
  bool classifies = false;  // with cross-entropy: gradients depend on the weights
};
struct Result {
  std::vector<double> applied = {};  // by sample: how often its gradient is in the weights
  std::vector<double> weights = {};
  std::int64_t steps = 0;           // of this rank
  std::map<int, int> trained = {};  // tickets, by rank: on threads of all ranks
  std::vector<Nanoseconds> ends = {};
  bool sends_as_planned = true;
  bool operator==(const Result&) const = default;
};

/// A share of the batch of samples [first, last): each a one in its place.
std::pair<Tensor, Tensor> rows(Index first, Index last, const RankShare& mine, Index samples) {
  const auto [begin, end] = share(last - first, mine.rank, mine.size);
  const Tensor x = Tensor::zeros({end - begin, samples}, DType::f64), y = Tensor::zeros({end - begin}, DType::i64);
  BatchContext context{
      .samples = Tensor::zeros({end - begin}, DType::i64), .global_batch = last - first, .share = mine};
  for (Index i = begin; i < end; ++i) {
    x.data<double>()[(i - begin) * samples + first + i] = 1;
    context.samples.data<std::int64_t>()[i - begin] = first + i;
  }
  return {x.with_batch(context), y};
}

Result train(const Run& run, World& world, std::mutex& mutex, std::map<int, int>& trained) {
  Module model = Linear(run.samples, run.classifies ? 3 : 1);
  convert(model, DType::f64);
  initialize(model, 1);
  Mesh mesh(world, {{"data", world.size()}});
  const Loss total = [](const Tensor& logits, const Tensor&) { return sum(logits); };
  Step step(model, run.classifies ? Loss(cross_entropy) : Loss(total), Sgd{.lr = run.lr, .momentum = run.momentum},
            mesh, parameter_server(run.servers),
            {.profile = {.example = Tensor::zeros({2, run.samples}, DType::f64)}, .tickets = true});
  const std::vector<double> start = step.parameters().values().to_vector();
  if (!run.resume.empty()) step.load_checkpoint(find_latest(run.resume)->path);
  if (!run.replay.empty()) StepResume(step).replay(find_latest(run.replay)->path);
  const Index batches = (run.samples + run.batch - 1) / run.batch;
  std::size_t interval = 0;
  bool trains = false, as_planned = true;
  std::uint64_t trained_here = 0;
  for (Index done = run.from * batches; done < (run.from + run.epochs) * batches;) {
    const Index of_epoch = done % batches;
    const Index asked = run.intervals.empty() ? batches : run.intervals[interval++ % run.intervals.size()];
    const Index n = std::min<Index>(asked, batches - of_epoch);
    StepTickets(step).open(n);
    std::deque<Ticket> mine;
    for (;;) {
      for (const Ticket& t : StepTickets(step).granted()) mine.push_back(t);
      if (mine.empty()) break;
      const Ticket t = mine.front();
      mine.pop_front();
      const Index first = (of_epoch + t.batch) * run.batch, last = std::min(first + run.batch, run.samples);
      const auto [x, y] = rows(first, last, t.share, run.samples);
      if (run.pace > 0 && !world.clock())
        std::this_thread::sleep_for(std::chrono::microseconds(
            mix(run.pace * 1000 + trained_here++ * 16 + static_cast<std::uint64_t>(world.rank())) % 2000));
      (void)step(x, y);
      trains = true;
      const std::lock_guard lock(mutex);
      ++trained[world.rank()];
    }
    StepTickets(step).close();
    done += n;
    if (world.rank() < run.workers && trains) {
      const StepTraffic sent = StepProbe(step).traffic();
      as_planned = as_planned && sent.planned == sent.counted && !sent.planned.empty();
    }
  }
  if (!run.save.empty())
    save_checkpoint(run.save, step.parameters(), step.optimizer(), {.step = 1}, {.shard = step.checkpoint_shard()});
  StepProbe(step).consolidate();
  Result result{.weights = step.parameters().values().to_vector(),
                .steps = step.optimizer().steps(),
                .sends_as_planned = as_planned};
  const double scale = std::max(1, run.workers - run.servers.backup) / run.lr;
  for (Index i = 0; i < run.samples; ++i)
    result.applied.push_back((start[static_cast<std::size_t>(i)] - result.weights[static_cast<std::size_t>(i)]) *
                             scale);
  return result;
}

/// cluster: of virtual time; none: on threads, or under MPI on its processes.
Result train(const Run& run, const std::optional<Cluster>& cluster = {}) {
  std::mutex mutex;
  std::map<int, int> trained;
  if (under_mpi()) return train(run, processes(), mutex, trained);
  Result result;
  const int ranks = run.workers + run.servers.servers;
  std::vector<Nanoseconds> ends(static_cast<std::size_t>(ranks));
  const auto body = [&](World& world) {
    Result mine = train(run, world, mutex, trained);
    if (world.clock()) ends[static_cast<std::size_t>(world.rank())] = world.clock()->now();
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) result = std::move(mine);
  };
  cluster ? World::virtual_time(ranks, *cluster, body) : World::threads(ranks, body);
  result.trained = trained;
  result.ends = ends;
  return result;
}

/// Machines of which one is slow.
Cluster uneven(int ranks, int slow, double speed = 0.5, double jitter = 0, std::uint64_t seed = 0) {
  Cluster c{.nodes = {}, .inside = {2e-6, 1e9}, .between = {2e-6, 1e9}, .jitter = jitter, .seed = seed, .flops = 1e7};
  for (int r = 0; r < ranks; ++r) c.nodes.push_back({.speed = r == slow ? speed : 1.0});
  return c;
}

double farthest(const std::vector<double>& applied, double from) {
  double most = applied.empty() ? 1e300 : 0;
  for (const double times : applied) most = std::max(most, std::abs(times - from));
  return most;
}

/// Servers of all kinds and numbers, by seed; ranks: 0 for any.
Run random_run(std::uint64_t seed, int ranks) {
  Run run;
  run.servers.servers = 1 + static_cast<int>(mix(seed) % 3);
  run.workers = ranks > 0 ? ranks - run.servers.servers : 1 + static_cast<int>(mix(seed + 100) % 6);
  if (run.workers < 1) {
    run.servers.servers = ranks - 1;
    run.workers = 1;
  }
  const auto kind = mix(seed + 200) % 4;
  if (kind == 0) run.servers.mode = "async";
  if (kind == 1) {
    run.servers.mode = "ssp";
    run.servers.staleness = static_cast<Index>(mix(seed + 300) % 3);
  }
  if (kind >= 2 && run.workers > 1) {
    run.servers.backup = 1 + static_cast<int>(mix(seed + 400) % static_cast<std::uint64_t>(run.workers - 1));
  }
  run.batch = 6 + static_cast<Index>(mix(seed + 500) % 20);
  run.samples = 30 + static_cast<Index>(mix(seed + 600) % 60);
  for (int i = 0; i < static_cast<int>(mix(seed + 700) % 3); ++i)
    run.intervals.push_back(1 + static_cast<std::int64_t>(mix(seed + 800 + static_cast<std::uint64_t>(i)) % 4));
  run.epochs = 1 + static_cast<int>(mix(seed + 900) % 2);
  run.pace = seed % 3;
  return run;
}

std::string text(const Run& r) {
  std::string all = fmt::format(
      "{} workers, {} servers, {}, staleness {}, backup {}, {} samples by {}, {} epochs, intervals", r.workers,
      r.servers.servers, r.servers.mode, r.servers.staleness, r.servers.backup, r.samples, r.batch, r.epochs);
  for (const auto n : r.intervals) all += fmt::format(" {}", n);
  return all;
}

}  // namespace

TEST_CASE("each sample's gradient is applied once in an epoch, however uneven the workers") {
  int many = 0;
  for (std::uint64_t seed = 1; seed <= (under_mpi() ? 12 : 40); ++seed) {
    const Run run = random_run(seed, under_mpi() ? processes().size() : 0);
    const std::string about = text(run);
    CAPTURE(seed, about);
    const Index steps = run.epochs * ((run.samples + run.batch - 1) / run.batch);
    const auto look = [&](const Result& r) {
      CHECK(farthest(r.applied, run.epochs) < 1e-9);
      CHECK(r.sends_as_planned);
      if (!under_mpi() || processes().rank() < run.workers) CHECK(r.steps == steps);
    };
    look(train(run));
    if (under_mpi()) continue;
    const int ranks = run.workers + run.servers.servers;
    const Cluster slow = uneven(ranks, static_cast<int>(seed) % run.workers, 0.5, seed % 2 == 0 ? 0.5 : 0, seed);
    const Result once = train(run, slow);
    look(once);
    CHECK(train(run, slow) == once);
    int all = 0;
    for (const auto& [rank, tickets] : once.trained) all += tickets;
    many += all > steps * (run.workers - run.servers.backup);  // some were trained again
  }
  if (!under_mpi()) CHECK(many > 5);
}

TEST_CASE("who is fast takes more tickets, and the epoch is over when all are done") {
  if (threads_only()) return;
  for (const ParameterServerOptions& o :
       {ParameterServerOptions{.mode = "async"}, ParameterServerOptions{.servers = 2, .mode = "async"},
        ParameterServerOptions{.mode = "ssp", .staleness = 8}}) {
    const Run run{.servers = o, .workers = 4, .batch = 8, .samples = 160};
    CAPTURE(o.mode, o.servers);
    const int ranks = run.workers + o.servers;
    const Result even = train(run, uneven(ranks, 0, 1)), slow = train(run, uneven(ranks, 0)),
                 slower = train(run, uneven(ranks, 0, 0.1));
    int all = 0;
    for (const auto& [rank, tickets] : slow.trained) all += tickets;
    CHECK(all == 20 * run.workers);  // each once
    CHECK(even.trained.at(0) == 20);
    CHECK(slow.trained.at(0) < 15);
    // Shares of their own would take the slow worker twice, and ten times as long.
    CHECK(*std::ranges::max_element(slow.ends) < 1.4 * *std::ranges::max_element(even.ends));
    if (o.mode == "ssp") continue;  // others wait for it by then
    CHECK(slower.trained.at(0) < slow.trained.at(0));
    CHECK(*std::ranges::max_element(slower.ends) < 3 * *std::ranges::max_element(even.ends));
  }
  const Run backed{.servers = {.backup = 1}, .workers = 4, .batch = 9, .samples = 180};
  const Result even = train(backed, uneven(5, 0, 1)), slow = train(backed, uneven(5, 0, 0.3));
  CHECK(*std::ranges::max_element(slow.ends) < 1.4 * *std::ranges::max_element(even.ends));
  CHECK(slow.trained.at(0) < 10);
}

TEST_CASE("ssp(0) with tickets equals sync for plain SGD: no ticket is trained with weights of before") {
  if (threads_only()) return;
  for (const int workers : {1, 2, 4})
    for (const int servers : {1, 2}) {
      Run run{.servers = {.servers = servers}, .workers = workers, .batch = 8, .samples = 40};
      run.intervals = {2, 1};
      run.epochs = 2;
      run.lr = 0.5;
      run.classifies = true;
      CAPTURE(workers, servers);
      const Result sync = train(run);
      run.servers.mode = "ssp";
      run.servers.staleness = 0;
      CHECK(distance(train(run).weights, sync.weights) < 1e-12);
      CHECK(distance(train(run, uneven(workers + servers, 0)).weights, sync.weights) < 1e-12);
    }
}

TEST_CASE("with tickets, too, a run is repeated by its order of arrivals, and goes on from a checkpoint") {
  if (threads_only()) return;
  int differing = 0;
  for (const ParameterServerOptions& o :
       {ParameterServerOptions{.servers = 2, .mode = "async"}, ParameterServerOptions{.mode = "ssp", .staleness = 2},
        ParameterServerOptions{.backup = 1}, ParameterServerOptions{.servers = 3, .backup = 2}})
    for (const int workers : {3, 5}) {
      CAPTURE(o.mode, o.servers, o.backup, workers);
      const Temporary first, half;
      Run run{.servers = o, .workers = workers, .batch = 15, .samples = 90};
      run.intervals = {2, 3};
      run.epochs = 2;
      run.lr = 0.3;
      run.momentum = 0.9;
      run.classifies = true;
      Run replay = run;
      run.save = first.path();
      replay.replay = first.path();
      const std::vector<double> recorded = train(run, uneven(workers + o.servers, 1, 0.4, 0.5, 7)).weights;
      differing += train(run, uneven(workers + o.servers, 0, 0.7, 0.5, 3)).weights != recorded;
      run.save = first.path();
      const std::vector<double> threads = train(run).weights;
      CHECK(train(replay).weights == threads);
      CHECK(train(replay, uneven(workers + o.servers, 0)).weights == threads);

      Run begin{.servers = o, .workers = workers, .batch = 15, .samples = 90};
      begin.save = half.path();
      Run rest = begin;
      rest.save = "";
      rest.resume = half.path();
      rest.from = 1;
      CHECK(farthest(train(begin).applied, 1) < 1e-9);
      const Result both = train(rest);
      CHECK(farthest(both.applied, 2) < 1e-9);
      CHECK(both.steps == 12);
    }
  CHECK(differing > 4);
}

TEST_CASE("a queue of tickets hands out what comes back, and none twice") {
  if (threads_only()) return;
  TicketQueue queue;
  queue.open(7, {4, 5}, 2);  // 4 has 0 and 2, 5 has 1 and 3
  CHECK(TicketQueue::first(7, 1, 2, 2) == std::deque<std::int64_t>{1, 3});
  CHECK(TicketQueue::first(2, 1, 2, 2) == std::deque<std::int64_t>{1});
  CHECK(queue.left() == 7);
  queue.finish(4);
  CHECK(queue.take(4) == 4);
  queue.give_back(5);  // it is dead
  CHECK(queue.left() == 6);
  for (const std::int64_t number : {1, 3, 5, 6, -1}) CHECK(queue.take(4) == number);
  for (int i = 0; i < 6; ++i) queue.finish(4);
  CHECK(queue.left() == 0);
  CHECK_ERROR(queue.finish(5), internal, "tickets", 5);
  queue.open(1, {4, 5}, 1);
  CHECK(queue.take(5) == -1);
  CHECK_ERROR(queue.open(1, {4, 5}, 1), internal, "tickets", 1);
  queue.give_back_all();
  CHECK(queue.take(5) == 0);
}

TEST_CASE("plans with tickets are sound, and synchronous ones stay as they are") {
  if (threads_only()) return;
  const auto plan_of = [](const ParameterServerOptions& o, int ranks, bool wanted) {
    Plan plan = chain();
    plan.axes = {{"data", ranks}};
    plan.wants_tickets = wanted;
    return parameter_server(o)(std::move(plan));
  };
  for (int workers = 1; workers <= 5; ++workers)
    for (int servers = 1; servers <= 3; ++servers)
      for (int kind = 0; kind < 3 + workers - 1; ++kind) {
        ParameterServerOptions o{.servers = servers};
        if (kind < 3) {
          o.mode = kind == 0 ? "async" : "ssp";
          o.staleness = kind - 1;
        }
        if (kind >= 3) o.backup = kind - 2;
        const Plan plan = plan_of(o, workers + servers, true);
        CAPTURE(workers, servers, kind);
        CHECK(faults(plan, workers + servers) == "");
        CHECK(plan.tickets == workers - o.backup);
        CHECK(plan.hash() != plan_of(o, workers + servers, false).hash());
      }
  CHECK(plan_of({}, 4, true).programs == plan_of({}, 4, false).programs);
  CHECK(plan_of({}, 4, true).hash() == plan_of({}, 4, false).hash());
  Plan plan = plan_of({.servers = 2, .backup = 1}, 5, true);
  std::erase_if(plan.programs[1].actions, [](const Action& a) { return a.payload == OperandKind::senders; });
  CHECK(faults(plan, 5).find("deadlock") != std::string::npos);
  plan = plan_of({}, 5, true);
  plan.tickets = 4;
  CHECK(faults(plan, 5).find("0 programs hand out tickets") != std::string::npos);
  plan = plan_of({.mode = "async"}, 5, true);
  std::erase_if(plan.programs[0].actions, [](const Action& a) { return a.payload == OperandKind::ticket; });
  CHECK(faults(plan, 5).find("no phase takes them") != std::string::npos);
}

TEST_CASE("tickets that are used otherwise are refused in a line") {
  if (threads_only()) return;
  const auto refused = [](const std::function<void(Step&)>& use) {
    World::threads(2, [&](World& world) {
      Step step(Linear(3, 2), cross_entropy, Sgd{}, world, parameter_server({.mode = "async"}), {.tickets = true});
      use(step);
    });
  };
  const Tensor x = Tensor::zeros({2, 3}), y = Tensor::zeros({2}, DType::i64);
  CHECK_ERROR(refused([&](Step& s) { s(x, y); }), usage, "step");
  CHECK_ERROR(refused([&](Step& s) { StepTickets(s).open(0); }), usage, "step", 1);
  CHECK_ERROR(refused([&](Step& s) {
                StepTickets(s).open(2);
                StepTickets(s).open(2);
              }),
              usage, "step", 2);
  CHECK_ERROR(refused([&](Step& s) {
                StepTickets(s).open(2);
                s.checkpoint_shard();
              }),
              usage, "step");
}

}  // namespace test_tickets
