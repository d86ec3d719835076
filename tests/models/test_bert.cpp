// BERT beside Hugging Face's: a seeded model that tests/oracles/vit_bert_fixtures.py has written; token types and
// lengths beside the ids, through pipelines, too.
#include "models/text/bert.h"
#include "parallel/runtime/step_probe.h"

#include <random>

#include "framework/io/onnx/onnx.h"
#include "framework/layers/inference.h"
#include "tests/models/fixtures.h"
#include "tests/parallel/training.h"

namespace test_bert {

using namespace trireme;
using namespace trireme::test;

namespace {

const BertOptions tiny{.layers = 2, .heads = 2, .width = 8, .positions = 16, .vocabulary = 23, .hidden = 12};
const LabelLossOptions masked{.ignore_index = -100};

SafetensorsFile expected_of() { return read_safetensors(fixture("text/bert.expected.safetensors")); }
std::string path() { return fixture("text/bert.safetensors"); }

/// Random ids, types and lengths, and labels of a third of the tokens that count.
struct Texts {
  Tensor x, y;
  Texts(Index samples, Index tokens, Index vocabulary, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Tensor ids = Tensor::empty({samples, tokens}, DType::i64), types = Tensor::like(ids),
           length = Tensor::empty({samples}, DType::i64);
    y = Tensor::like(ids);
    for (Index n = 0; n < samples; ++n) {
      const Index most = length.data<std::int64_t>()[n] = 1 + static_cast<Index>(random() % tokens);
      for (Index t = 0; t < tokens; ++t) {
        const Index at = n * tokens + t;
        ids.data<std::int64_t>()[at] = random() % vocabulary;
        types.data<std::int64_t>()[at] = t > most / 2;
        const bool asked = t < most && random() % 3 == 0;
        y.data<std::int64_t>()[at] = asked ? static_cast<std::int64_t>(random() % vocabulary) : -100;
      }
    }
    x = ids.with("token_type_ids", types).with("length", length);
  }
};

Sequential random_bert(BertOptions o, std::uint64_t seed) {
  Module model = bert(o);
  initialize(model, seed);
  convert(model, DType::f64);
  std::uint64_t key = seed;
  for (const NamedState& t : named_tensors(model)) uniform(*t.tensor, -0.4, 0.4, ++key);
  return *model.as<Sequential>();
}

}  // namespace

TEST_CASE("BERT's weights come in by name, and Hugging Face's logits, loss and gradients are ours") {
  const Sequential model = bert(tiny);
  Parameters parameters(model);
  import_weights(parameters, path());
  const SafetensorsFile expected = expected_of();
  const StepScope evaluation(StepContext{.batch = {.training = false}});
  const Tensor ids = expected.at("ids"), labels = expected.at("labels");
  CHECK(distance(model(ids).to_vector(), expected.at("plain_logits").to_vector()) < 1e-5);
  const Tensor x = ids.with("token_type_ids", expected.at("token_type_ids")).with("length", expected.at("length"));
  const Tensor logits = model(x);
  CHECK(logits.shape() == expected.at("logits").shape());
  CHECK(logits.fields().empty());
  CHECK(distance(logits.to_vector(), expected.at("logits").to_vector()) < 1e-5);
  const Tensor loss = cross_entropy_with(masked)(logits, labels);
  CHECK(loss.item() == Approx(expected.at("loss").item()).epsilon(1e-6));
  loss.backward();
  check_gradients(parameters, expected, "key.bias");
  check_same_file(parameters, path());
  check_config(bert_config(tiny), fixture("text/bert.json"));
}

TEST_CASE("BERT's files of other forms: tied tensors under all names, position ids, parts for other tasks, old names") {
  const SafetensorsFile file = read_safetensors(path());
  const auto with = [&](const std::function<void(SafetensorsFile&)>& change) {
    SafetensorsFile changed = file;
    change(changed);
    Parameters read(bert(tiny));
    import_weights(read, changed, "a file");
    const auto own = by_name(export_weights(read));
    for (const auto& [name, tensor] : own) CHECK(tensor.to_vector() == file.at(name).to_vector());
    CHECK(own.size() == file.tensors.size());
  };
  const auto add = [](SafetensorsFile& f, const std::string& name, const Tensor& t) { f.tensors.push_back({name, t}); };
  with([](SafetensorsFile&) {});
  with([&](SafetensorsFile& f) {
    add(f, "cls.predictions.decoder.weight", file.at("bert.embeddings.word_embeddings.weight").clone());
    add(f, "cls.predictions.decoder.bias", file.at("cls.predictions.bias").clone());
    add(f, "bert.embeddings.position_ids", Tensor::zeros({1, 16}, DType::i64));
  });
  with([&](SafetensorsFile& f) {  // of pretraining by two tasks, as the first BERT's files are
    add(f, "bert.pooler.dense.weight", Tensor::zeros({8, 8}));
    add(f, "bert.pooler.dense.bias", Tensor::zeros({8}));
    add(f, "cls.seq_relationship.weight", Tensor::zeros({2, 8}));
    add(f, "cls.seq_relationship.bias", Tensor::zeros({2}));
    for (auto& t : f.tensors) {
      const auto at = t.name.find("LayerNorm.");
      if (at != t.name.npos) t.name = t.name.substr(0, at + 10) + (t.name.ends_with("weight") ? "gamma" : "beta");
    }
  });
  CHECK_ERROR(with([&](SafetensorsFile& f) { add(f, "cls.predictions.decoder.bias", Tensor::zeros({23})); }), data,
              "cls.predictions.bias", "cls.predictions.decoder.bias");
  BertOptions untied = tiny;
  untied.tied = false;
  Parameters apart(bert(untied));
  CHECK_ERROR(import_weights(apart, path()), data, 1, "cls.predictions.decoder.weight");
}

TEST_CASE("the named BERTs have as many parameters as Hugging Face's") {
  const auto named_count = [](const std::string& name) {
    const ModelRow& row = model_row(name);
    CHECK(row.text);
    const auto with = [&](Index layers) {
      ModelOptions o = row.usual;
      o.arch.layers = layers;
      return Parameters(row.make(o)).count();
    };
    const Index one = with(1), layers = parse_json(row.config(row.usual))["num_hidden_layers"];
    return one + (layers - 1) * (with(2) - one);
  };
  CHECK(named_count("bert") == 109'514'298);
  CHECK(named_count("bert_large") == 335'174'458);
}

TEST_CASE("tokens that pad a text change nothing: its logits are those that it has alone") {
  std::mt19937 random(3);
  for (int i = 0; i < 15; ++i) {
    const Index tokens = 1 + random() % 12, samples = 1 + random() % 4;
    BertOptions o = tiny;
    o.layers = 1 + random() % 3;
    o.recompute = i % 2;
    const Sequential model = random_bert(o, i + 1);
    const StepScope evaluation(StepContext{.batch = {.training = false}});
    const Texts b(samples, tokens, o.vocabulary, 50 + i);
    const Tensor all = model(b.x);
    for (Index n = 0; n < samples; ++n) {
      const Index length = static_cast<Index>(b.x.at("length").to_vector()[n]);
      const auto cut = [&](const Tensor& t) { return slice(t.rows(n, n + 1), 1, 0, length); };
      const Tensor alone = model(cut(b.x).with("token_type_ids", cut(b.x.at("token_type_ids"))));
      CHECK(distance(cut(all).to_vector(), alone.to_vector()) < 1e-12);
    }
  }
}

TEST_CASE("BERT trains alike on one rank and under every strategy, with types and lengths beside the ids") {
  const auto train = [](World& world, const std::string& axis, const std::optional<Strategy>& strategy,
                        bool recompute) {
    BertOptions o = tiny;
    o.layers = 3;
    o.recompute = recompute;
    Mesh mesh(world, {{axis, world.size()}});
    Step step(random_bert(o, 7), cross_entropy_with(masked), AdamW{.lr = 0.01, .eps = 1e-3}, mesh, strategy,
              {.seed = 3, .optimizer = {.clip_norm = 0.5}});
    std::vector<double> losses;
    for (std::uint64_t i = 0; i < 5; ++i) {
      const Texts b(7, 9, o.vocabulary, i);
      const bool all = axis == "pipe";
      const auto [begin, end] = share(7, all ? 0 : world.rank(), all ? 1 : world.size());
      losses.push_back(step(b.x.rows(begin, end), b.y.rows(begin, end)).item());
    }
    StepProbe(step).consolidate();
    return outcome(world, losses, step.parameters());
  };
  const auto on = [&](int ranks, const std::string& axis, const char* text, bool recompute = false) {
    return on_ranks(ranks, [&](World& world) {
      return train(world, axis, text ? std::optional(parse_strategy(text)) : std::nullopt, recompute);
    });
  };
  const Outcome serial = on(1, "data", nullptr);
  CHECK(serial.losses.back() < serial.losses.front());
  check_close(on(1, "data", nullptr, true), serial, 1e-12);
  check_close(on(1, "data", "accumulate(micro=3)"), serial, 1e-12);
  for (const int ranks : rank_counts({2, 3})) {
    for (const char* text : {"data_parallel", "zero(3)"}) {
      INFO(text << " on " << ranks);
      check_close(on(ranks, "data", text), serial, 1e-12);
    }
    for (const char* text : {"pipeline(micro=2, partition=even)", "pipeline(micro=2, partition=even, schedule=zb-h1)"})
      for (const bool recompute : {false, true}) {
        INFO(text << " on " << ranks << (recompute ? ", recomputing" : ""));
        check_close(on(ranks, "pipe", text, recompute), serial, 1e-12);
      }
  }
}

TEST_CASE("what does not fit BERT is refused, by name") {
  const Sequential model = bert(tiny);
  const Tensor ids = Tensor::zeros({2, 5}, DType::i64);
  CHECK_ERROR(model(Tensor::full({2, 5}, 23, DType::i64)), data, 0, 23);
  CHECK_ERROR(model(Tensor::zeros({2, 17}, DType::i64)), usage, "position_embedding", 16);
  CHECK_ERROR(model(ids.with("token_type_ids", Tensor::zeros({2, 4}, DType::i64))), usage, "[2, 4]", "[2, 5]",
              "token_type_ids");
  CHECK_ERROR(model(ids.with("token_type_ids", Tensor::full({2, 5}, 2, DType::i64))), data, "embedding", 2);
  CHECK_ERROR(model(ids.with("length", Tensor::zeros({3}, DType::i64))), usage, 2, "[2]");
  const auto refused = [](const std::function<void(ModelOptions&)>& change, const std::string& why) {
    ModelOptions o{.input = {16}, .classes = 23, .arch = {.layers = 1, .heads = 2, .width = 8}};
    change(o);
    CHECK_ERROR(make_model("bert", o), usage, why);
  };
  refused([](auto& o) { o.arch.heads = 3; }, "8");
  refused([](auto& o) { o.arch.kv_heads = 1; }, "arch.kv_heads");
  refused([](auto& o) { o.arch.bias = 0; }, "arch.bias is 0");
  refused([](auto& o) { o.arch.vocabulary = 22; }, "arch.vocabulary");
  refused([](auto& o) { o.input = {8, 8, 1}; }, "expected [tokens]");
}

TEST_CASE("what stands beside a batch reaches every layer of a row, and not its result") {
  std::vector<std::string> seen;
  const auto look = [&](const Tensor& x) {
    std::string names;
    for (const auto& [name, t] : x.fields()) names += name + std::to_string(t.numel()) + " ";
    seen.push_back(names);
    return x + 1;
  };
  const Sequential inner{look, look};
  const Module model =
      Sequential{look, inner, [&](const Tensor& x) { return look(x).with("a", Tensor::zeros({7})); }, look};
  const Tensor y = model(Tensor::zeros({2}).with("a", Tensor::zeros({1})).with("b", Tensor::zeros({2})));
  CHECK(seen == std::vector<std::string>{"a1 b2 ", "a1 b2 ", "a1 b2 ", "a1 b2 ", "a7 b2 "});
  CHECK(y.fields().empty());
}

TEST_CASE("what a layer puts beside its result does not cross a cut unseen") {
  if (threads_only()) return;
  const auto train = [](World& world, const std::string& strategy) {
    struct Adds {
      Linear linear{3, 3};
      Tensor operator()(const Tensor& x) const { return linear(x).with("own", x); }
      void visit(const StateVisitor& v) { v("linear", linear); }
    };
    struct Reads {
      Linear linear{3, 2};
      Tensor operator()(const Tensor& x) const { return linear(x + x.at("own") + x.at("given")); }
      void visit(const StateVisitor& v) { v("linear", linear); }
    };
    Mesh mesh(world, {{world.size() > 1 ? "pipe" : "data", world.size()}});
    Module model = Sequential{Linear(3, 3), Adds(), Reads(), Linear(2, 2)};
    initialize(model, 1);
    Step step(model, mse_loss, Sgd{.lr = 0.1}, mesh, parse_strategy(strategy));
    const Tensor x = normal({4, 3}, 0, 1, 1).with("given", normal({4, 3}, 0, 1, 2));
    return step(x, Tensor::zeros({4, 2})).item();
  };
  const auto on = [&](int ranks, const std::string& strategy) {
    return on_ranks(ranks, [&](World& world) { return train(world, strategy); });
  };
  CHECK_ERROR(on(2, "pipeline(micro=2, partition=even)"), usage, 1, "own");
  CHECK(on(2, "pipeline(micro=2, partition=3)") == Approx(on(1, "accumulate(micro=2)")));
}

TEST_CASE("onnxruntime computes BERT's logits from our ONNX file") {
  const Oracle oracle;
  Module model = bert(tiny);
  Parameters parameters(model);
  import_weights(parameters, path());
  const Tensor ids = expected_of().at("ids"), logits = expected_of().at("plain_logits");
  export_onnx(model, parameters, {ids.dim(1)}, oracle.folder() / "bert.onnx", {.input = DType::i64});
  oracle.put("bert.all.x", ids);
  oracle.put("bert.one.x", ids.rows(2, 3));
  oracle.run("onnx_oracle.py", "check");
  if (!oracle.run("onnx_oracle.py", "run", test::Python::oracles)) return;
  CHECK(distance(oracle.get("bert.all.y"), logits.to_vector()) < 1e-5);
  CHECK(distance(oracle.get("bert.one.y"), logits.rows(2, 3).to_vector()) < 1e-5);
}

}  // namespace test_bert
