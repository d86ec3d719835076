// GPT and Llama train under every strategy as on one rank: losses, norms of gradients and weights, with tied
// embeddings, dropout, short batches, and labels that are ignored.
#include <set>

#include "parallel/strategies/schedules.h"
#include "tests/models/text_runs.h"

namespace test_gpt_strategies {

using namespace trireme;
using namespace trireme::test;

namespace {

constexpr Index tokens = 16;

/// 43 windows: batches of 8, the last of an epoch of 3.
Dataset small_text() {
  return Tokens({.text = some_text(3000), .characters = true, .context = tokens, .per_epoch = 43});
}
Index characters() { return small_text()->classes(); }

GptOptions small_gpt(double dropout) {
  return {.layers = 2,
          .heads = 2,
          .width = 32,
          .positions = tokens,
          .vocabulary = characters(),
          .dropout = dropout,
          .bias = false,
          .activation = "gelu"};
}
TextSetup setup(const GptOptions& o) {
  return {.model = [o] { return gpt2(o); }, .data = small_text, .steps = brief() ? 7 : 20};
}
TextSetup setup(const LlamaOptions& o) {
  return {.model = [o] { return llama(o); }, .data = small_text, .steps = brief() ? 7 : 20};
}
LlamaOptions small_llama(bool tied) {
  return {.layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .width = 32,
          .hidden = 40,
          .positions = tokens,
          .vocabulary = characters(),
          .tied = tied};
}

/// A strategy on a mesh, as text.
struct Way {
  std::vector<Axis> mesh;
  std::string strategy;
};
std::vector<Way> ways() {
  std::vector<Way> all;
  for (const int micro : {2, 3, 4}) all.push_back({{}, fmt::format("accumulate(micro={})", micro)});
  for (const int ranks : {2, 3, 4}) all.push_back({{{"data", ranks}}, "data_parallel"});
  all.push_back({{{"data", 2}}, "accumulate(micro=3) | data_parallel(bucket=2000, first_bucket=500)"});
  all.push_back({{{"data", 3}}, "data_parallel(overlap=false)"});
  for (const int stage : {1, 2, 3})
    for (const int ranks : {2, 3}) all.push_back({{{"data", ranks}}, fmt::format("zero({})", stage)});
  all.push_back({{{"data", 4}}, "accumulate(micro=2) | zero(3)"});
  all.push_back({{{"data", 3}}, "central_storage"});
  all.push_back({{{"data", 2}}, "compress(codec=topk, ratio=1, residual=false)"});
  all.push_back({{{"data", 3}}, "accumulate(micro=2) | compress(codec=randomk, ratio=1, residual=false)"});
  for (const PipelineSchedule& s : schedules())
    for (const int micro : {2, 4})
      for (const int stages : {2, 3}) {
        if (s.interleaves && micro % stages != 0) continue;
        const std::string chunks = s.interleaves || s.folds ? ", chunks=2" : "";
        const std::string text = fmt::format("pipeline(micro={}, schedule={}{})", micro, s.name, chunks);
        all.push_back({{{"pipe", stages}}, text});
        if (stages == 2)
          all.push_back({{{"pipe", 2}, {"data", 2}}, text + (micro == 2 ? " | zero(3)" : " | data_parallel")});
      }
  all.push_back({{{"pipe", 3}}, "pipeline(micro=3, schedule=interleaved, chunks=2, partition=even)"});
  all.push_back({{{"pipe", 4}}, "pipeline(micro=4, partition=even)"});
  all.push_back({{{"data", 2}, {"pipe", 2}}, "pipeline(micro=4, schedule=zb-h1) | zero(1)"});
  all.push_back({{{"data", 2}, {"pipe", 2}}, "pipeline(micro=3) | zero(2)"});
  return all;
}

/// Each way beside the run on one rank.
void check_ways(const TextSetup& s, const std::vector<Way>& all, double tolerance = 1e-12) {
  const Outcome serial = train_text(s);
  REQUIRE(std::ranges::none_of(serial.first, [](double norm) { return std::isnan(norm); }));
  for (const Way& way : all) {
    INFO(way.strategy << " on " << ranks_of(way.mesh) << " ranks");
    check_close(train_text(s, way.mesh, parse_strategy(way.strategy)), serial, tolerance);
  }
}

const std::vector<Way> some_ways{{{{"pipe", 2}}, "pipeline(micro=2)"},
                                 {{{"data", 2}}, "data_parallel"},
                                 {{{"data", 3}}, "zero(3)"},
                                 {{}, "accumulate(micro=3)"},
                                 {{{"pipe", 2}, {"data", 2}}, "pipeline(micro=4) | zero(3)"}};

}  // namespace

TEST_CASE("a GPT with a tied embedding trains under every strategy as on one rank") {
  for (const double dropout : {0.0, 0.1}) {
    INFO("dropout " << dropout);
    const TextSetup s = setup(small_gpt(dropout));
    const auto losses = train_text(s).losses;
    CHECK(losses.back() < (brief() ? 1 : 0.95) * losses.front());  // it learns
    check_ways(s, ways());
  }
}

TEST_CASE("blocks that are recomputed, biases, an untied head: as on one rank, dropout's masks too") {
  GptOptions o = small_gpt(0.1);
  const Outcome kept = train_text(setup(o));
  o.recompute = true;
  check_close(train_text(setup(o)), kept, 1e-12);
  check_ways(setup(o), some_ways);
  o.tied = false;
  o.activation = "gelu_tanh";
  check_ways(setup(o), some_ways);
}

TEST_CASE("Llama with rotary positions and grouped heads, tied and not, trains as on one rank") {
  for (const bool tied : {false, true}) {
    INFO("tied " << tied);
    LlamaOptions o = small_llama(tied);
    check_ways(setup(o), some_ways);
    o.recompute = true;
    check_ways(setup(o), {some_ways[0], some_ways[2]});
  }
}

TEST_CASE("packed documents train as on one rank, wherever tokens, heads and blocks are") {
  const auto packed = [] {
    return Tokens({.text = some_text(3000),
                   .characters = true,
                   .context = tokens,
                   .per_epoch = 43,
                   .separator = character_tokenizer(some_text(3000)).encode(" ").at(0)});
  };
  std::vector<Way> all = some_ways;
  all.push_back({{{"tensor", 2}}, "tensor"});
  all.push_back({{{"tensor", 2}}, "tensor(sequence=true)"});
  for (const char* how : {"mode=gather, cut=zigzag", "mode=ulysses", "mode=ring, cut=striped"})
    all.push_back({{{"context", 2}}, fmt::format("context({})", how)});
  all.push_back({{{"context", 2}, {"pipe", 2}}, "pipeline(micro=2) | context(mode=ring, cut=zigzag)"});
  for (const bool recompute : {false, true}) {
    GptOptions gpt = small_gpt(0.1);
    LlamaOptions llama = small_llama(true);
    gpt.recompute = llama.recompute = recompute;
    for (TextSetup s : {setup(gpt), setup(llama)}) {
      s.steps = 6;  // gradients grow after eight steps, and rounding with them
      const double whole = train_text(s).losses.back();
      s.data = packed;
      CHECK(train_text(s).losses.back() != whole);
      check_ways(s, recompute ? std::vector{all[0], all.back()} : all);
    }
  }
}

TEST_CASE("local SGD that averages in every step trains a GPT as one rank") {
  TextSetup s = setup(small_gpt(0.1));
  s.optimizer_config = Sgd{.lr = linear(0.01, 0.3, 6), .weight_decay = 0.1};
  s.optimizer.clip_norm = 0;  // a worker would clip by its own gradient
  const Outcome serial = train_text(s);
  for (const auto& [mesh, text] :
       {Way{{{"data", 2}}, "local_sgd(every=1)"}, Way{{{"data", 3}}, "accumulate(micro=2) | local_sgd(every=1)"},
        Way{{{"pipe", 2}, {"data", 2}}, "pipeline(micro=2) | local_sgd(every=1)"},
        Way{{{"data", 3}}, "parameter_server"}, Way{{{"data", 3}}, "gossip(graph=complete)"}}) {
    INFO(text);
    const Outcome o = train_text(s, mesh, parse_strategy(text));
    CHECK(o.agreed);
    CHECK(distance(o.weights, serial.weights, serial.weight_ends) <= 1e-12);
    if (text == "parameter_server") CHECK(distance(o.losses, serial.losses) <= 1e-12);  // others: of own rows
  }
}

namespace {

/// Ids and labels of which some are `ignored`: sample i of 29 has i % 5 of them, samples 2 and 3 and their like all,
/// and the fourth batch of 8 (the last, of 5) too if `whole_batch`.
Dataset with_ignored(std::int64_t ignored, bool whole_batch) {
  const Index samples = 29, vocabulary = 11;
  const Tensor x = Tensor::empty({samples, tokens}, DType::i64), y = Tensor::empty({samples, tokens}, DType::i64);
  for (Index i = 0; i < samples; ++i)
    for (Index t = 0; t < tokens; ++t) {
      const Index at = i * tokens + t;
      const auto draw = static_cast<Index>(mix(static_cast<std::uint64_t>(at)) >> 20);
      x.data<std::int64_t>()[at] = draw % vocabulary;
      const bool left_out = t < i % 5 || i % 8 == 2 || i % 8 == 3 || (whole_batch && i >= 24);
      y.data<std::int64_t>()[at] = left_out ? ignored : (draw / 16) % vocabulary;
    }
  return TensorDataset(x, y, vocabulary);
}

}  // namespace

TEST_CASE("the head and the loss in one equal the loss of its logits, with labels that ranks ignore unevenly") {
  struct Labels {
    std::int64_t ignored;
    double smoothing;
    bool whole_batch;
  };
  for (const auto& [ignored, smoothing, whole_batch] : {Labels{-100, 0, false}, {-100, 0.1, true}, {4, 0.2, false}}) {
    const Loss loss = cross_entropy_with({.label_smoothing = smoothing, .ignore_index = ignored});
    const Loss unfused([loss](const Tensor& logits, const Tensor& labels) { return loss(logits, labels); },
                       loss.ignored());
    REQUIRE(loss.cross_entropy());
    REQUIRE(!unfused.cross_entropy());
    GptOptions o = small_gpt(0.1);
    o.vocabulary = 11;
    TextSetup fused = setup(o);
    fused.data = [ignored, whole_batch] { return with_ignored(ignored, whole_batch); };
    fused.loss = loss;
    fused.shuffle = false;
    fused.steps = 9;
    // Gradients near 0 differ in the order of sums; Adam with a smaller eps makes whole steps of them.
    AdamW optimizer_config = nano_adamw(0.01, 5, 40);
    optimizer_config.eps = 1e-6;
    fused.optimizer_config = optimizer_config;
    TextSetup apart = fused, kept = fused;
    apart.loss = unfused;
    kept.keep_outputs = whole_output;
    const Outcome serial = train_text(apart);
    for (const Way& way :
         std::vector<Way>{{{}, ""},
                          {{}, "accumulate(micro=4)"},
                          {{{"data", 2}}, "data_parallel"},
                          {{{"data", 4}}, "data_parallel"},
                          {{{"data", 4}}, "zero(3)"},
                          {{{"data", 2}}, "accumulate(micro=4) | zero(2)"},
                          {{{"pipe", 2}}, "pipeline(micro=4)"},
                          {{{"pipe", 2}, {"data", 2}}, "pipeline(micro=2, schedule=zb-h1) | zero(3)"}}) {
      const Strategy strategy = way.strategy.empty() ? Strategy() : parse_strategy(way.strategy);
      INFO(way.strategy << " on " << ranks_of(way.mesh) << " ranks, ignored " << ignored << ", smoothing "
                        << smoothing);
      check_close(train_text(fused, way.mesh, strategy), serial, 1e-12);
      check_close(train_text(kept, way.mesh, strategy), serial, 1e-12);
    }
  }
}

TEST_CASE("the norm by which gradients are clipped counts a tied weight once") {
  TextSetup s = setup(small_gpt(0));
  s.steps = 1;
  s.shuffle = false;
  Module model = s.model();
  initialize(model, 1);
  convert(model, DType::f64);
  Parameters parameters(model);
  Loader loader(s.data(), {.batch = s.batch, .seed = 3, .workers = 0});
  const auto first = loader.begin();
  cross_entropy(model(first->x), first->y).backward();
  double squares = 0;
  std::set<std::string> names;
  for (const auto& e : parameters.entries()) {
    names.insert(e.name);
    for (const double g : e.tensor.grad().to_vector()) squares += g * g;
  }
  CHECK(names.contains("transformer.wte.weight"));
  CHECK_FALSE(names.contains("lm_head.weight"));
  REQUIRE(std::sqrt(squares) > s.optimizer.clip_norm);
  for (const Way& way : ways()) {
    INFO(way.strategy << " on " << ranks_of(way.mesh) << " ranks");
    const Outcome o = train_text(s, way.mesh, parse_strategy(way.strategy));
    REQUIRE(o.first.size() == 1);
    CHECK(o.first[0] == Approx(std::sqrt(squares)).epsilon(1e-13));
  }
}

}  // namespace test_gpt_strategies
