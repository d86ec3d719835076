// What GPT-2 and Llama are told: sizes of the named ones, starts, nanoGPT's options, and what is refused.
#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>
#include <tuple>

#include "framework/autograd/tape.h"
#include "framework/io/json.h"
#include "framework/io/onnx/onnx.h"
#include "framework/io/weights.h"
#include "framework/layers/inference.h"
#include "models/text/pretrained.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace test_text_options {

using namespace trireme;
using test::contains;

namespace {

/// Numbers of a GPT-2 by its sizes.
Index count_of(const GptOptions& o) {
  const Index C = o.width, F = o.hidden_size(), b = o.bias ? 1 : 0, norm = C * (1 + b);
  const Index block = 2 * norm + C * 3 * C + C * C + 2 * C * F + b * (3 * C + C + F + C);
  return (o.vocabulary * (o.tied ? 1 : 2) + o.positions) * C + o.layers * block + norm;
}
Index count_of(const LlamaOptions& o) {
  const Index C = o.width, F = o.hidden_size(), G = C / o.heads * (o.kv_heads ? o.kv_heads : o.heads);
  const Index block = 2 * C + 2 * C * C + 2 * C * G + 3 * C * F + (o.bias ? 2 * C + 2 * G + 2 * F + C : 0);
  return o.vocabulary * C * (o.tied ? 1 : 2) + o.layers * block + C;
}
/// By the sizes that a named model's config.json says.
template <class Options>
Index named_count(const std::string& name, Options (*read)(const std::string&)) {
  const ModelRow& row = model_row(name);
  CHECK(row.text);
  return count_of(read(row.config(row.usual)));
}
Index gpt_count(const std::string& name) { return named_count<GptOptions>(name, gpt_options); }
Index llama_count(const std::string& name) { return named_count<LlamaOptions>(name, llama_options); }

GptOptions some_gpt(std::mt19937& random) {
  const Index heads = 1 + random() % 3;
  return {.layers = 1 + static_cast<Index>(random() % 3),
          .heads = heads,
          .width = heads * (1 + static_cast<Index>(random() % 5)),
          .positions = 1 + static_cast<Index>(random() % 20),
          .vocabulary = 1 + static_cast<Index>(random() % 40),
          .hidden = static_cast<Index>(random() % 3 * 7),
          .bias = random() % 2 == 0,
          .tied = random() % 2 == 0};
}
LlamaOptions some_llama(std::mt19937& random) {
  const Index groups = 1 + random() % 2, heads = groups * (1 + random() % 3);
  return {.layers = 1 + static_cast<Index>(random() % 3),
          .heads = heads,
          .kv_heads = groups,
          .width = heads * 2 * (1 + static_cast<Index>(random() % 3)),
          .hidden = 1 + static_cast<Index>(random() % 9),
          .positions = 5,
          .vocabulary = 1 + static_cast<Index>(random() % 40),
          .bias = random() % 2 == 0,
          .tied = random() % 2 == 0};
}

const ModelOptions small_text{
    .input = {16}, .classes = 11, .arch = {.layers = 2, .heads = 2, .width = 8, .dropout = 0}};
Module small(const std::string& name) {
  ModelOptions o = small_text;
  if (name == "llama") o.arch.dropout = -1;
  return make_model(name, o);
}
Tensor some_ids(Index samples, Index tokens, Index vocabulary, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const Tensor ids = Tensor::empty({samples, tokens}, DType::i64);
  for (auto& id : ids.view().span<std::int64_t>()) id = static_cast<std::int64_t>(random() % vocabulary);
  return ids;
}

}  // namespace

TEST_CASE("named sizes have as many parameters as Hugging Face's") {
  CHECK(gpt_count("gpt2") == 124'439'808);
  CHECK(gpt_count("gpt2_medium") == 354'823'168);
  CHECK(gpt_count("gpt2_large") == 774'030'080);
  CHECK(gpt_count("gpt2_xl") == 1'557'611'200);
  CHECK(llama_count("llama2_7b") == 6'738'415'616);
  CHECK(llama_count("llama3_8b") == 8'030'261'248);
  CHECK(llama_count("llama3_1_8b") == 8'030'261'248);
  CHECK(llama_count("llama3_2_1b") == 1'235'814'400);
  CHECK(llama_count("llama3_2_3b") == 3'212'749'824);
  CHECK(llama_count("tinyllama_1_1b") == 1'100'048'384);
  CHECK(llama_count("mistral_7b") == 7'241'732'096);
  std::mt19937 random(3);
  for (int i = 0; i < 30; ++i) {  // the formulas
    const GptOptions g = some_gpt(random);
    CHECK(Parameters(gpt2(g)).count() == count_of(g));
    const LlamaOptions l = some_llama(random);
    CHECK(Parameters(llama(l)).count() == count_of(l));
  }
}

TEST_CASE("a config.json says all that a model's options do") {
  std::mt19937 random(4);
  for (int i = 0; i < 50; ++i) {
    GptOptions g = some_gpt(random);
    if (!g.bias) CHECK_ERROR(gpt2_config(g), usage, "arch.bias", 1);
    g.bias = true;
    CHECK(gpt2_config(gpt_options(gpt2_config(g))) == gpt2_config(g));
    LlamaOptions l = some_llama(random);
    l.rope = {.base = 500000};
    const RopeScaling::Kind kinds[] = {RopeScaling::Kind::none, RopeScaling::Kind::linear, RopeScaling::Kind::llama3};
    if (i % 3 > 0) l.rope.scaling = {.kind = kinds[i % 3], .factor = 4};
    if (!l.bias) l.window = static_cast<Index>(random() % 4);
    const LlamaOptions read = llama_options(llama_config(l));
    CHECK(read.window == l.window);
    CHECK(llama_config(read) == llama_config(l));
    CHECK(read.rope == l.rope);
  }
  const auto with = [](std::string text, const std::string& key, const Json& value) {
    Json config = parse_json(text);
    config[key] = value;
    return json_text(config);
  };
  const std::string g = gpt2_config({}), l = llama_config({});
  CHECK(gpt_options(with(g, "activation_function", "gelu_pytorch_tanh")).activation == "gelu_tanh");
  const std::pair<std::string, std::string> bad[] = {
      {"no JSON", "no JSON object"},
      {"[1, 2]", "no JSON object"},
      {l, "llama"},
      {with(g, "n_layer", "twelve"), "n_layer"},
      {with(g, "scale_attn_by_inverse_layer_idx", true), "scale_attn_by_inverse_layer_idx"},
      {with(g, "embd_pdrop", 0.5), "embd_pdrop"}};
  for (const auto& [text, expected] : bad) CHECK_ERROR(gpt_options(text), data, expected);
  const std::string m = llama_config({.window = 8});
  CHECK(llama_options(m).window == 8);
  CHECK(llama_options(with(m, "sliding_window", Json())).window == 0);
  CHECK_ERROR(llama_config({.window = 8, .bias = true}), usage, "window", "biases");
  CHECK_ERROR(llama_options(with(l, "head_dim", 5)), data, "head_dim", 5);
  CHECK_ERROR(llama_options(with(l, "hidden_act", "gelu")), data, "hidden_act", "gelu");
  CHECK_ERROR(llama_options(with(l, "rope_parameters", {{"rope_type", "yarn"}})), data, "pretrained", "yarn");
}

TEST_CASE("what a folder says of ends, biases and weights of other kinds is read or refused") {
  const auto with = [](const std::string& text, std::initializer_list<std::pair<const char*, Json>> members) {
    Json config = parse_json(text);
    for (const auto& [key, value] : members) config[key] = value;
    return json_text(config);
  };
  const std::string g = gpt2_config({}), l = llama_config({});
  CHECK_ERROR(llama_options(with(l, {{"attention_bias", true}})), data, "attention_bias", "mlp_bias", true, false);
  CHECK_ERROR(llama_options(with(l, {{"mlp_bias", true}})), data, "attention_bias", "mlp_bias", true, false);
  Json absent = parse_json(l);
  absent.erase("mlp_bias");
  absent["attention_bias"] = true;
  CHECK_ERROR(llama_options(json_text(absent)), data, "attention_bias", "mlp_bias");
  CHECK(llama_options(with(l, {{"attention_bias", true}, {"mlp_bias", true}})).bias);
  const Json quantized{{"quant_method", "gptq"}};
  CHECK_ERROR(llama_options(with(l, {{"quantization_config", quantized}})), data, "quantization_config");
  CHECK_ERROR(gpt_options(with(g, {{"quantization_config", quantized}})), data, "quantization_config");
  // What ends a text goes through options and back.
  for (const Json& ends : {Json(7), Json{7, 9}}) {
    CHECK(parse_json(llama_config(
              llama_options(with(l, {{"eos_token_id", ends}, {"bos_token_id", 1}}))))["eos_token_id"] == ends);
    CHECK(parse_json(gpt2_config(gpt_options(with(g, {{"eos_token_id", ends}}))))["eos_token_id"] == ends);
  }
  CHECK(parse_json(llama_config(llama_options(with(l, {{"bos_token_id", 1}}))))["bos_token_id"] == 1);

  const test::Temporary folder;
  using Ids = std::vector<Index>;
  test::spill(folder / "config.json", l);
  CHECK(end_tokens(folder.path()) == Ids());
  test::spill(folder / "config.json", with(l, {{"eos_token_id", 7}}));
  CHECK(end_tokens(folder.path()) == Ids{7});
  test::spill(folder / "generation_config.json",
              R"({"temperature": 0.6, "do_sample": true, "repetition_penalty": 1.0})");
  CHECK(end_tokens(folder.path()) == Ids{7});
  test::spill(folder / "generation_config.json", R"({"eos_token_id": [8, 9]})");
  CHECK(end_tokens(folder.path()) == Ids{8, 9});
  test::spill(folder / "generation_config.json", R"({"eos_token_id": "x"})");
  CHECK_ERROR(end_tokens(folder.path()), data, "eos_token_id");
  test::spill(folder / "generation_config.json", R"({"repetition_penalty": 1.1})");
  CHECK_ERROR(end_tokens(folder.path()), data, "generation_config.json", "repetition_penalty", 1.1);
  test::spill(folder / "generation_config.json", R"({"suppress_tokens": [5]})");
  CHECK_ERROR(end_tokens(folder.path()), data, "suppress_tokens");
  const auto sampling = [&](const std::string& text) {
    test::spill(folder / "generation_config.json", text);
    const GenerateOptions o = with_folder_sampling({}, folder.path());
    return std::tuple(o.temperature, o.top_k, o.top_p);
  };
  CHECK(sampling(R"({"eos_token_id": 8})") == std::tuple(1.0, 0, 1.0));
  CHECK(sampling(R"({"temperature": 0.6, "top_p": 0.9, "top_k": 7})") == std::tuple(0.6, 7, 0.9));
  CHECK(sampling(R"({"do_sample": true, "top_p": null})") == std::tuple(1.0, 50, 1.0));
  CHECK(sampling(R"({"do_sample": true, "top_k": null})") == std::tuple(1.0, 0, 1.0));
  CHECK(sampling(R"({"do_sample": false, "temperature": 0.6})") == std::tuple(0.0, 0, 1.0));
  CHECK_ERROR(sampling(R"({"temperature": "hot"})"), data, "temperature");
  std::filesystem::remove(folder / "generation_config.json");
  test::spill(folder / "config.json", with(l, {{"top_k", 9}}));
  CHECK(with_folder_sampling({}, folder.path()).top_k == 9);
  test::spill(folder / "pytorch_model.bin", "weights");
  CHECK_ERROR(load_pretrained(folder.path()), file, "pytorch_model.bin", "trireme import");
}

TEST_CASE("folders as save_pretrained writes them go both ways") {
  for (const std::string name : {"gpt2", "llama"}) {
    const test::Temporary folder;
    Module model = small(name);
    Parameters parameters(model);
    ModelOptions options = small_text;
    if (name == "llama") options.arch.dropout = -1;
    save_pretrained(folder / "saved", parameters, model_row(name).config(options));
    const Module read = load_pretrained(folder / "saved");
    const Inference inference;
    const Tensor ids = some_ids(2, 7, 11, 1);
    CHECK(read(ids).to_vector() == model(ids).to_vector());
    CHECK_ERROR(load_pretrained(folder / "nothing"), file, "file", "config.json");
    Json config = parse_json(test::slurp(folder / "saved/config.json"));
    config[name == "gpt2" ? "n_layer" : "num_hidden_layers"] = -1;
    test::spill(folder / "saved/config.json", json_text(config));
    CHECK_ERROR(load_pretrained(folder / "saved"), data, "saved/config.json", -1);
    config[name == "gpt2" ? "n_layer" : "num_hidden_layers"] = 1 << 30;  // refused before memory is taken
    test::spill(folder / "saved/config.json", json_text(config));
    CHECK_ERROR(load_pretrained(folder / "saved"), data, "saved/config.json", "model.safetensors");
  }
}

TEST_CASE("weights start as GPT-2's do, and matrices alone decay") {
  Module model = gpt2({.layers = 2, .heads = 4, .width = 128, .positions = 64, .vocabulary = 500});
  for (int drawn = 0; drawn < 2; ++drawn) {
    for (const NamedState& t : named_tensors(model)) {
      INFO(t.name);
      CHECK((t.kind == StateKind::weight) == (t.tensor->rank() == 2));
      const auto values = t.tensor->to_vector();
      double squares = 0;
      for (double v : values) squares += v * v;
      const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
      const double expected = t.name.ends_with("bias")            ? 0
                              : t.tensor->rank() == 1             ? 1
                              : t.name.ends_with("c_proj.weight") ? 0.01
                                                                  : 0.02;
      CHECK(std::abs(deviation - expected) <= 0.03 * expected);
    }
    initialize(model, 7);
  }
  const Tensor ids = some_ids(2, 9, 500, 2);
  const auto copy = [&] {
    const Inference inference;
    Module other = model.clone();
    const auto before = model(ids).to_vector();
    CHECK(other(ids).to_vector() == before);
    return other;
  };
  CHECK(Parameters(copy()).ties() == std::map<std::string, std::string>{{"lm_head.weight", "transformer.wte.weight"}});
}

TEST_CASE("nanoGPT's options: no biases, exact GELU, beside PyTorch") {
  Module model = gpt2({.layers = 2,
                       .heads = 3,
                       .width = 12,
                       .positions = 11,
                       .vocabulary = 17,
                       .dropout = 0,
                       .bias = false,
                       .activation = "gelu"});
  convert(model, DType::f64);
  Parameters parameters(model);
  std::uint64_t key = 0;
  for (const auto& e : parameters.entries()) uniform(e.tensor, -0.8, 0.8, ++key);
  test::Oracle torch;
  const Tensor ids = some_ids(3, 9, 17, 3), labels = some_ids(3, 9, 17, 4);
  torch.put("ids", ids);
  torch.put("labels", labels);
  for (const auto& e : parameters.entries()) torch.put(e.name, e.tensor);
  if (!torch.run("torch_gpt.py", "2 3")) return;
  const Tensor logits = model(ids);
  CHECK(test::distance(logits.to_vector(), torch.get("logits")) < 1e-11);
  cross_entropy(logits, labels).backward();
  for (const auto& e : parameters.entries()) {
    INFO(e.name);
    CHECK(test::distance(e.tensor.grad().to_vector(), torch.get(e.name + ".grad")) < 1e-10);
  }
}

TEST_CASE("blocks that keep their input alone, and dropout, which a rank's rows draw alike") {
  for (const std::string name : {"gpt2", "llama"}) {
    INFO(name);
    std::vector<std::vector<double>> gradients;
    const Tensor ids = some_ids(3, 8, 11, 5), labels = some_ids(3, 8, 11, 6);
    for (const bool recompute : {false, true}) {
      ModelOptions o = small_text;
      o.arch.dropout = name == "gpt2" ? 0.3 : -1;
      o.recompute = recompute;
      Module model = make_model(name, o);
      initialize(model, 4);
      convert(model, DType::f64);
      Parameters parameters(model);
      const StepScope step(StepContext{.batch = {.seed = 3, .step = 2}});
      cross_entropy(model(ids), labels).backward();
      std::vector<double> all;
      for (const auto& e : parameters.entries())
        for (double g : e.tensor.grad().to_vector()) all.push_back(g);
      gradients.push_back(all);
      const auto again = [&](const StepContext& context) {
        const StepScope scope(context);
        const NoGrad no_grad;
        return model(ids).to_vector();
      };
      const auto first = again({.batch = {.seed = 3, .step = 2}});
      CHECK(again({.batch = {.seed = 3, .step = 2}}) == first);
      CHECK((again({.batch = {.seed = 3, .step = 3}}) == first) == (name == "llama"));
    }
    CHECK(test::distance(gradients[0], gradients[1]) < 1e-12);
  }
}

TEST_CASE("activations are bf16 where a model is told so, over f32 weights with f32 gradients") {
  for (const std::string name : {"gpt2", "llama"}) {
    INFO(name);
    const Tensor ids = some_ids(3, 8, 11, 5), labels = some_ids(3, 8, 11, 6);
    std::map<DType, std::vector<double>> logits, gradients;
    for (const DType type : {DType::f32, DType::bf16}) {
      ModelOptions o = small_text;
      o.arch.dropout = name == "gpt2" ? 0 : -1;
      if (type == DType::bf16) o.dtype = type;
      Module model = make_model(name, o);
      initialize(model, 4);
      Parameters parameters(model);
      const Tensor y = model(ids);
      CHECK(y.dtype() == type);
      logits[type] = y.to_vector();
      const auto& parts = *model.as<Sequential>();
      parts[1].as<LmHead>()->loss(parts[0](ids), labels, {}).backward();
      for (const auto& e : parameters.entries()) {
        CHECK(e.tensor.grad().dtype() == DType::f32);
        for (double g : e.tensor.grad().to_vector()) gradients[type].push_back(g);
      }
      const Inference inference;
      KvCache cache(3, 8);
      const KvScope scope(cache);
      CHECK(test::distance(model(ids).to_vector(), logits[type]) < (type == DType::f32 ? 1e-5 : 0.03));
    }
    CHECK(test::distance(logits[DType::bf16], logits[DType::f32]) < 0.03);
    CHECK(test::distance(gradients[DType::bf16], gradients[DType::f32]) < 0.03);
  }
}

TEST_CASE("sizes and ids that do not fit are refused by name and number") {
  const auto make = [](const std::string& name, const ArchOptions& arch, Shape input = {16}) {
    ModelOptions o = small_text;
    o.arch = arch;
    o.input = input;
    return make_model(name, o);
  };
  CHECK_ERROR(make("gpt2", {.heads = 5, .width = 12}), usage, 12, 5);
  CHECK_ERROR(make("llama", {.heads = 6, .kv_heads = 4, .width = 12}), usage, 6, 4);
  CHECK_ERROR(make("gpt2", {.kv_heads = 2}), usage, 2, "arch.kv_heads");
  CHECK_ERROR(make("llama", {.dropout = 0.1}), usage, "0.1", "arch.dropout");
  CHECK_ERROR(make("llama", {.activation = "gelu"}), usage, "gelu", "arch.activation");
  CHECK_ERROR(make("gpt2", {.activation = "gelo"}), usage, "activation", "gelu");
  CHECK_ERROR(make("gpt2", {.vocabulary = 10}), usage, 10, 11, "arch.vocabulary");
  CHECK_ERROR(make("gpt2", {.positions = 8}), usage, 8, 16, "arch.positions");
  CHECK_ERROR(make("gpt2", {}, {28, 28, 1}), usage, "gpt2", "[tokens]");
  CHECK_ERROR(make("gpt2", {.layers = -1}), usage, "gpt2", -1);
  CHECK(make("gpt2", {.layers = 1, .heads = 1, .width = 4, .vocabulary = 64})(some_ids(1, 2, 11, 1)).dim(2) == 64);
  for (const std::string name : {"gpt2", "llama"}) {
    const Module model = small(name);
    const Tensor ids = some_ids(4, 9, 11, 7);
    ids.data<std::int64_t>()[3 * 9 + 7] = 11;
    CHECK_ERROR(model(ids), data, 3, 7, 11, 0);
    ids.data<std::int64_t>()[3 * 9 + 7] = -1;
    CHECK_ERROR(model(ids), data, 3, 7, -1);
  }
  const Module gpt = small("gpt2");
  CHECK_ERROR(gpt(some_ids(1, 17, 11, 8)), usage, 16, 17);
  ModelOptions few = small_text;
  few.arch = {.layers = 1, .heads = 1, .width = 4, .positions = 16};
  const Module turning = make_model("llama", few);
  CHECK_ERROR(turning(some_ids(1, 17, 11, 8)), usage, 16, 17);
  const Inference inference;
  KvCache cache(1, 20);
  const KvScope scope(cache);
  for (const Module& model : {gpt, turning}) {
    cache.truncate({0});
    model(some_ids(1, 15, 11, 9));
    cache.advance(15);
    CHECK_ERROR(model(some_ids(1, 2, 11, 9)), usage, 16, 17);
  }
  CHECK_ERROR(SelfAttention(8, 2)(Tensor::zeros({1, 3, 8})), usage, "self_attention");
}

TEST_CASE("torch.nn.MultiheadAttention's weights are SelfAttention's") {
  const SelfAttention layer(12, 3);
  Module model = layer;
  Parameters parameters(model);
  std::vector<std::string> names;
  for (const auto& e : parameters.entries()) names.push_back(fmt::format("{} {}", e.name, e.tensor.shape()));
  CHECK(names == std::vector<std::string>{"in_proj_weight [36, 12]", "in_proj_bias [36]", "out_proj.weight [12, 12]",
                                          "out_proj.bias [12]"});
  const Tensor x = normal({2, 5, 12}, 0, 1, 3);
  const Tensor y = model(x);
  // Keys behind a length count for nothing.
  const Tensor lengths = Tensor::from({std::int64_t{3}, std::int64_t{5}});
  const Tensor shorter = (*model.as<SelfAttention>())(x, lengths);
  const Tensor alone = model(slice(x.rows(0, 1), 1, 0, 3));
  CHECK(test::distance(slice(shorter.rows(0, 1), 1, 0, 3).to_vector(), alone.to_vector()) < 1e-6);
  CHECK(test::distance(shorter.rows(1, 2).to_vector(), y.rows(1, 2).to_vector()) < 1e-6);
}

}  // namespace test_text_options
