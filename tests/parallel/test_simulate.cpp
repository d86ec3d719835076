// The simulator: bubbles of the schedules, times of messages and collectives.
#include "parallel/analysis/simulate.h"

#include <nlohmann/json.hpp>

#include "framework/autograd/tape.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "parallel/analysis/draw.h"
#include "parallel/model/part_costs.h"
#include "parallel/strategies/strategy.h"
#include "tests/support/catch.h"

namespace test_simulate {

using namespace trireme;
using trireme::test::contains;

namespace {

std::vector<PartInfo> equal_parts(int n, Index each = 10) {
  std::vector<PartInfo> parts;
  for (int i = 0; i < n; ++i)
    parts.push_back({.name = std::to_string(i),
                     .slice = {i * each, (i + 1) * each},
                     .cost = {.forward = 1, .backward_input = 1, .backward_weight = 1, .saved = 8, .output = 100}});
  return parts;
}

Action message(ActionKind kind, int part, int microbatch, int offset) {
  Action a{kind, Stream::comm, part, microbatch};
  a.peer = {"pipe", offset};
  a.payload = (kind == ActionKind::send) == (offset > 0) ? OperandKind::activation : OperandKind::cotangent;
  return a;
}
/// After the action before it.
void append(Program& program, Action a) {
  a.after.push_back(static_cast<int>(program.actions.size()) - 1);
  program.actions.push_back(std::move(a));
}

/// One part a stage; all forwards, then all backwards.
Plan gpipe_by_hand(int stages, int microbatches) {
  Plan plan = serial(equal_parts(stages), stages * 10);
  plan.microbatches = microbatches;
  plan.programs.clear();
  for (int s = 0; s < stages; ++s) {
    Program program{"stage " + std::to_string(s), {}};
    for (int m = 0; m < microbatches; ++m) {
      const Action forward{.kind = ActionKind::forward, .part = s, .microbatch = m};
      if (s > 0) {
        program.actions.push_back(message(ActionKind::recv, s - 1, m, -1));
        append(program, forward);
      } else
        program.actions.push_back(forward);
      if (s + 1 < stages)
        append(program, message(ActionKind::send, s, m, 1));
      else
        program.actions.push_back({.kind = ActionKind::loss, .microbatch = m});
    }
    for (int m = 0; m < microbatches; ++m) {
      const Action backward{.kind = ActionKind::backward, .part = s, .microbatch = m};
      if (s + 1 < stages) {
        program.actions.push_back(message(ActionKind::recv, s, m, 1));
        append(program, backward);
      } else
        program.actions.push_back(backward);
      if (s > 0) append(program, message(ActionKind::send, s - 1, m, -1));
    }
    program.actions.push_back({.kind = ActionKind::update, .slice = plan.parts[s].slice});
    plan.programs.push_back(std::move(program));
  }
  return plan;
}

double begin_of(const Simulation& s, const Plan& plan, ActionKind kind, int rank = 0) {
  for (const Span& span : s.timeline.spans)
    if (span.rank == rank && plan.programs[rank].actions[span.action].kind == kind) return span.begin;
  return -1;
}

}  // namespace

TEST_CASE("a serial plan takes the sum of its parts and has no bubble") {
  Plan plan = serial(equal_parts(4), 40);
  Simulation s = simulate(plan, {.loss = 0.5, .update = 0.01});
  CHECK(s.makespan == Approx(4 * 3 + 0.5 + 0.4));
  CHECK(s.bubble == Approx(0).margin(1e-12));
  CHECK(s.busy == std::vector<double>{s.makespan});
  CHECK(s.in_flight == std::vector<int>{1});
  CHECK(s.timeline.spans.size() == plan.programs[0].actions.size());
  CHECK(!s.timeline.measured);
}

TEST_CASE("gpipe's bubble is (p - 1) / m and it holds all micro-batches") {
  for (int p = 2; p <= 8; ++p)
    for (int m : {1, 3, 8, 32}) {
      INFO(p << " stages, " << m << " micro-batches");
      Plan plan = gpipe_by_hand(p, m);
      REQUIRE(check(plan, 1).empty());
      Simulation s = simulate(plan);
      CHECK(std::abs(s.bubble - (p - 1.0) / m) < 1e-9);
      CHECK(std::abs(s.makespan - 3.0 * (m + p - 1)) < 1e-9);
      CHECK(s.in_flight == std::vector<int>(p, m));
    }
}

TEST_CASE("a pipeline's bubble is no communication, and what its links take is") {
  const auto exposed = [](const Link& link, const char* schedule) {
    const Plan plan =
        pipeline({.micro = 6, .schedule = schedule, .partition = "even"})(serial(equal_parts(3), 30, 0, {{"pipe", 3}}));
    const Simulation s = simulate(plan, {.cluster = flat_cluster(3, link)});
    CHECK(s.bubble > 0.1);
    double most = 0;
    for (const auto& program : s.exposed)
      for (const AxisTraffic& t : program) most = std::max(most, t.seconds);
    return most;
  };
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    CAPTURE(schedule);
    CHECK(exposed({}, schedule) == 0);
    CHECK(exposed({.latency = 1e-3}, schedule) > 1e-3);
    CHECK(exposed({.latency = 1e-3}, schedule) <= 12e-3);  // six messages from each side
  }
  // A collective is under way once the last of its ranks has come to it.
  Plan plan = data_parallel()(serial(equal_parts(4), 40, 0, {{"data", 2}}));
  Cluster uneven = flat_cluster(2, {.latency = 0.25});
  uneven.nodes = {{.count = 1}, {.count = 1, .speed = 0.5}};
  const Simulation s = simulate(plan, {.cluster = uneven, .folding = Folding::unfolded});
  CHECK(s.makespan == Approx(24 + 2 * 0.25));
  REQUIRE(s.exposed[0].size() == 1);
  CHECK(s.exposed[0][0].seconds == Approx(2 * 0.25));
}

TEST_CASE("the schedules have the bubbles that their papers state, and hold no more micro-batches") {
  for (int p = 2; p <= 8; ++p)
    for (int m : {p, 2 * p, 4 * p}) {
      auto run = [&](const std::string& schedule, int chunks) {
        const Plan plan = pipeline({.micro = m, .schedule = schedule, .chunks = chunks, .partition = "even"})(
            serial(equal_parts(p * chunks), p * chunks * 10, 0, {{"pipe", p}}));
        REQUIRE(check(plan, 1).empty());
        return simulate(plan);
      };
      INFO(p << " stages, " << m << " micro-batches");
      CHECK(std::abs(run("gpipe", 1).bubble - (p - 1.0) / m) < 1e-9);
      const Simulation alternating = run("1f1b", 1), halves = run("zb-h1", 1);
      CHECK(std::abs(alternating.bubble - (p - 1.0) / m) < 1e-9);
      CHECK(std::abs(halves.bubble - (p - 1.0) / (3.0 * m)) < 1e-9);
      for (int r = 0; r < p; ++r) CHECK(alternating.in_flight[r] == std::min(m, p - r));
      for (int r = 0; r < p; ++r) CHECK(halves.in_flight[r] <= p);
      for (int v : {2, 3}) CHECK(std::abs(run("interleaved", v).bubble - (p - 1.0) / (v * m)) < 1e-9);
    }
  // With more micro-batches than a multiple of the stages; interleaved wants a multiple.
  for (int m : {9, 13}) {
    auto bubble = [&](const std::string& schedule) {
      return simulate(pipeline({.micro = m, .schedule = schedule, .partition = "even"})(
                          serial(equal_parts(4), 40, 0, {{"pipe", 4}})))
          .bubble;
    };
    CHECK(std::abs(bubble("gpipe") - 3.0 / m) < 1e-9);
    CHECK(std::abs(bubble("1f1b") - 3.0 / m) < 1e-9);
    CHECK(std::abs(bubble("zb-h1") - 1.0 / m) < 1e-9);
  }
}

TEST_CASE("messages take latency and bytes over bandwidth, one at a time on a sender's link") {
  // Two micro-batches over one cut: forward at 0, 1 and 1, 2; the first message ends at 1 + 2.5, the second waits.
  Plan plan = gpipe_by_hand(2, 2);
  Simulation s = simulate(plan, {.cluster = flat_cluster(2, {0.5, 50})});  // 100 bytes: 2 s
  std::vector<double> ends;
  for (const Span& span : s.timeline.spans)
    if (span.rank == 1 && plan.programs[1].actions[span.action].kind == ActionKind::forward) ends.push_back(span.begin);
  CHECK(ends == std::vector<double>{3.5, 6});
  // Gradients, ready at 9 and 11, go back the same way and arrive at 11.5 and 14; the last backward takes 2.
  CHECK(s.makespan == Approx(16));
}

TEST_CASE("a bucket is reduced while backward goes on, from the moment its gradients are complete") {
  Plan plan = data_parallel({.first_bucket = 10, .bucket = 10})(serial(equal_parts(3), 30));
  const SimulateOptions slow{.cluster = flat_cluster(4, {0.1, 10})};
  // On one rank a reduction costs nothing.
  CHECK(simulate(plan, slow).makespan == Approx(9));
  // Rings: 2 * 3 * (latency + 40 bytes / 4 / bandwidth) each.
  plan.axes = {{"data", 4}};
  Simulation s = simulate(plan, slow);
  CHECK(begin_of(s, plan, ActionKind::all_reduce) == Approx(3 + 2));
  CHECK(s.makespan == Approx(5 + 3 * 6 * 1.1));
  Plan late = data_parallel({.first_bucket = 10, .bucket = 10, .overlap = false})(serial(equal_parts(3), 30));
  late.axes = plan.axes;
  CHECK(simulate(late, slow).makespan == Approx(9 + 3 * 6 * 1.1));
  // A slice in the middle of a part is complete when backward has come down to it.
  Plan cut = serial(equal_parts(1, 100), 100, 0, plan.axes);
  Action reduce{.kind = ActionKind::all_reduce,
                .stream = Stream::comm,
                .slice = {25, 100},
                .peer = {"data"},
                .payload = OperandKind::gradients};
  reduce.on_ready = true;
  reduce.after = {2};
  cut.programs[0].actions.insert(cut.programs[0].actions.end() - 1, reduce);
  CHECK(begin_of(simulate(cut), cut, ActionKind::all_reduce) == Approx(1 + 2 * 0.75));
}

TEST_CASE("many ranks cost what one costs") {
  Plan one = data_parallel()(gpipe_by_hand(8, 32)), many = one;
  one.axes = {{"pipe", 8}, {"data", 1}};
  many.axes = {{"pipe", 8}, {"data", 100000}};
  const Simulation a = simulate(one, {.cluster = flat_cluster(8, {1e-6, 1e9})});
  const Simulation b = simulate(many, {.cluster = flat_cluster(800000, {1e-6, 1e9})});
  CHECK(a.timeline.spans.size() == b.timeline.spans.size());
  CHECK(b.makespan > a.makespan);
}

TEST_CASE("a rank that waits for nobody is steps ahead, and its messages wait for their step") {
  Plan plan = serial(equal_parts(3), 30);
  plan.parts[2].cost.forward = 4;
  plan.programs.assign(3, {});
  plan.programs[0] = {"fast", {{.kind = ActionKind::forward, .part = 0}}};
  append(plan.programs[0], message(ActionKind::send, 0, 0, 1));
  plan.programs[1] = {"between", {message(ActionKind::recv, 0, 0, -1), message(ActionKind::recv, 1, 0, 1)}};
  append(plan.programs[1], {.kind = ActionKind::forward, .part = 1});
  plan.programs[2] = {"slow", {{.kind = ActionKind::forward, .part = 2}}};
  append(plan.programs[2], message(ActionKind::send, 1, 0, -1));
  const Simulation s = simulate(plan, {.cluster = flat_cluster(3, {0.5, 0}), .steps = 4});
  std::vector<double> sent, begun;
  for (const Span& span : s.timeline.spans) {
    if (span.rank == 0 && span.action == 1) sent.push_back(span.end);
    if (span.rank == 1 && span.action == 2) begun.push_back(span.begin);
  }
  CHECK(sent == std::vector<double>{1.5, 3, 4.5, 6});
  CHECK(begun == std::vector<double>{4.5, 9, 13.5, 18});
  CHECK(s.makespan == 19);
}

TEST_CASE("a plan that cannot end is refused") {
  Plan plan = gpipe_by_hand(2, 1);
  auto& sender = plan.programs[0].actions;
  sender[1].microbatch = 7;
  CHECK_ERROR(simulate(plan), usage, "stage 1", 0, -1);
}

TEST_CASE("a timeline is drawn as characters, a trace and a picture, and says that it is predicted") {
  Plan plan = gpipe_by_hand(2, 2);
  const Timeline t = simulate(plan).timeline;
  // 9 s in 36 columns: 4 a second.
  CHECK(gantt(plan, t, 36 + 7 + 9) ==
        "predicted: 9 s, idle 50.0 % of busy time\n"
        "stage 0 compute F0--F1--............B0------B1------\n"
        "stage 1 compute ....F0--F1--B0------B1------........\n"
        "F forward, B backward; the number is the micro-batch, a dot is idle time\n");
  const auto trace = nlohmann::json::parse(trace_json(plan, t));
  int spans = 0;
  for (auto& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    ++spans;
    CHECK((e["pid"] == 0 || e["pid"] == 1));
    CHECK(e["ts"].get<double>() + e["dur"].get<double>() <= 9e6);
  }
  CHECK(spans == static_cast<int>(t.spans.size()));
  CHECK(trace["otherData"]["times"] == "predicted");
  plan.parts[0].name = "<odd> & \"name\"";
  const std::string svg = timeline_svg(plan, t), html = timeline_html(plan, t, "a < b");
  CHECK(svg.find("predicted: 9 s") != std::string::npos);
  CHECK(svg.find("forward part 0 ('&lt;odd&gt; &amp; &quot;name&quot;'), 0 us to 1 s") != std::string::npos);
  CHECK(html.find("<svg") != std::string::npos);
  CHECK(html.find("<pre>a &lt; b</pre>") != std::string::npos);
  CHECK(html.find("<script") == std::string::npos);
  CHECK(html.find("src=") == std::string::npos);
}

TEST_CASE("the costs of parts are measured, and nothing of the model moves") {
  Module model = Sequential{Linear(6, 8), BatchNorm(8), Linear(8, 3)};
  initialize(model, 1);
  convert(model, DType::f64);
  Parameters parameters(model);
  const Chain chain(model);
  const auto values = parameters.values().to_vector(), mean = parameters.buffers()[0].tensor.to_vector();
  const Tensor x = Tensor::full({5, 6}, 0.5, DType::f64);
  const auto costs = measure_costs(chain, parameters, x);
  REQUIRE(costs.size() == 3);
  CHECK(costs[0].output == 5 * 8 * 8);
  CHECK(costs[2].output == 5 * 3 * 8);
  for (const PartCost& c : costs) {
    CHECK(c.forward > 0);
    CHECK(c.backward_input > 0);
    CHECK(c.saved >= c.output);
  }
  CHECK(costs[0].backward_weight > 0);
  CHECK(parameters.values().to_vector() == values);
  CHECK(parameters.buffers()[0].tensor.to_vector() == mean);
  CHECK(!has_grad(parameters.entries()[0].tensor));
}

}  // namespace test_simulate
