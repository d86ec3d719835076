// compress(): what all codecs promise: dense where nothing is left out, the bytes of the plan, runs that go on from a
// checkpoint, refusals.
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/codec_runs.h"
#include "tests/parallel/pair_setups.h"
#include "tests/parallel/run_segments.h"
#include "tests/support/temporary.h"

namespace test_compress {

using namespace trireme;
using namespace trireme::test;

namespace {

Setup network() {
  Setup s = normed();
  s.optimizer_config = Sgd{.lr = 0.02, .momentum = 0.5};
  s.samples = 64;
  return s;
}

}  // namespace

TEST_CASE("a codec that leaves nothing out trains the dense model", "[table]") {
  const Setup s{.model =
                    [] {
                      return Sequential{Conv2d(1, 4, 3), relu,           MaxPool(2), Dropout(0.25),
                                        flatten,         Linear(64, 16), relu,       Linear(16, 5)};
                    },
                .samples = 203,
                .steps = 6};
  const Outcome dense = serial_run(s);
  for (const char* options :
       {"topk, ratio=1", "dgc, ratio=1, momentum=0", "randomk, ratio=1", "chunks, ratio=1, chunk=7",
        "powersgd, rank=1000", "qsgd, from=6", "topk, ratio=1, residual=false"})
    for (const char* around : {"data_parallel(bucket=70, first_bucket=30) | ", ""})
      for (const int ranks : rank_counts({2, 3})) {
        INFO(options << " on " << ranks);
        const Strategy strategy = parse_strategy(around + ("compress(" + std::string(options) + ")"));
        check_close(parallel_run(s, ranks, strategy), dense, 1e-11);
      }
  CHECK(parse_strategy("compress(topk, ratio=1)").claim() == Claim::exact);
  CHECK(parse_strategy("compress(dgc, ratio=1)").claim() == Claim::statistical);
  CHECK(compress("powersgd", {{"rank", 4}, {"warm_start", 0}}).text() ==
        "compress(codec=powersgd, rank=4, warm_start=false, from=0, residual=true, seed=0)");
}

TEST_CASE("codecs send the bytes of the plan in every step, and fewer than the numbers have") {
  for (std::string options : lossy()) {
    if (options.find("dgc") != options.npos) options += ", warmup=2, from=1";
    for (const int ranks : rank_counts({2, 3})) {
      const std::string found = on_ranks(ranks, [&](World& world) {
        Setup s = network();
        Module model = s.model();
        initialize(model, 1);
        Step step(model, s.loss, s.optimizer_config, world, parse_strategy("compress(" + options + ")"));
        Loader loader(Dataset(std::make_unique<Noise>(40, s.shape)), {.batch = 8, .shard = step.shard(), .workers = 0});
        std::string wrong;
        for (auto& [x, y] : loader) {
          (void)step(x, y);
          const FlatBuffer& values = step.parameters().values();
          for (auto& e : step.parameters().entries())  // what no tensor has stays 0
            for (Index i = e.slice.end; i < (e.slice.end + 15) / 16 * 16; ++i)
              if (values.rows(i, i + 1).item() != 0) wrong += "padding moves";
          const StepTraffic t = StepProbe(step).traffic();
          if (t.planned != t.counted) wrong += fmt::format("step {}: not planned so; ", step.optimizer().steps());
          const Index dense = 4 * step.parameters().size(), others = 1000;  // batch norm's sums, the loss
          if (step.optimizer().steps() == 5 && t.counted.at("data").bytes > dense * 3 / 4 + others)
            wrong += fmt::format("{} bytes", t.counted.at("data").bytes);
        }
        return wrong;
      });
      INFO(options << " on " << ranks);
      CHECK(found == "");
    }
  }
}

TEST_CASE("ranks with the same weights and parts of others encode the same numbers") {
  if (threads_only()) return;
  const Setup s{
      .model =
          [] { return Sequential{flatten, Linear(16, 6), relu, LayerNorm(6), Linear(6, 20), relu, Linear(20, 5)}; },
      .samples = 64,
      .steps = 6,
      .shape = {4, 4, 1}};
  for (const std::string codec : {"topk, ratio=0.2", "dgc, ratio=0.2", "chunks, ratio=0.2, chunk=4",
                                  "randomk, ratio=0.2", "bf16", "f16", "qsgd", "onebit", "powersgd"})
    for (const std::string place : {"", " | place(6.*, whole=true)"})
      for (const std::string sums : {"data_parallel", "data_parallel(bucket=50, first_bucket=20)", "central_storage"}) {
        const std::string strategy = "tensor" + place + " | " + sums + " | compress(codec=" + codec + ")";
        INFO(strategy);
        CHECK(parallel_run(s, {{"tensor", 3}, {"data", 2}}, parse_strategy(strategy)).agreed);
      }
}

TEST_CASE("a run with a codec goes on from a checkpoint bit for bit") {
  if (threads_only()) return;
  for (const std::string& options : lossy()) {
    const Arrangement how{{{"data", 2}}, "data_parallel(bucket=100, first_bucket=50) | compress(" + options + ")"};
    const Temporary folder;
    const auto run = [&](const std::string& from, const std::string& to, int steps) {
      return on_ranks(2, [&](World& world) {
        return train_segment(network(), world, how,
                             {.from = from.empty() ? "" : folder / from, .to = folder / to, .steps = steps});
      });
    };
    run("", "half", 3);
    const TrainedState resumed = run("half", "resumed", 4), whole = run("", "whole", 7);
    INFO(options);
    CHECK(resumed.step == 7);
    CHECK(resumed.tensors == whole.tensors);
    CHECK(std::ranges::equal(resumed.losses, std::span(whole.losses).subspan(3)));
  }
}

TEST_CASE("a codec's states are as before where gradients were not used") {
  for (const std::string& options : lossy())
    for (const int ranks : rank_counts({2})) {
      const std::string found = on_ranks(ranks, [&](World& world) {
        Module model = Sequential{Linear(6, 5), Linear(5, 3)};
        initialize(model, 1);
        Step step(model, cross_entropy, Sgd{.lr = 0.1}, world, parse_strategy("compress(" + options + ")"));
        const auto kept = [&] {
          std::vector<Vector> all;
          for (auto& [name, state] : step.parameters().states()) all.push_back(state.to_vector());
          return all;
        };
        const Tensor y = Tensor::zeros({4}, DType::i64);
        (void)step(Tensor::of(waves(24)(world.rank(), 0), {4, 6}), y);
        const auto before = kept();
        const bool any =
            options.find("qsgd") != options.npos || (!before.empty() && before[0] != Vector(before[0].size()));
        try {
          step(Tensor::full({4, 6}, NAN), y);
          return std::string("nothing was refused");
        } catch (const Error&) {}
        return std::string(!any ? "it kept nothing" : kept() != before ? "they have changed" : "");
      });
      INFO(options);
      CHECK(found == "");
    }
}

TEST_CASE("codecs, options and numbers that cannot be are refused in a line") {
  const auto refused = [](const std::string& options, const std::string& text) {
    INFO(options);
    std::string what;
    try {
      (void)parse_strategy("compress(" + options + ")");
    } catch (const Error& e) { what = e.what(); }
    CHECK(what.find(text) != what.npos);
    CHECK(std::ranges::count(what, '\n') == 0);
  };
  for (const CodecRow& row : codecs())
    for (const CodecParameter& p : row.parameters) {
      const std::string begin = fmt::format("{}, {}=", row.codec->name, p.name);
      const auto number = [&](double v) { return begin + fmt::format("{}", v); };
      if (!p.is_flag) refused(number(p.least - 1), fmt::format("{} is {}, it must be at least", p.name, p.least - 1));
      if (!p.is_flag && p.most < 1e15) refused(number(p.most + 8), "it must be at most");
      if (p.multiple == 1) refused(begin + "1.5", "is not a whole number");
      if (p.multiple > 1) refused(number(p.least + 1), "a multiple of");
      refused(begin + "x", p.is_flag ? "is not true or false" : "number");
      (void)parse_strategy("compress(" + begin + (p.is_flag ? "false" : fmt::format("{}", p.value)) + ")");
    }
  refused("topk, ratio=0", "ratio is 0");
  refused("powersgd, rank=0", "rank is 0, it must be at least 1");
  refused("qsgd, levels=0", "levels is 0, it must be at least 1");
  refused("topk, rank=2", "there is no 'rank'");
  refused("topp", "there is no 'topp' (did you mean 'topk'?); there are: bf16, f16, topk");
  CHECK_ERROR(compress("topk", {{"levels", 2}}), usage, "compress", "levels");
  const std::string text = [] {
    try {
      const Plan plan = compress("topk")(chain());
      const Action& a = plan.programs[0].actions[find(plan.programs[0], ActionKind::all_reduce)];
      World world;
      EncodedReduction().start(world.comm(), CodecContext(plan, a, 8, 0), Tensor::zeros({a.slice.size()}, DType::i64));
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  }();
  CHECK_THAT(text, mentions("codec", "topk", "f32", "f64", "i64"));
  CHECK_ERROR(compress("topk")(zero(1)(chain())), usage, "codec", "all_reduce");
  check_finds(zero(1)(compress("topk")(chain())), "all_reduce");
  CHECK_ERROR((compress("topk") | compress("bf16"))(chain()), usage, "codec", "topk");
  Plan undeclared = compress("dgc")(chain());
  CHECK(faults(undeclared) == "");
  undeclared.state.pop_back();
  check_finds(undeclared, "the codec keeps the state 'local_momentum', which the plan does not declare");
}

TEST_CASE("gradients whose sum is above the largest f16 are named in the step that makes them") {
  if (threads_only()) return;
  /// The losses that two steps give; 0: the first was refused as what is not finite.
  const auto run = [](double factor, const char* codec, StepOptions options = {}) {
    std::size_t losses = 0;
    std::string refused;
    World::threads(4, [&](World& world) {
      Module model = Sequential{flatten, Linear(4, 5)};
      initialize(model, 1);
      Mesh mesh(world, {{"data", 4}});
      // 0, with a gradient of factor^2 for each output.
      const Loss loss = [factor](const Tensor& p, const Tensor&) { return sum(p - p.detach()) * factor * factor; };
      Step step(model, loss, Sgd{.lr = 1e-9}, mesh, parse_strategy(codec), options);
      try {
        for (int i = 0; i < 2; ++i) {
          step(Tensor::full({2, 2, 2, 1}, 1), Tensor::zeros({2}, DType::i64));
          if (world.main()) ++losses;
        }
      } catch (const NonFiniteError& e) {
        if (world.main()) refused = e.what();
      }
      CHECK(step.parameters().first_non_finite_value({{0, step.parameters().size()}}) == nullptr);
    });
    return std::pair(losses, refused);
  };
  const auto [losses, refused] = run(142, "compress(codec=f16)");
  CHECK(losses == 0);
  CHECK_THAT(refused, mentions("step 1", "gradient", 65504));
  CHECK(run(142, "compress(codec=bf16)").first == 2);
  CHECK(run(3, "compress(codec=f16)").first == 2);
  // Gradients that clipping finds are not finite, before their turn to be looked at.
  CHECK_THAT(run(1e30, "data_parallel", {.optimizer = {.clip_norm = 1}}).second, mentions("step 1", "gradient"));
}

}  // namespace test_compress
