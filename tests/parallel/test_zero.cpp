// ZeRO: shards of the optimizer's state, the gradients and the weights, against the serial run; central storage.
#include <sys/mman.h>

#include <numeric>

#include "framework/io/checkpoint.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/operands.h"
#include "parallel/plan/shards.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/strategies/rebuild.h"
#include "tests/parallel/training.h"
#include "tests/support/temporary.h"

namespace test_zero {

using namespace trireme;
using namespace trireme::test;

namespace {

Sequential mlp() { return {flatten, Linear(16, 13), relu, Dropout(0.3), Linear(13, 11), relu, Linear(11, 5)}; }
/// Between the convolutions the batch norm's output is made again in backward, which wants its weights.
Sequential normed_cnn() {
  return {Conv2d(1, 4, 3), BatchNorm(4), relu, Conv2d(4, 4, 3), BatchNorm(4), relu, MaxPool(2), flatten, Linear(36, 5)};
}

/// Small buckets, so that there are several, of lengths that the ranks do not divide.
DataParallelOptions small_buckets(bool overlap = true) {
  return {.first_bucket = 37, .bucket = 101, .overlap = overlap};
}
Index total(const std::vector<Slice>& slices) {
  Index sum = 0;
  for (const Slice& s : slices) sum += s.size();
  return sum;
}

}  // namespace

TEST_CASE("shards cover a slice once, whatever its length") {
  for (int ranks : {1, 2, 3, 8})
    for (Index length : {0, 1, 2, 7, 8, 100, 1001}) {
      Index at = 5;
      for (int r = 0; r < ranks; ++r) {
        const Slice s = shard_of({5, 5 + length}, r, ranks);
        CHECK(s.begin == at);
        CHECK(s.size() >= length / ranks);
        at = s.end;
      }
      CHECK(at == 5 + length);
    }
}

TEST_CASE("zero(1, 2, 3) train the serial run's model", "[table][device]") {
  for (const OptimizerConfig& optimizer_config :
       {OptimizerConfig(Sgd{.lr = 0.05, .momentum = 0.9}), OptimizerConfig(Adam{.lr = 0.01})}) {
    const Setup s{.model = mlp, .optimizer_config = optimizer_config, .samples = 203, .batch = 10, .shape = {4, 4, 1}};
    const auto reference = serial_run(s);
    for (int stage : {1, 2, 3})
      for (bool overlap : {true, false})
        for (int ranks : rank_counts({1, 2, 3, 4, 8})) {
          INFO("stage " << stage << ", overlap " << overlap << ", " << ranks << " ranks");
          check_close(parallel_run(s, ranks, data_parallel(small_buckets(overlap)) | zero(stage)), reference, 1e-11);
        }
  }
}

namespace {
/// Rules with a rate per tensor, at rates that change the weights visibly.
const std::vector<OptimizerConfig> with_ratios = {Lars{.lr = 0.5, .trust_coefficient = 0.1},
                                                  Lamb{.lr = 0.02, .weight_decay = 0.1}};
}  // namespace

TEST_CASE("shards of LARS and LAMB train the serial run's model", "[table][device]") {
  for (const OptimizerConfig& rule : with_ratios)
    for (const OptimizerOptions& options : std::vector<OptimizerOptions>{{}, {.clip_norm = 0.05, .clip_value = 0.01}}) {
      const Setup s{.model = mlp,
                    .optimizer_config = rule,
                    .samples = 61,
                    .batch = 10,
                    .steps = 8,
                    .shape = {4, 4, 1},
                    .optimizer = options};
      const auto reference = serial_run(s);
      for (const char* strategy : {"", "zero(1)", "zero(2)", "zero(3)", "zero(3, reshard=false)", "central_storage"})
        for (const int ranks : rank_counts({2, 3, 4})) {
          INFO(to_string(rule) << ", clip " << options.clip_norm << ", " << strategy << " on " << ranks << " ranks");
          Strategy all = data_parallel(small_buckets());
          if (strategy[0] != '\0') all = all | parse_strategy(strategy);
          check_close(parallel_run(s, ranks, all), reference, 1e-12);
        }
      if (under_mpi()) continue;
      for (const int stage : {1, 2, 3}) {
        INFO(to_string(rule) << ", clip " << options.clip_norm << ", stage " << stage);
        for (const std::vector<Axis>& mesh :
             {std::vector<Axis>{{"data", 2}, {"shard", 2}}, {{"shard", 3}, {"data", 2}}})
          check_close(parallel_run(s, mesh, data_parallel(small_buckets()) | zero(stage, {.axis = "shard"})), reference,
                      1e-12);
        check_close(parallel_run(s, {{"tensor", 2}, {"data", 2}},
                                 parse_strategy(fmt::format("tensor | data_parallel | zero({})", stage))),
                    reference, 1e-12);
        check_close(parallel_run(s, 3, parse_strategy(fmt::format("one_weird_trick | zero({})", stage))), reference,
                    1e-12);
        check_close(parallel_run(s, {{"pipe", 2}, {"data", 2}},
                                 pipeline({.micro = 2, .partition = "even"}) | data_parallel() | zero(stage)),
                    serial_run(s, accumulate(2)), 1e-12);
      }
    }
}

TEST_CASE("LARS and LAMB resume on other ranks and stages") {
  if (threads_only()) return;
  for (const OptimizerConfig& rule : with_ratios) {
    const Temporary folder;
    const auto run = [&](int ranks, const Strategy& strategy, int first, int last) {
      return on_ranks(ranks, [&](World& world) {
        Module model = mlp();
        initialize(model, 1);
        convert(model, DType::f64);
        Step step(model, cross_entropy, rule, world, strategy, {.seed = 3});
        if (first > 0) {
          StepProbe(step).consolidate();
          if (world.main()) (void)load_latest(folder.path(), step.parameters(), &step.optimizer());
          broadcast_state(step.parameters(), world);
          broadcast_state(step.optimizer(), world);
        }
        Loader rows(Dataset(std::make_unique<Noise>(60, Shape{4, 4, 1})),
                    {.batch = 10, .seed = 3, .shard = step.shard(), .workers = 0, .dtype = DType::f64});
        int at = 0;
        for (auto& [x, y] : rows) {
          if (at >= first && at < last) step(x, y);
          ++at;
        }
        StepProbe(step).consolidate();
        TrainState state;
        state.step = last;
        if (world.main() && last < 6) save_checkpoint(folder.path(), step.parameters(), step.optimizer(), state);
        world.comm().barrier();
        return whole_weights(step.parameters());
      });
    };
    const auto straight = run(1, {}, 0, 6);
    (void)run(4, data_parallel(small_buckets()) | zero(3), 0, 3);
    for (const int ranks : {1, 3}) {
      INFO(rule.name() << " on " << ranks << " ranks");
      CHECK(distance(run(ranks, data_parallel() | zero(1), 3, 6), straight) < 1e-12);
    }
  }
}

TEST_CASE("on integers zero equals serial bit by bit", "[table][device]") {
  const Setup s = integer_conv();
  const auto reference = serial_run(s);
  for (int stage : {1, 2, 3})
    for (int ranks : rank_counts({2, 3, 4, 8})) {
      INFO("stage " << stage << ", " << ranks << " ranks");
      check_same_bits(parallel_run(s, ranks, data_parallel(small_buckets()) | zero(stage)), reference);
    }
}

TEST_CASE("zero with micro-batches, batch norm and pipelines") {
  const Setup s{.model = normed_cnn,
                .optimizer_config = Sgd{.lr = 0.05, .momentum = 0.9},
                .samples = 120,
                .batch = 24,
                .steps = 8};
  const auto reference = serial_run(s, accumulate(2));
  for (int stage : {1, 2, 3}) {
    for (int ranks : rank_counts({2, 3})) {
      INFO("stage " << stage << ", " << ranks << " ranks");
      check_close(parallel_run(s, ranks, accumulate(2) | data_parallel(small_buckets()) | zero(stage)), reference,
                  1e-11);
    }
    if (under_mpi()) continue;
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
      INFO("stage " << stage << ", " << schedule);
      check_close(parallel_run(s, {{"pipe", 2}, {"data", 2}},
                               pipeline({.micro = 2, .schedule = schedule, .partition = "even"}) |
                                   data_parallel(small_buckets()) | zero(stage)),
                  reference, 1e-11);
    }
  }
}

TEST_CASE("clipping sums the norm over shards and stages") {
  Setup s{.model = mlp, .samples = 60, .batch = 12, .steps = 10, .shape = {4, 4, 1}, .optimizer = {.clip_norm = 0.05}};
  const auto reference = serial_run(s), split = serial_run(s, accumulate(2));
  Setup free = s;
  free.optimizer = {};
  CHECK(distance(serial_run(free).weights, reference.weights) > 1e-3);
  for (int stage : {1, 2, 3})
    for (int ranks : rank_counts({2, 3}))
      check_close(parallel_run(s, ranks, data_parallel(small_buckets()) | zero(stage)), reference, 1e-11);
  if (threads_only()) return;
  const auto stages = pipeline({.micro = 2, .partition = "even"});
  check_close(parallel_run(s, {{"pipe", 2}}, stages), split, 1e-11);
  check_close(parallel_run(s, {{"pipe", 2}, {"data", 2}}, stages | data_parallel() | zero(1)), split, 1e-11);
}

TEST_CASE("a rank holds optimizer state for its shards only, and the whole of it to save") {
  for (int ranks : rank_counts({2, 3})) {
    auto held = on_ranks(ranks, [&](World& world) {
      Module model = mlp();
      initialize(model, 1);
      Step step(model, cross_entropy, Adam{}, world, data_parallel(small_buckets()) | zero(1));
      const Tensor x = Tensor::full({2, 4, 4, 1}, 0.5), y = Tensor::zeros({2}, DType::i64);
      step(x, y);
      auto state = [&] { return static_cast<double>(step.optimizer().state().at(1).second.numel()); };
      std::vector<double> sizes{state(), static_cast<double>(total(StepProbe(step).updated()))};
      step.gather_weights();  // for an evaluation, which needs no optimizer
      CHECK(state() == sizes[0]);
      StepProbe(step).consolidate();
      sizes.push_back(state());
      double squares = 0;
      for (double v : step.optimizer().state()[1].second.to_vector()) squares += v;
      sizes.push_back(squares);
      step(x, y);
      sizes.push_back(state());
      sizes.push_back(static_cast<double>(step.parameters().size()));
      return sizes;
    });
    const double whole = held.back();
    CHECK(held[0] == held[1]);
    CHECK(held[0] <= whole / ranks + 64);
    CHECK(held[2] == whole);
    CHECK(held[3] > 0);
    CHECK(held[4] == held[0]);
  }
}

TEST_CASE("memory of gradients and weights of others' shards is given back") {
  if (threads_only()) return;
  auto resident = [](const Tensor& t) {  // share of its pages
    constexpr std::uintptr_t page = 4096;
    const auto begin = (reinterpret_cast<std::uintptr_t>(t.view().data) + page - 1) / page * page;
    const auto end =
        (reinterpret_cast<std::uintptr_t>(t.view().data) + static_cast<std::uintptr_t>(t.view().bytes())) / page * page;
    std::vector<unsigned char> pages((end - begin) / page);
    if (mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) != 0) return -1.0;
    double in = 0;
    for (unsigned char p : pages) in += p & 1;
    return in / static_cast<double>(pages.size());
  };
  for (int stage : {1, 2, 3}) {
    auto shares = on_ranks(4, [&](World& world) {
      Module model = Sequential{Linear(256, 512), relu, Linear(512, 256), relu, Linear(256, 5)};
      Step step(model, cross_entropy, Sgd{.lr = 0.1}, world, zero(stage));
      const Tensor x = Tensor::full({2, 256}, 0.5), y = Tensor::zeros({2}, DType::i64);
      for (int i = 0; i < 3; ++i) step(x, y);
      return std::pair(resident(step.parameters().grads().blocks()[0]),
                       resident(step.parameters().values().blocks()[0]));
    });
    INFO("stage " << stage << ": gradients " << shares.first << ", weights " << shares.second);
    CHECK((stage >= 2 ? shares.first < 0.35 : shares.first > 0.9));
    CHECK((stage == 3 ? shares.second < 0.35 : shares.second > 0.9));
  }
}

TEST_CASE("a checkpoint wants all shards, and a run goes on from it as if nothing had been") {
  if (threads_only()) return;
  const Temporary folder;
  auto run = [&](int first, int last, bool save) {
    return on_ranks(2, [&](World& world) {
      Module model = mlp();
      initialize(model, 1);
      convert(model, DType::f64);
      Step step(model, cross_entropy, Sgd{.lr = 0.1, .momentum = 0.9}, world, data_parallel(small_buckets()) | zero(2),
                {.seed = 3});
      if (first > 0) {
        StepProbe(step).consolidate();
        if (world.main()) (void)load_latest(folder.path(), step.parameters(), &step.optimizer());
        broadcast_state(step.parameters(), world);
        broadcast_state(step.optimizer(), world);
      }
      std::string refused;
      TrainState state;
      state.step = last;
      for (int i = first; i < last; ++i)
        step(Tensor::full({2, 4, 4, 1}, 0.1 * (i + 1), DType::f64), Tensor::full({2}, i % 5, DType::i64));
      if (save) {
        try {
          if (world.main()) save_checkpoint(folder.path(), step.parameters(), step.optimizer(), state);
        } catch (const Error& e) { refused = e.what(); }
        StepProbe(step).consolidate();
        if (world.main()) save_checkpoint(folder.path(), step.parameters(), step.optimizer(), state);
        world.comm().barrier();
      }
      StepProbe(step).consolidate();
      return std::pair(step.parameters().values().to_vector(), refused);
    });
  };
  const auto straight = run(0, 6, false);
  CHECK(contains("call consolidate()").match(run(0, 3, true).second));
  CHECK(run(3, 6, false).first == straight.first);
}

TEST_CASE("zero gathers weights ahead, and not again if the next pass needs them") {
  std::vector<PartInfo> parts;
  for (int p = 0; p < 4; ++p) parts.push_back({.name = std::to_string(p), .slice = {100 * p, 100 * p + 100}});
  const Plan start = serial(parts, 400, 0, {{"data", 2}});
  // Passes by their part (F, B), gathers (g) and drops (d) by their first hundred.
  const auto order_of = [&](const Strategy& strategy) {
    const Plan plan = strategy(start);
    REQUIRE(check(plan, 2).empty());
    std::string text;
    for (const Action& a : plan.programs[0].actions) {
      if (a.kind == ActionKind::forward || a.kind == ActionKind::backward)
        text += (a.kind == ActionKind::forward ? " F" : " B") + std::to_string(a.part);
      if (a.payload == OperandKind::weights)
        text += (a.kind == ActionKind::all_gather ? " g" : " d") + std::to_string(a.slice.begin / 100);
    }
    return text.substr(1);
  };
  const auto order = [&](const ZeroOptions& o, int micro = 1) {
    return order_of((micro > 1 ? accumulate(micro) : Strategy()) | zero(3, o));
  };
  for (const int stage : {1, 2}) {
    CHECK(order_of(data_parallel({.first_bucket = 100, .bucket = 100}) | zero(stage)) ==
          "g0 g1 F0 g2 F1 g3 F2 F3 B3 B2 B1 B0");
    CHECK(order_of(data_parallel({.first_bucket = 100, .bucket = 300}) | zero(stage)) ==
          "g0 g3 F0 F1 F2 F3 B3 B2 B1 B0");
    CHECK(order_of(accumulate(2) | data_parallel() | zero(stage)) ==
          "g0 F0 F1 F2 F3 B3 B2 B1 B0 F0 F1 F2 F3 B3 B2 B1 B0");
  }
  CHECK(order({.prefetch = 0}) == "g0 F0 d0 g1 F1 d1 g2 F2 d2 g3 F3 B3 d3 g2 B2 d2 g1 B1 d1 g0 B0 d0");
  CHECK(order({}) == "g0 g1 F0 d0 g2 F1 d1 g3 F2 d2 F3 g2 B3 d3 g1 B2 d2 g0 B1 d1 B0 d0");
  CHECK(order({.prefetch = 2}) == "g0 g1 g2 F0 d0 g3 F1 d1 F2 d2 g2 F3 g1 B3 d3 g0 B2 d2 B1 d1 B0 d0");
  CHECK(order({.reshard = false}) == "g0 g1 F0 g2 F1 g3 F2 F3 B3 d3 B2 d2 B1 d1 B0 d0");
  // From one micro-batch to the next the first part stays.
  const std::string twice = order({}, 2);
  CHECK(std::ranges::count(twice, 'g') == 13);
  CHECK(std::ranges::count(order({.reshard = false}, 2), 'g') == 4);
}

TEST_CASE("zero with an axis has replicas, which sum their shards") {
  if (threads_only()) return;
  const Setup s{.model = mlp, .optimizer_config = Adam{.lr = 0.01}, .samples = 60, .batch = 12, .shape = {4, 4, 1}};
  Setup clipped = s;
  clipped.optimizer.clip_norm = 0.05;
  for (const Setup& setup : {s, clipped}) {
    const auto reference = serial_run(setup);
    for (int stage : {1, 2, 3})
      for (const char* shards : {"data", "copies", "data+copies"})
        for (const std::vector<Axis>& mesh : {std::vector<Axis>{{"data", 2}, {"copies", 2}},
                                              {{"copies", 3}, {"data", 2}},
                                              {{"data", 3}, {"copies", 1}}}) {
          INFO("stage " << stage << " along " << shards << " on " << to_string(mesh));
          DataParallelOptions all = small_buckets();
          all.axis = "copies+data";
          check_close(parallel_run(setup, mesh, data_parallel(all) | zero(stage, {.axis = shards})), reference, 1e-11);
        }
  }
  for (const char* strategy : {"data_parallel | zero(3, axis=copies)", "zero(2, axis=copies)"})
    check_close(parallel_run(s, {{"data", 2}, {"copies", 2}}, parse_strategy(strategy)), serial_run(s), 1e-11);
  const auto split = serial_run(s, accumulate(2));
  for (const char* more : {"", ", reshard=false", ", prefetch=0", ", prefetch=3"}) {
    INFO(more);
    const std::string zero = std::string("zero(3, axis=data") + more + ")";
    for (const char* first : {"pipeline(micro=2, partition=even)", "accumulate(micro=2)"})
      check_close(
          parallel_run(s, {{first[0] == 'p' ? "pipe" : "copies", 2}, {"data", 2}},
                       parse_strategy(std::string(first) + " | data_parallel | data_parallel(axis=copies) | " + zero)),
          split, 1e-11);
  }
}

TEST_CASE("a plan with replicas sums each gradient over all ranks, and sends what it should") {
  std::vector<PartInfo> parts;
  for (int p = 0; p < 2; ++p) parts.push_back({.name = std::to_string(p), .slice = {101 * p, 101 * p + 101}});
  const Plan start = serial(parts, 202, 0, {{"data", 3}, {"shard", 4}});
  Plan plan = (data_parallel() | zero(3, {.axis = "shard"}))(start);
  CHECK(plan.reduced_axis() == "data+shard");
  REQUIRE(check(plan, 12).empty());
  std::map<std::string, Index> bytes;
  for (const Action& a : plan.programs[0].actions)
    for (const PlannedCall& call : calls_of(plan, a, plan.size(a.peer.axis), 8)) bytes[a.peer.axis] += call.bytes;
  // Three gathers and two reductions to shards of 101 numbers; two sums of 25 numbers and a rest of one.
  CHECK(bytes == std::map<std::string, Index>{{"data", 2 * 26 * 8}, {"shard", 5 * 101 * 8}});
  plan = (data_parallel() | zero(1, {.axis = "shard"}))(start);
  std::vector<Action>& actions = plan.programs[0].actions;
  const auto sum = std::ranges::find_if(actions, is_replica_sum);
  REQUIRE(sum != actions.end());
  REQUIRE(check(plan, 12).empty());
  const std::vector<Action> kept = actions;
  sum->after.clear();
  CHECK_THAT(check(plan, 12).front(), contains("is summed over replicas by action"));
  actions = kept;
  for (Action& a : actions) std::erase(a.after, static_cast<ActionId>(sum - actions.begin()));
  CHECK_THAT(check(plan, 12).front(), contains("is used by the update"));
  actions = kept;
  sum->peer.axis = "spare";  // of one rank
  CHECK_THAT(check(plan, 12).front(), contains("is summed over 4 of the 12 ranks"));
}

TEST_CASE("actions after the updates of zero(1) need gathers after the updates") {
  std::vector<PartInfo> parts;
  for (int p = 0; p < 3; ++p) parts.push_back({.name = std::to_string(p), .slice = {100 * p, 100 * p + 100}});
  static const ActionRow reader{.name = "reader",
                                .access = [](const Plan&, const Program&, const Liveness&, const Action& a) {
                                  return std::vector{Operand{.kind = OperandKind::weights, .slice = a.slice}};
                                }};
  const Strategy zero_1 = data_parallel({.first_bucket = 100, .bucket = 100}) | zero(1);
  const Plan divided = zero_1(serial(parts, 300, 0, {{"data", 2}}));
  const auto faults = [](Plan plan, bool first) {
    Program& program = plan.programs[0];
    const auto end = static_cast<ActionId>(program.actions.size());
    std::vector<ActionId> all(static_cast<std::size_t>(end));
    std::iota(all.begin(), all.end(), 0);
    Action reads{.kind = reader, .slice = {0, 300}};
    if (!first) reads.after = all;
    insert(program, first ? 0 : end, reads);
    std::string text;
    for (const std::string& line : check(plan, 2)) text += line + "\n";
    return text;
  };
  CHECK(check(divided, 2).empty());
  CHECK_THAT(faults(divided, true), contains("uses old weights of other ranks"));
  CHECK_THAT(faults(divided, false), contains("call gather_after_updates()"));
  const Plan whole = gather_after_updates(divided);
  CHECK(check(whole, 2).empty());
  CHECK(faults(whole, true).empty());
  CHECK(faults(whole, false).empty());
  for (const Plan& plan : {divided, whole})
    CHECK(std::ranges::count(plan.programs[0].actions, ActionKind::all_gather, &Action::kind) == 3);
  const Plan dropping = zero(3)(serial(parts, 300, 0, {{"data", 2}}));
  for (const bool first : {true, false})
    CHECK_THAT(faults(dropping, first), contains("zero(3) keeps no whole weights"));
  // Gathers of a part start together, one part ahead; a part without weights waits for none.
  std::vector<PartInfo> wide = parts;
  wide[1].slice = {100, 400};
  wide[2].slice = {400, 500};
  wide.insert(wide.begin(), {.name = "flatten", .slice = {}});
  std::string order;
  const Plan early = zero_1(serial(wide, 500, 0, {{"data", 2}}));
  for (const Action& a : early.programs[0].actions) {
    if (a.kind == ActionKind::forward) order += " F" + std::to_string(a.part);
    if (a.kind == ActionKind::all_gather) order += " g" + std::to_string(a.slice.begin / 100);
  }
  CHECK(order == " g0 F0 g3 g1 F1 g4 F2 F3");
  // Other plans have whole weights between steps, or drop them.
  const auto text = [](const Plan& plan) { return plan.to_string(); };
  for (const Strategy& other : {zero(3), central_storage(), data_parallel()}) {
    const Plan plan = other(serial(parts, 300, 0, {{"data", 2}}));
    CHECK(text(gather_after_updates(plan)) == text(plan));
  }
}

TEST_CASE("zero as text, and what it refuses") {
  CHECK(parse_strategy("zero(3, axis=a+b, prefetch=2, reshard=false)").name() ==
        "zero(3, axis=a+b, prefetch=2, reshard=false)");
  CHECK_ERROR(zero(2, {.prefetch = 2}), usage, "prefetch", 3);
  CHECK_ERROR(zero(1, {.reshard = false}), usage, "reshard", 3);
  CHECK_ERROR(zero(3, {.prefetch = -1}), usage, "prefetch", -1);
  CHECK(parse_strategy("zero(2)").name() == "zero(2)");
  CHECK(parse_strategy("data_parallel | zero(stage=3)").name() == "data_parallel | zero(3)");
  CHECK(parse_strategy("zero").name() == "zero(1)");
  CHECK_ERROR(parse_strategy("zero(4)"), usage, 1, 2, 3);
  CHECK_ERROR(parse_strategy("zero(1, stage=2)"), usage, "zero", "stage");
  CHECK_ERROR(parse_strategy("data_parallel(4)"), usage, "data_parallel", 4);
  const Plan plan = serial({{.name = "0", .slice = {0, 100}}}, 100);
  CHECK_ERROR(zero(3, {.axis = "dta"})(serial({{.name = "0", .slice = {0, 100}}}, 100, 0, {{"data", 2}})), usage, "dta",
              "data=2");
  CHECK_ERROR((zero(1) | zero(1))(plan), usage, "zero");
  CHECK_ERROR((central_storage() | zero(1))(plan), usage, "zero", "central_storage");
  for (int stage : {1, 2, 3})
    for (int ranks : {1, 2, 100000}) CHECK(check(zero(stage)(plan), ranks).empty());
}

TEST_CASE("check finds what is wrong with shards") {
  const Plan serial_plan = serial({{.name = "0", .slice = {0, 100}}, {.name = "1", .slice = {100, 200}}}, 200);
  auto spoilt = [&](int stage, auto&& spoil) {
    const Strategy buckets = data_parallel({.first_bucket = 100, .bucket = 100});
    Plan plan = (buckets | (stage > 0 ? zero(stage) : central_storage()))(serial_plan);
    REQUIRE(check(plan, 2).empty());
    spoil(plan.programs[0].actions);
    std::string text;
    for (auto& line : check(plan, 2)) text += line + "\n";
    return text;
  };
  auto first = [](std::vector<Action>& actions, ActionKind kind) -> Action& {
    return *std::find_if(actions.begin(), actions.end(), [&](const Action& a) { return a.kind == kind; });
  };
  using Actions = std::vector<Action>;
  CHECK_THAT(spoilt(1, [&](Actions& a) { first(a, ActionKind::all_gather).slice.end -= 1; }),
             contains("no all_gather after it brings the shards"));
  CHECK_THAT(spoilt(1, [&](Actions& a) { first(a, ActionKind::forward).after.clear(); }),
             contains("does not wait for"));
  CHECK_THAT(spoilt(1, [&](Actions& a) { first(a, ActionKind::update).peer.axis.clear(); }),
             contains("updates a whole slice that is reduced to shards: name their axis, data"));
  CHECK_THAT(spoilt(1, [&](Actions& a) { first(a, ActionKind::reduce_scatter).kind = ActionKind::all_reduce; }),
             contains("no reduce_scatter makes them: add a reduce_scatter"));
  CHECK_THAT(spoilt(2, [&](Actions& a) { first(a, ActionKind::drop).after.clear(); }),
             contains("drops gradients before they are reduced"));
  CHECK_THAT(spoilt(3, [&](Actions& a) { first(a, ActionKind::all_gather).kind = ActionKind::drop; }),
             contains("uses weights that action 0 dropped"));
  CHECK_THAT(spoilt(3, [&](Actions& a) { first(a, ActionKind::forward).after.clear(); }),
             contains("does not wait for"));
  // Central storage.
  CHECK_THAT(spoilt(0, [&](Actions& a) { first(a, ActionKind::broadcast).peer.root = 1; }),
             contains("no action brings the updated weights to the other ranks"));
  CHECK_THAT(spoilt(0, [&](Actions& a) { first(a, ActionKind::broadcast).after.clear(); }),
             contains("no action brings the updated weights"));
  CHECK_THAT(spoilt(0, [&](Actions& a) { first(a, ActionKind::all_reduce).slice.begin += 1; }),
             contains("gradients are not summed: add an all_reduce"));
}

}  // namespace test_zero
