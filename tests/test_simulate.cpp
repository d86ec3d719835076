// The simulator: bubbles of the schedules, times of messages and collectives.
#include "parallel/simulate.h"

#include <nlohmann/json.hpp>

#include "framework/init.h"
#include "framework/layers.h"
#include "framework/tape.h"
#include "parallel/draw.h"
#include "parallel/part_costs.h"
#include "parallel/strategy.h"
#include "tests/catch.h"

using namespace trireme;
using trireme::test::contains;

namespace {

std::vector<PartInfo> equal_parts(int n, Index each = 10) {
  std::vector<PartInfo> parts;
  for (int i = 0; i < n; ++i)
    parts.push_back({std::to_string(i),
                     {i * each, (i + 1) * each},
                     {.forward = 1, .backward_input = 1, .backward_weight = 1, .saved = 8, .output = 100}});
  return parts;
}

Action message(Verb verb, int part, int micro, int offset) {
  Action a{verb, Lane::comm, part, micro};
  a.peer = {"pipe", offset};
  return a;
}
/// After the action before it.
void append(Role& role, Action a) {
  a.after.push_back(static_cast<int>(role.actions.size()) - 1);
  role.actions.push_back(std::move(a));
}

/// One part a stage; all forwards, then all backwards.
Plan gpipe_by_hand(int stages, int micros) {
  Plan plan = serial(equal_parts(stages), stages * 10);
  plan.micros = micros;
  plan.roles.clear();
  for (int s = 0; s < stages; ++s) {
    Role role{"stage " + std::to_string(s), {}};
    for (int m = 0; m < micros; ++m) {
      const Action forward{.verb = Verb::forward, .part = s, .micro = m};
      if (s > 0)
        role.actions.push_back(message(Verb::recv, s - 1, m, -1)), append(role, forward);
      else
        role.actions.push_back(forward);
      if (s + 1 < stages)
        append(role, message(Verb::send, s, m, 1));
      else
        role.actions.push_back({.verb = Verb::loss, .micro = m});
    }
    for (int m = 0; m < micros; ++m) {
      const Action backward{.verb = Verb::backward, .part = s, .micro = m};
      if (s + 1 < stages)
        role.actions.push_back(message(Verb::recv, s, m, 1)), append(role, backward);
      else
        role.actions.push_back(backward);
      if (s > 0) append(role, message(Verb::send, s - 1, m, -1));
    }
    role.actions.push_back({.verb = Verb::update, .slice = plan.parts[s].slice});
    plan.roles.push_back(std::move(role));
  }
  return plan;
}

double begin_of(const Simulation& s, const Plan& plan, Verb verb, int rank = 0) {
  for (const Span& span : s.timeline.spans)
    if (span.rank == rank && plan.roles[rank].actions[span.action].verb == verb) return span.begin;
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
  CHECK(s.timeline.spans.size() == plan.roles[0].actions.size());
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

TEST_CASE("messages take latency and bytes over bandwidth, one at a time on a sender's link") {
  // Two micro-batches over one cut: forward at 0, 1 and 1, 2; the first message ends at 1 + 2.5, the second waits.
  Plan plan = gpipe_by_hand(2, 2);
  Simulation s = simulate(plan, {.latency = 0.5, .bandwidth = 50});  // 100 bytes: 2 s
  std::vector<double> ends;
  for (const Span& span : s.timeline.spans)
    if (span.rank == 1 && plan.roles[1].actions[span.action].verb == Verb::forward) ends.push_back(span.begin);
  CHECK(ends == std::vector<double>{3.5, 6});
  // Gradients, ready at 9 and 11, go back the same way and arrive at 11.5 and 14; the last backward takes 2.
  CHECK(s.makespan == Approx(16));
}

TEST_CASE("a bucket is reduced while backward goes on, from the moment its gradients are complete") {
  Plan plan = data_parallel({.first_bucket = 10, .bucket = 10})(serial(equal_parts(3), 30));
  const std::vector<Axis> four = {{"data", 4}};
  // Rings: 2 * 3 * (latency + 40 bytes / 4 / bandwidth) each.
  Simulation s = simulate(plan, {.mesh = four, .latency = 0.1, .bandwidth = 10});
  CHECK(begin_of(s, plan, Verb::all_reduce) == Approx(3 + 2));
  CHECK(s.makespan == Approx(5 + 3 * 6 * 1.1));
  // On one rank a reduction costs nothing.
  CHECK(simulate(plan, {.latency = 0.1, .bandwidth = 10}).makespan == Approx(9));
  Plan late = data_parallel({.first_bucket = 10, .bucket = 10, .overlap = false})(serial(equal_parts(3), 30));
  CHECK(simulate(late, {.mesh = four, .latency = 0.1, .bandwidth = 10}).makespan == Approx(9 + 3 * 6 * 1.1));
  // A slice in the middle of a part is complete when backward has come down to it.
  Plan cut = serial(equal_parts(1, 100), 100);
  cut.roles[0].actions.insert(cut.roles[0].actions.end() - 1, Action{.verb = Verb::all_reduce,
                                                                     .lane = Lane::comm,
                                                                     .slice = {25, 100},
                                                                     .peer = {"data"},
                                                                     .on_ready = true,
                                                                     .after = {2}});
  CHECK(begin_of(simulate(cut, {.mesh = four}), cut, Verb::all_reduce) == Approx(1 + 2 * 0.75));
}

TEST_CASE("many ranks cost what one costs") {
  Plan plan = data_parallel()(gpipe_by_hand(8, 32));
  Simulation one = simulate(plan, {.mesh = {{"pipe", 8}, {"data", 1}}, .latency = 1e-6, .bandwidth = 1e9});
  Simulation many = simulate(plan, {.mesh = {{"pipe", 8}, {"data", 100000}}, .latency = 1e-6, .bandwidth = 1e9});
  CHECK(one.timeline.spans.size() == many.timeline.spans.size());
  CHECK(many.makespan > one.makespan);
}

TEST_CASE("a plan that cannot end is refused") {
  Plan plan = gpipe_by_hand(2, 1);
  auto& sender = plan.roles[0].actions;
  sender[1].micro = 7;
  CHECK_THROWS_WITH(simulate(plan), contains("nobody sends it"));
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
  CHECK_THROWS_WITH(measure_costs(chain, parameters, x.rows(0, 0)), contains("0 rows"));
}
