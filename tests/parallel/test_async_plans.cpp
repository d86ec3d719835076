// Plans of asynchronous pipelines (schedules pipedream and 2bw): what they say of versions and memory, faults planted
// in them, their simulation, and what is refused.
#include "parallel/analysis/simulate.h"
#include "parallel/model/memory.h"
#include "parallel/plan/liveness.h"
#include "parallel/strategies/on_call.h"
#include "tests/parallel/plans.h"

namespace test_async_plans {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Parts of 8 numbers that all cost the same.
Plan planned(const PipelineOptions& o, int stages, int parts = 0) {
  std::vector<PartInfo> all;
  parts = std::max(parts, stages);
  for (Index p = 0; p < parts; ++p) all.push_back({std::to_string(p), {p * 8, p * 8 + 8}, {1, 1, 1, 16, 100}});
  return pipeline(o)(serial(all, parts * 8, 0, {{"pipe", stages}}));
}

}  // namespace

TEST_CASE("plans of asynchronous pipelines are sound, and say versions, delays and memory") {
  for (int stages = 2; stages <= 6; ++stages)
    for (int extra = 0; extra <= 3; ++extra)
      for (const char* schedule : {"2bw", "pipedream"}) {
        const bool two = schedule == std::string("2bw");
        const Plan plan =
            with_phases_on_call(planned({.micro = two ? stages + extra : 1, .schedule = schedule, .partition = "even"},
                                        stages, stages + extra),
                                {});
        INFO(plan.to_string());
        CHECK(faults(plan, 1) == "");
        CHECK(plan.consistency.at("pipe") ==
              Consistency{Consistency::Kind::stale, two ? 1 : static_cast<std::int64_t>(stages - 1)});
        const auto memory = predict_memory(plan);
        for (int s = 0; s < stages; ++s) {
          const Program& program = plan.programs[static_cast<std::size_t>(s)];
          CHECK(program.versions == (two ? 2 : stages - s));
          CHECK(peak_in_flight(program) == stages - s);
          Index weights = 0;
          for (const Slice& u : plan.updated(static_cast<std::size_t>(s))) weights += u.size();
          CHECK(memory[static_cast<std::size_t>(s)].weights == weights * program.versions * 4);
          CHECK(memory[static_cast<std::size_t>(s)].gradients == weights * 4);
        }
        CHECK(plan.to_string().find("weights along pipe: stale") != std::string::npos);
        CHECK(plan.summary().find(two ? "2 versions of its weights" : "versions of its weights") != std::string::npos);
      }
}

TEST_CASE("check finds what is wrong with versions of weights and with micro-batches that outlive their steps") {
  for (const char* schedule : {"2bw", "pipedream"}) {
    const bool two = schedule == std::string("2bw");
    Plan plan = planned({.micro = two ? 4 : 1, .schedule = schedule, .partition = "even"}, 3);
    REQUIRE(faults(plan, 1) == "");
    Program& first = plan.programs[0];
    const auto backward = static_cast<std::size_t>(find(first, ActionKind::backward));
    const auto update = static_cast<std::size_t>(find(first, ActionKind::update));
    SECTION(std::string(schedule) + ": a version is read after it was overwritten") {
      --first.versions;
      check_finds(plan, "the action reads one that was overwritten", 1);
    }
    SECTION(std::string(schedule) + ": backward reads other weights than forward did") {
      --first.actions[backward].version;
      check_finds(plan, "reads another version of the weights than program stage 0, action", 1);
    }
    SECTION(std::string(schedule) + ": versions that nobody reads") {
      ++first.versions;
      check_finds(plan, "of its weights, but its passes read only", 1);
    }
    SECTION(std::string(schedule) + ": gradients are older than promised") {
      --plan.consistency["pipe"].bound;
      check_finds(plan, "uses gradients of weights", 1);
    }
    SECTION(std::string(schedule) + ": too many micro-batches in flight") {
      --first.in_flight;
      check_finds(plan, "micro-batches in flight, but Program::in_flight allows 2", 1);
    }
    SECTION(std::string(schedule) + ": an update of a step that has no backward before it") {
      first.actions[update].microbatch.steps_ago -= 1;
      check_finds(plan, "before the backward that completes it", 1);
    }
    SECTION(std::string(schedule) + ": an update that comes too late") {
      first.actions[update].microbatch.steps_ago += 1;
      check_finds(plan, "of the next step is begun by action", 1);
    }
    SECTION(std::string(schedule) + ": a backward is missing") {
      first.actions[backward] = {.kind = ActionKind::drop, .payload = OperandKind::weights};
      check_finds(plan, "is never run backward", 1);
    }
    SECTION(std::string(schedule) + ": a gradient is received a step too early") {
      Program& middle = plan.programs[1];
      middle.actions[static_cast<std::size_t>(find(middle, ActionKind::backward))].microbatch.steps_ago += 2;
      check_finds(plan, "does not wait for", 1);
    }
    SECTION(std::string(schedule) + ": a forward of a step before") {
      first.actions[static_cast<std::size_t>(find(first, ActionKind::forward))].microbatch.steps_ago += 1;
      check_finds(plan, "uses a micro-batch of an earlier step: only backwards", 1);
    }
  }
}

TEST_CASE("asynchronous pipelines are simulated without deadlock, and have fewer bubbles than those that flush") {
  for (int stages = 2; stages <= 4; ++stages) {
    const auto seconds = [&](const char* schedule, int micro) {
      return simulate(planned({.micro = micro, .schedule = schedule, .partition = "even"}, stages), {.steps = 20})
          .makespan;
    };
    const int micro = 2 * stages;
    CHECK(seconds("2bw", micro) < seconds("1f1b", micro));
    CHECK(seconds("2bw", micro) >= 20 * micro * 3.0);
    CHECK(seconds("pipedream", 1) < seconds("1f1b", 1));
  }
}

TEST_CASE("what does not go together with asynchronous pipelines is refused in a line") {
  const std::map<std::string, std::string> refused = {
      {"pipeline(schedule=2bw, micro=2)", "schedule=2bw with 3 stages"},
      {"pipeline(schedule=pipedream, micro=2)", "micro is 2: use micro=1"},
      {"pipeline(schedule=2bw, chunks=2)", "chunks"},
      {"pipeline(schedule=2bw) | data_parallel | zero(1)", "use schedule=1f1b"},
      {"pipeline(schedule=2bw) | data_parallel | central_storage", "use schedule=1f1b"},
      {"pipeline(schedule=pipedream) | data_parallel | compress(topk)", "use schedule=1f1b"},
      {"pipeline(schedule=2bw) | local_sgd", "use schedule=1f1b"},
      {"pipeline(schedule=2bw) | gossip", "use schedule=1f1b"},
      {"pipeline(schedule=2bw) | data_parallel(norm_scope=global)", "norm_scope=global"},
      {"pipeline(schedule=2bx)", "2bw"}};
  std::vector<PartInfo> parts;
  for (Index p = 0; p < 3; ++p) parts.push_back({std::to_string(p), {p * 8, p * 8 + 8}});
  for (auto& [text, words] : refused) {
    INFO(text);
    std::string what;
    try {
      (void)parse_strategy(text)(serial(parts, 24, 0, {{"data", 2}, {"pipe", 3}}));
    } catch (const Error& e) { what = e.what(); }
    CHECK(what.find(words) != std::string::npos);
    CHECK(what.find('\n') == std::string::npos);
  }
}

}  // namespace test_async_plans
