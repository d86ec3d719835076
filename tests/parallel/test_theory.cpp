// The simulator beside formulas: how long pipeline schedules take by theory, for all stages and micro-batches, with and
// without messages that take time; and beside the longest path through the cells of a schedule, stages of any cost.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "parallel/analysis/simulate.h"
#include "parallel/strategies/schedules.h"
#include "parallel/strategies/strategy.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_theory {

using namespace trireme;
using namespace trireme::test;

namespace {

/// p stages of v chunks, m micro-batches; nanoseconds of a chunk's forward and of the halves of its backward, and of a
/// message.
struct Stages {
  int p, m, v = 1, steps = 1;
  double forward, input, weight, message = 0;
  double backward() const { return input + weight; }
  double work() const { return steps * double(m) * v * (forward + backward()); }  ///< of a rank
  /// Of all ranks, what an asynchronous schedule leaves to later steps: on each as many backwards as there are stages
  /// behind.
  double in_flight() const {
    double all = 0;
    for (int behind = 0; behind < p; ++behind) all += std::min(behind, m * steps) * backward();
    return all;
  }
};

/// What a schedule takes by theory; nothing: no formula is known for the shape.
struct Theory {
  std::function<double(const Stages&)> idle;        ///< of every rank, from the first one's begin to the last one's end
  std::function<double(const Stages&)> waits = {};  ///< that messages add, each no longer than a forward or a backward
};
/// Formulas of papers, and what they do not say: fewer micro-batches than stages, halves that differ, messages.
const std::map<std::string, Theory>& theories() {
  const auto flush = [](const Stages& s) { return (s.p - 1) * (s.forward + s.backward()); };
  const auto fill = [](const Stages& s) { return (s.p - 1) * s.forward; };  // once, not in every step
  static const std::map<std::string, Theory> table = {
      // (p - 1) / m (Huang et al., arXiv 1811.06965). Messages delay each of the two waves once.
      {"gpipe", {flush, [](const Stages& s) { return 2 * (s.p - 1) * s.message; }}},
      // The same (Narayanan et al., arXiv 2104.04473, 2.2.1). Of p micro-batches in flight a round trip holds up all
      // but one.
      {"1f1b",
       {flush,
        [](const Stages& s) {
          const int rounds = s.m - 1, hidden = (rounds + s.p - 1) / s.p;
          return 2 * (s.p - 1 + rounds - hidden) * s.message;
        }}},
      // (p - 1) / (v m) (ibid., 2.2.2).
      {"interleaved", {flush}},
      // (p - 1)(F + I - W) (Qi et al., arXiv 2401.10241, table 1) where W is the least of the three: what is put into a
      // gap ends no earlier than the next F or I may begin. Each micro-batch but the first brings one.
      {"zb-h1", {[](const Stages& s) {
         return (s.p - 1) * (s.forward + s.input) -
                std::min(s.m - 1, s.p - 1) * std::min({s.forward, s.input, s.weight});
       }}},
      // No bubble but that of the first step, which fills the stages (arXiv 1806.03377, 2006.09503).
      {"pipedream", {fill}},
      {"2bw", {fill}}};
  return table;
}

std::vector<PipelineSchedule> all_schedules() {
  std::vector<PipelineSchedule> all = schedules();
  all.insert(all.end(), asynchronous_schedules().begin(), asynchronous_schedules().end());
  return all;
}

/// Stage costs: of a chunk by its place in the model.
Plan plan_of(const PipelineSchedule& schedule, int p, int m, const std::vector<PartCost>& chunks) {
  std::vector<PartInfo> parts;
  for (std::size_t i = 0; i < chunks.size(); ++i)
    parts.push_back({.name = std::to_string(i),
                     .slice = {static_cast<Index>(10 * i), static_cast<Index>(10 * i + 10)},
                     .cost = chunks[i]});
  return pipeline(
      {.micro = m, .schedule = schedule.name, .chunks = static_cast<int>(chunks.size()) / p, .partition = "even"})(
      serial(parts, std::ssize(parts) * 10, 0, {{"pipe", p}}));
}
Simulation simulation_of(const PipelineSchedule& schedule, const Stages& s) {
  const PartCost each{.forward = s.forward / 1e9,
                      .backward_input = s.input / 1e9,
                      .backward_weight = s.weight / 1e9,
                      .saved = 8,
                      .output = 100};
  return simulate(plan_of(schedule, s.p, s.m, std::vector(static_cast<std::size_t>(s.p * s.v), each)),
                  {.cluster = flat_cluster(s.p, {.latency = s.message / 1e9}), .steps = s.steps});
}
bool fits(const PipelineSchedule& schedule, const Stages& s) {
  try {
    check_shape(schedule, {.programs = s.p, .microbatches = s.m, .chunks = s.v});
    return true;
  } catch (const Error&) { return false; }
}
bool equal(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b)); }

/// Of the shapes that the schedule takes, with costs that follow from their numbers; every: of that many one.
void for_shapes(const PipelineSchedule& schedule, int every, const std::function<void(Stages)>& body) {
  std::uint64_t at = 0;
  int number = 0;
  const auto below = [&](int n) { return static_cast<double>(mix(at++) % static_cast<std::uint64_t>(n)); };
  for (int p = 2; p <= 16; ++p)
    for (const int m : {1, 2, 3, p - 1, p, p + 1, 2 * p - 1, 2 * p, 3 * p, 37, 64})
      for (int v = schedule.folds ? 2 : 1; v <= (schedule.folds ? 2 : schedule.interleaves ? 4 : 1); ++v)
        for (const bool even : {true, false}) {
          Stages s{.p = p, .m = m, .v = v, .forward = 1000, .input = 1000, .weight = 1000};
          if (!even) {
            s.forward = 1 + below(5000);
            s.input = 1 + below(5000);
            s.weight = below(5000);
          }
          if (schedule.delay) s.steps = 1 + static_cast<int>(below(4));
          if (fits(schedule, s) && number++ % every == 0) body(s);
        }
}
int all_or_some() { return brief() ? 7 : 1; }

/// When the last cell of a synchronous schedule ends, found from the cells alone: each begins when the one before it on
/// its rank has ended, and what its neighbour sent has come; a rank's messages go one by one. Nanoseconds.
double longest_path(const PipelineSchedule& schedule, int p, int m, const std::vector<PartCost>& chunks,
                    double message) {
  const int stages = static_cast<int>(chunks.size());
  const PipelineShape shape{.programs = p, .microbatches = m, .chunks = stages / p};
  using Key = std::tuple<int, MicroBatch, bool>;  // stage, micro-batch, and whether it is an activation that comes
  std::map<Key, double> come;
  for (int k = 0; k < m; ++k) come[{0, k, true}] = 0;
  std::vector<std::vector<Cell>> cells;
  for (int r = 0; r < p; ++r) cells.push_back(schedule.cells(shape, r));
  std::vector<std::size_t> next(static_cast<std::size_t>(p));
  std::vector<double> now(next.size()), link(next.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < next.size(); ++r)
      for (; next[r] < cells[r].size(); ++next[r], moved = true) {
        const Cell& c = cells[r][next[r]];
        const int stage = stage_of(schedule, shape, static_cast<int>(r), c.chunk);
        PartCost cost = chunks[static_cast<std::size_t>(stage)];
        const bool turns = schedule.folds && static_cast<int>(r) + 1 == p;  // two stages are one chunk
        if (turns) {
          const PartCost& second = chunks[static_cast<std::size_t>(stage) + 1];
          cost.forward += second.forward;
          cost.backward_input += second.backward_input;
          cost.backward_weight += second.backward_weight;
        }
        const bool forward = c.kind == ActionKind::forward, halves = c.kind == ActionKind::backward_weight;
        if (!halves) {
          const auto input = come.find({stage + (turns && !forward ? 1 : 0), c.microbatch, forward});
          if (input == come.end()) break;
          now[r] = std::max(now[r], input->second);
        }
        if (forward) now[r] += cost.forward;
        if (c.kind == ActionKind::backward || c.kind == ActionKind::backward_input) now[r] += cost.backward_input;
        if (c.kind == ActionKind::backward || halves) now[r] += cost.backward_weight;
        if (halves) continue;
        const int to = stage + (forward ? (turns ? 2 : 1) : -1);
        if (to == stages) come[{to - 1, c.microbatch, false}] = now[r];  // the loss
        if (to < 0 || to == stages) continue;
        link[r] = std::max(link[r], now[r]) + message;
        come[{to, c.microbatch, forward}] = p == 1 ? now[r] : link[r];
      }
  }
  for (std::size_t r = 0; r < next.size(); ++r)
    if (next[r] < cells[r].size()) return -1;
  return *std::ranges::max_element(now);
}

}  // namespace

TEST_CASE("every schedule's bubble is that of theory, for 2 to 16 stages") {
  for (const PipelineSchedule& schedule : all_schedules()) {
    if (schedule.folds) continue;  // has no formula, but limits: the next test
    INFO(schedule.name << ": a schedule wants a row in theories()");
    REQUIRE(theories().contains(schedule.name));
    const Theory& theory = theories().at(schedule.name);
    int compared = 0;
    for_shapes(schedule, all_or_some(), [&](const Stages& s) {
      const Simulation simulation = simulation_of(schedule, s);
      CAPTURE(s.p, s.m, s.v, s.steps, s.forward, s.input, s.weight);
      CHECK(equal(simulation.makespan * 1e9, s.work() + theory.idle(s)));
      const double busy = s.p * s.work() - (schedule.delay ? s.in_flight() : 0);
      CHECK(equal(simulation.bubble, s.p * (s.work() + theory.idle(s)) / busy - 1));
      ++compared;
    });
    CHECK(compared >= 5);
  }
}

// Qi et al., arXiv 2401.10241: of equal passes and halves, the last stages of a V wait for as many forwards as there
// are programs before them, and no program waits longer. With limits of the shape the gaps do not always fit. DualPipeV
// (arXiv 2412.19437) needs two micro-batches per program, holds one chunk more, and waits one unit more if p is odd.
TEST_CASE("a V waits little more than for its first micro-batch, with 1F1B's activations") {
  for (const char* name : {"zb-v", "dualpipe-v"}) {
    const PipelineSchedule& schedule = find_schedule(name);
    const bool dual = schedule.name == "dualpipe-v";
    int exact = 0, compared = 0;
    for_shapes(schedule, all_or_some(), [&](const Stages& s) {
      if (s.forward != s.input || s.forward != s.weight || s.m < (dual ? 2 : 1) * s.p) return;
      const Simulation simulation = simulation_of(schedule, s);
      CAPTURE(name, s.p, s.m, simulation.makespan);
      const double idle = simulation.makespan * 1e9 - s.work(), least = (s.p - 1) * s.forward;
      if (dual)
        CHECK(equal(idle, least + (s.p > 1 && s.p % 2 == 1 ? s.forward : 0)));
      else
        CHECK((idle >= least * (1 - 1e-9) && idle <= 1.5 * least * (1 + 1e-9)));
      exact += equal(idle, least);
      ++compared;
      for (int r = 0; r < s.p; ++r)
        CHECK(simulation.in_flight[static_cast<std::size_t>(r)] <= 2 * s.p + (dual ? 1 : 0));
    });
    CHECK(compared >= 5);
    if (!dual) CHECK(4 * exact >= 3 * compared);
  }
}

TEST_CASE("an asynchronous schedule's step has no bubble once its stages are full") {
  for (const PipelineSchedule& schedule : asynchronous_schedules())
    for_shapes(schedule, 3 * all_or_some(), [&](Stages s) {
      s.steps = 1;
      const double one = simulation_of(schedule, s).makespan, work = s.work();
      s.steps = 6;
      CAPTURE(schedule.name, s.p, s.m);
      CHECK(equal((simulation_of(schedule, s).makespan - one) * 1e9, 5 * work));
    });
}

TEST_CASE("messages make a schedule longer by as much as theory says") {
  int known = 0;
  for (const PipelineSchedule& schedule : all_schedules()) {
    if (schedule.folds || !theories().at(schedule.name).waits) continue;
    const Theory& theory = theories().at(schedule.name);
    ++known;
    for_shapes(schedule, 3 * all_or_some(), [&](Stages s) {
      for (const double share : {0.001, 0.3, 1.0}) {
        s.message = std::floor(share * std::min(s.forward, s.backward()));
        CAPTURE(schedule.name, s.p, s.m, s.forward, s.input, s.weight, s.message);
        CHECK(equal(simulation_of(schedule, s).makespan * 1e9, s.work() + theory.idle(s) + theory.waits(s)));
      }
    });
  }
  CHECK(known >= 2);
  // GPipe's two waves go at the pace of whichever is slower, a stage or its link.
  for_shapes(find_schedule("gpipe"), 3 * all_or_some(), [](Stages s) {
    s.message = 1.7 * std::max(s.forward, s.backward());
    s.message = std::floor(s.message);
    const double wave = s.p * (s.forward + s.backward()) + 2 * (s.p - 1) * s.message + 2 * (s.m - 1) * s.message;
    CHECK(equal(simulation_of(find_schedule("gpipe"), s).makespan * 1e9, wave));
  });
}

TEST_CASE("stages of any cost take as long as the longest path through a schedule's cells") {
  std::uint64_t at = 0;
  const auto below = [&](int n) { return static_cast<double>(mix(at++) % static_cast<std::uint64_t>(n)); };
  for (const PipelineSchedule& schedule : schedules()) {
    int compared = 0;
    for_shapes(schedule, 3 * all_or_some(), [&](const Stages& s) {
      std::vector<PartCost> chunks, seconds;
      for (int i = 0; i < s.p * s.v; ++i) {
        chunks.push_back({.forward = below(9000), .backward_input = below(9000), .backward_weight = below(9000)});
        const PartCost& c = chunks.back();
        seconds.push_back({.forward = c.forward / 1e9,
                           .backward_input = c.backward_input / 1e9,
                           .backward_weight = c.backward_weight / 1e9,
                           .output = 1});
      }
      const double message = below(3) * below(20000);
      const Simulation simulation =
          simulate(plan_of(schedule, s.p, s.m, seconds), {.cluster = flat_cluster(s.p, {.latency = message / 1e9})});
      CAPTURE(schedule.name, s.p, s.m, s.v, message);
      CHECK(equal(simulation.makespan * 1e9, longest_path(schedule, s.p, s.m, chunks, message)));
      ++compared;
    });
    CHECK(compared >= 10);
  }
}

TEST_CASE("a collective takes what its closed form says") {
  // Rings (Patarasuk and Yuan, JPDC 69, 2009), and chains for what one rank begins or ends with.
  const std::map<CallKind, std::function<double(double p, double n, double a, double b)>> forms = {
      {CallKind::all_reduce,
       [](double p, double n, double a, double b) { return 2 * (p - 1) * a + 2 * (p - 1) / p * n * b; }},
      {CallKind::reduce_scatter,
       [](double p, double n, double a, double b) { return (p - 1) * a + (p - 1) / p * n * b; }},
      {CallKind::all_gather, [](double p, double n, double a, double b) { return (p - 1) * a + (p - 1) / p * n * b; }},
      {CallKind::all_to_all, [](double p, double n, double a, double b) { return (p - 1) * a + (p - 1) / p * n * b; }},
      {CallKind::broadcast, [](double p, double n, double a, double b) { return (p - 1) * a + n * b; }},
      {CallKind::reduce, [](double p, double n, double a, double b) { return (p - 1) * a + n * b; }},
      {CallKind::gather, [](double p, double n, double a, double b) { return (p - 1) * a + n * b; }},
      {CallKind::scatter, [](double p, double n, double a, double b) { return (p - 1) * a + n * b; }},
      {CallKind::barrier, [](double p, double, double a, double) { return (p - 1) * a; }},
      {CallKind::split, [](double p, double, double a, double) { return (p - 1) * a; }},
      {CallKind::send, [](double, double n, double a, double b) { return a + n * b; }}};
  std::uint64_t at = 0;
  const auto below = [&](int n) { return static_cast<double>(mix(at++) % static_cast<std::uint64_t>(n)); };
  for (const auto& [kind, form] : forms)
    for (const int ranks : {2, 3, 5, 8, 64, 1000, 131072})
      for (int repeat = 0; repeat < 20; ++repeat) {
        Link link{.latency = below(1000) * 1e-6, .bandwidth = repeat == 0 ? 0 : 1e6 * (1 + below(1000000))};
        if (repeat % 2) {
          link.efficiency = (1 + below(100)) / 100;
          link.oversubscription = 1 + below(40) / 10;
        }
        const auto bytes = static_cast<Index>(below(1 << 30));
        const double b = link.bandwidth > 0 ? link.oversubscription / (link.efficiency * link.bandwidth) : 0;
        const double seconds = form(ranks, static_cast<double>(bytes), link.latency, b);
        CAPTURE(static_cast<int>(kind), ranks, bytes, link.latency, link.bandwidth);
        CHECK(std::abs(static_cast<double>(collective_time(link, kind, ranks, bytes)) - seconds * 1e9) <=
              0.5 + 1e-9 * seconds * 1e9);
        CHECK(collective_time(link, kind, 1, bytes) == 0);
      }
}

TEST_CASE("by sizes of MPICH collectives take rounds of the logarithm of the ranks, and rings beyond") {
  using collectives::cost, collectives::find_algorithm;
  Link link{.latency = 6e-6, .bandwidth = 25e9, .efficiency = 0.9, .sizes = mpich_sizes};
  const double a = link.latency, b = link.per_byte();
  // A loss among 256 ranks: eight rounds, not 510.
  CHECK(collective_time(link, CallKind::all_reduce, 256, 4) == nanoseconds(8 * (a + 4 * b)));
  CHECK(collective_time(link, CallKind::all_reduce, 256, 2048) == nanoseconds(8 * (a + 2048 * b)));
  CHECK(collective_time(link, CallKind::all_reduce, 256, 2049) == nanoseconds(2 * (8 * a + 255 / 256.0 * 2049 * b)));
  CHECK(collective_time(link, CallKind::all_reduce, 256, 524289) == nanoseconds(510 * (a + 524289 / 256.0 * b)));
  CHECK(collective_time(link, CallKind::barrier, 100, 0) == nanoseconds(7 * a));
  CHECK(collective_time(link, CallKind::gather, 100, 1000) == nanoseconds(7 * a + 1000 * b));
  CHECK(collective_time(link, CallKind::all_to_all, 100, 1000) == nanoseconds(99 * (a + 10 * b)));
  CHECK(algorithm_of(link, CallKind::all_reduce, 8, 4) == "recursive doubling");
  CHECK(algorithm_of(link, CallKind::all_gather, 8, 524288) == "halving and doubling");
  CHECK(algorithm_of(link, CallKind::all_gather, 8, 524289) == "ring");
  // As the rounds of the algorithms, whose blocks are whole bytes.
  std::uint64_t at = 0;
  const auto below = [&](int n) { return static_cast<Index>(mix(at++) % static_cast<std::uint64_t>(n)); };
  for (const int ranks : {2, 3, 4, 7, 8, 24, 64, 100, 256, 1000})
    for (int repeat = 0; repeat < 10; ++repeat) {
      link.latency = static_cast<double>(below(1000)) * 1e-8;
      const Index small = below(2048) + 1, large = 2049 + below(522000);
      const auto agrees = [&](CallKind kind, Index bytes, const char* algorithm, double blocks) {
        const double seconds = cost(find_algorithm(algorithm), kind, ranks, bytes, {link.latency, link.per_byte()});
        CAPTURE(name_of(kind), ranks, bytes, algorithm);
        CHECK(std::abs(static_cast<double>(collective_time(link, kind, ranks, bytes)) - 1e9 * seconds) <=
              1 + blocks * 1e9 * link.per_byte());
      };
      const double levels = std::log2(ranks) + 2;
      agrees(CallKind::all_reduce, small, "recursive_doubling", 0);
      agrees(CallKind::all_reduce, large, "rabenseifner", 2 * levels);
      agrees(CallKind::reduce, small, "tree", 0);
      agrees(CallKind::broadcast, small, "tree", 0);
      if (std::has_single_bit(static_cast<unsigned>(ranks)))
        for (const CallKind kind : {CallKind::reduce_scatter, CallKind::all_gather, CallKind::broadcast})
          agrees(kind, large, "rabenseifner", 2 * levels);
    }
  link.sizes = {};
  CHECK(collective_time(link, CallKind::all_reduce, 256, 4) == nanoseconds(510 * (link.latency + 4 / 256.0 * b)));
}

TEST_CASE("between the sizes at which a call was measured its time is on the line through them") {
  Link link{.latency = 1, .bandwidth = 1};
  for (const Index kilobytes : {64, 1, 8})  // in any order
    link.measured.push_back({CallKind::all_reduce, 4, kilobytes * 1000, 1e-3 + 1e-6 * static_cast<double>(kilobytes)});
  const auto time = [&](Index bytes) { return collective_time(link, CallKind::all_reduce, 4, bytes); };
  for (Index bytes = 1000; bytes <= 64000; bytes += 371) CHECK(std::abs(time(bytes) - (1000000 + bytes)) <= 1);
  CHECK(time(0) == time(1000));            // no less than the smallest
  CHECK(time(128000) == 2 * time(64000));  // beyond: in proportion
  CHECK(collective_time(link, CallKind::all_reduce, 5, 1000) == nanoseconds(8 * (1 + 200.0)));
  CHECK(collective_time(link, CallKind::all_gather, 4, 1000) == nanoseconds(3 * (1 + 250.0)));
}

}  // namespace test_theory
