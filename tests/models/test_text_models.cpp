// GPT-2 and Llama beside Hugging Face's: seeded models that tests/oracles/hf_fixtures.py has written, weights in and
// out, logits, gradients, greedy decoding with and without a KvCache.
#include <filesystem>
#include <random>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/onnx/onnx.h"
#include "framework/io/weights.h"
#include "framework/layers/inference.h"
#include "models/text/bert.h"
#include "models/text/pretrained.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace test_text_models {

using namespace trireme;
using test::contains;

namespace {

const GptOptions tiny_gpt{.layers = 2, .heads = 2, .width = 8, .positions = 40, .vocabulary = 29};
const LlamaOptions tiny_llama{
    .layers = 2, .heads = 4, .kv_heads = 2, .width = 16, .hidden = 20, .positions = 40, .vocabulary = 29, .eps = 1e-6};
LlamaOptions tied_llama() {
  LlamaOptions o = tiny_llama;
  o.layers = 1;
  o.heads = 3;
  o.kv_heads = 1;
  o.width = 12;
  o.bias = o.tied = true;
  o.rope.scaling = {.kind = RopeScaling::Kind::llama3, .factor = 4, .original_context = 16};
  return o;
}

/// A model of Hugging Face's, what it says, and ours of the same sizes.
struct Case {
  std::string name;
  Sequential model;
  std::string config;
  SafetensorsFile expected;

  std::string path() const { return folder() + name + ".safetensors"; }
  static std::string folder() { return (test::root() / "tests/fixtures/text/").string(); }
};
Case make_case(const std::string& name, Sequential model, std::string config) {
  return {name, std::move(model), std::move(config), read_safetensors(Case::folder() + name + ".expected.safetensors")};
}
std::vector<Case> cases() {
  return {make_case("gpt2", gpt2(tiny_gpt), gpt2_config(tiny_gpt)),
          make_case("llama", llama(tiny_llama), llama_config(tiny_llama)),
          make_case("llama_tied", llama(tied_llama()), llama_config(tied_llama()))};
}

/// |a - b| / |b|, both norms over all elements.
double relative(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector(), y = b.to_vector();
  if (x.size() != y.size()) return 1e300;
  double off = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    off += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  return std::sqrt(off / size);
}

std::map<std::string, Tensor> by_name(const std::vector<NamedTensor>& all) {
  std::map<std::string, Tensor> named;
  for (const auto& [name, tensor] : all) named.emplace(name, tensor);
  return named;
}

/// Every gradient beside the file's "grad.NAME", in files' layout.
void check_gradients(const Parameters& parameters, const Case& c) {
  const auto own = by_name(export_tensors(stored_state(parameters, "grad", parameters.grads())));
  std::size_t of_file = 0;
  for (const auto& [name, expected] : c.expected.tensors) {
    if (!name.starts_with("grad.")) continue;
    ++of_file;
    INFO(name);
    const auto at = own.find("grad/" + name.substr(5));
    REQUIRE(at != own.end());
    CHECK(at->second.shape() == expected.shape());
    CHECK(relative(at->second, expected) < 1e-5);
  }
  CHECK(own.size() == of_file);
}

using Texts = std::vector<std::vector<std::int64_t>>;

/// Texts as one tensor, shorter ones padded at the end.
Tensor padded(const Texts& texts) {
  std::size_t longest = 0;
  for (const auto& t : texts) longest = std::max(longest, t.size());
  const Tensor ids = Tensor::zeros({static_cast<Index>(texts.size()), static_cast<Index>(longest)}, DType::i64);
  for (std::size_t n = 0; n < texts.size(); ++n) std::ranges::copy(texts[n], ids.data<std::int64_t>() + n * longest);
  return ids;
}
/// Of sample n of logits [N, T, V] the most probable id behind token t.
std::int64_t best(const Tensor& logits, std::size_t n, std::size_t t) {
  const auto T = static_cast<std::size_t>(logits.dim(1)), V = static_cast<std::size_t>(logits.dim(2));
  const auto all = logits.view().span<const float>().subspan((n * T + t) * V, V);
  return std::ranges::max_element(all) - all.begin();
}

/// What greedy decoding adds to each text; with a cache each token runs once.
Texts greedy(const Module& model, Texts texts, std::size_t more, bool with_cache) {
  const Inference inference;
  const std::size_t samples = texts.size();
  Texts added(samples), at_hand = texts;
  KvCache cache(static_cast<Index>(samples), 40);
  for (std::size_t i = 0; i < more; ++i) {
    Tensor logits;
    if (with_cache) {
      const KvScope scope(cache);
      logits = model(padded(at_hand));
      std::vector<Index> counts;
      for (const auto& t : at_hand) counts.push_back(std::ssize(t));
      cache.advance(counts);
    } else {
      logits = model(padded(texts));
    }
    for (std::size_t n = 0; n < samples; ++n) {
      const std::int64_t id = best(logits, n, (with_cache ? at_hand : texts)[n].size() - 1);
      added[n].push_back(id);
      texts[n].push_back(id);
      at_hand[n] = {id};
    }
  }
  return added;
}

}  // namespace

TEST_CASE("Hugging Face's weights come in by name, and its logits, loss and gradients are ours") {
  for (Case& c : cases()) {
    INFO(c.name);
    Module model = c.model;
    Parameters parameters(model);
    import_weights(parameters, c.path());
    const StepScope evaluation(StepContext{.batch = {.training = false}});
    const Tensor &ids = c.expected.at("ids"), &labels = c.expected.at("labels");
    const Tensor logits = model(ids);
    CHECK(logits.shape() == c.expected.at("logits").shape());
    CHECK(test::distance(logits.to_vector(), c.expected.at("logits").to_vector()) < 1e-5);
    const Tensor loss = cross_entropy_with({})(logits, labels);
    CHECK(loss.item() == Approx(c.expected.at("loss").item()).epsilon(1e-6));
    loss.backward();
    check_gradients(parameters, c);

    parameters.clear_grads();  // the head and the loss in one
    const Tensor fused = c.model[1].as<LmHead>()->loss(c.model[0](ids), labels, {});
    CHECK(fused.item() == Approx(loss.item()).epsilon(1e-6));
    fused.backward();
    check_gradients(parameters, c);
  }
}

TEST_CASE("exported weights are Hugging Face's file, byte for byte") {
  for (Case& c : cases()) {
    INFO(c.name);
    Parameters parameters(c.model);
    import_weights(parameters, c.path());
    const test::Temporary folder;
    write_safetensors(folder / "model.safetensors", export_weights(parameters), {{"format", "pt"}});
    CHECK(read_text(folder / "model.safetensors", 1 << 20) == read_text(c.path(), 1 << 20));
    const Json own = parse_json(c.config), theirs = parse_json(read_text(Case::folder() + c.name + ".json", 1 << 20));
    for (const auto& [key, value] : own.items()) {
      INFO(key);
      if (theirs.contains(key)) CHECK(value == theirs[key]);
    }
  }
}

TEST_CASE("greedy decoding of prompts of different lengths gives Hugging Face's tokens, with a KvCache and without") {
  for (Case& c : cases()) {
    INFO(c.name);
    Module model = c.model;
    Parameters parameters(model);
    import_weights(parameters, c.path());
    Texts prompts, expected;
    for (int i = 0; i < 3; ++i) {
      prompts.push_back(c.expected.at("prompt." + std::to_string(i)).to_vector<std::int64_t>());
      expected.push_back(c.expected.at("generated." + std::to_string(i)).to_vector<std::int64_t>());
    }
    CHECK(greedy(model, prompts, expected[0].size(), false) == expected);
    CHECK(greedy(model, prompts, expected[0].size(), true) == expected);
    for (std::size_t n = 0; n < 3; ++n) CHECK(greedy(model, {prompts[n]}, expected[n].size(), true)[0] == expected[n]);
  }
}

TEST_CASE("logits behind a KvCache are those of the whole text, however it is cut") {
  std::mt19937 random(8);
  std::vector<std::pair<std::string, Module>> models;
  for (Case& c : cases()) models.emplace_back(c.name, c.model);
  LlamaOptions windowed = tiny_llama;
  windowed.window = 5;
  models.emplace_back("mistral", llama(windowed));
  for (const auto& [name, model] : models) {
    INFO(name);
    const Inference inference;
    for (int i = 0; i < 10; ++i) {  // without Parameters, which give layers their keys
      const Index samples = 1 + random() % 3, tokens = 2 + random() % 20;
      const Tensor ids = Tensor::empty({samples, tokens}, DType::i64);
      for (auto& id : ids.view().span<std::int64_t>()) id = random() % 29;
      const Tensor whole = model(ids);
      KvCache cache(samples, tokens + random() % 5);
      const KvScope scope(cache);
      for (Index begin = 0; begin < tokens;) {
        const Index end = std::min<Index>(tokens, begin + 1 + random() % 6);
        const Tensor part = model(slice(ids, 1, begin, end));
        CHECK(test::distance(part.to_vector(), slice(whole, 1, begin, end).to_vector()) < 1e-5);
        cache.advance(end - begin);
        begin = end;
      }
    }
  }
}

TEST_CASE("tokens of a packed text see their own document only") {
  const Inference inference;
  const std::vector<std::pair<Module, bool>> models{{gpt2(tiny_gpt), false}, {llama(tiny_llama), true}};
  std::vector<double> one, other;  // documents of 5, 1 and 6 tokens, which end with 28
  for (int i = 0; i < 12; ++i) one.push_back(i == 4 || i == 5 ? 28 : i * 7 % 28);
  other = one;
  for (std::size_t i = 0; i < 4; ++i) other[i] = 27 - one[i];
  const auto ids = [](const std::vector<double>& of) { return Tensor::of(of, {1, std::ssize(of)}, DType::i64); };
  for (const auto& [model, rotates] : models) {
    const auto logits = [&, &model = model](const std::vector<double>& text, bool documents) {
      const Tensor x = ids(text);
      return model(documents ? x.with("first_keys", document_starts(x, 28)) : x);
    };
    const Tensor packed = logits(one, true);
    CHECK(slice(packed, 1, 0, 5).to_vector() == slice(logits(one, false), 1, 0, 5).to_vector());
    CHECK(slice(packed, 1, 5, 12).to_vector() == slice(logits(other, true), 1, 5, 12).to_vector());
    CHECK(slice(packed, 1, 5, 12).to_vector() != slice(logits(one, false), 1, 5, 12).to_vector());
    // Behind a KvCache, first keys count from its first token.
    const Tensor all = ids(one), first = document_starts(all, 28);
    KvCache cache(1, 12);
    for (const auto& [begin, end] : {std::pair<Index, Index>{0, 3}, {3, 6}, {6, 7}, {7, 12}}) {
      const KvScope scope(cache);
      const Tensor part = model(slice(all, 1, begin, end).with("first_keys", slice(first, 1, begin, end)));
      CHECK(test::distance(part.to_vector(), slice(packed, 1, begin, end).to_vector()) < 1e-5);
      cache.advance(end - begin);
    }
    if (!rotates) continue;  // learned positions of a document alone are others
    const std::vector<double> last(one.begin() + 6, one.end());
    CHECK(test::distance(slice(packed, 1, 6, 12).to_vector(), logits(last, false).to_vector()) < 1e-5);
  }
  const Tensor x = ids(one);
  CHECK_ERROR(bert({.layers = 1, .heads = 2, .width = 16, .positions = 12, .vocabulary = 29})(
                  x.with("first_keys", document_starts(x, 28))),
              usage, "first_keys", "causal");
}

TEST_CASE("onnxruntime computes Hugging Face's logits from our ONNX files") {
  const test::Oracle oracle;
  const std::vector<Case> all = cases();
  for (const Case& c : all) {
    Module model = c.model;
    Parameters parameters(model);
    import_weights(parameters, c.path());
    const Tensor ids = c.expected.at("ids");
    export_onnx(model, parameters, {ids.dim(1)}, oracle.folder() / (c.name + ".onnx"), {.input = DType::i64});
    oracle.put(c.name + ".all.x", ids);
    oracle.put(c.name + ".one.x", ids.rows(0, 1));
  }
  oracle.run("onnx_oracle.py", "check");
  if (!oracle.run("onnx_oracle.py", "run", test::Python::oracles)) return;
  for (const Case& c : all) {
    INFO(c.name);
    const Tensor logits = c.expected.at("logits");
    CHECK(oracle.tensor(c.name + ".all.y").shape() == logits.shape());
    CHECK(test::distance(oracle.get(c.name + ".all.y"), logits.to_vector()) < 1e-5);
    CHECK(test::distance(oracle.get(c.name + ".one.y"), logits.rows(0, 1).to_vector()) < 1e-5);
  }
}

TEST_CASE("files of other forms: a model without its head, masks, a tied head that stands there, too") {
  Case c = make_case("gpt2", gpt2(tiny_gpt), "");
  Module model = c.model;
  Parameters parameters(model);
  import_weights(parameters, c.path());
  const SafetensorsFile file = read_safetensors(c.path());
  const auto with = [&](const std::function<void(SafetensorsFile&)>& change) {
    SafetensorsFile changed = file;
    change(changed);
    Module other = gpt2(tiny_gpt);
    Parameters read(other);
    import_weights(read, changed, "a file");
    const auto own = by_name(export_weights(read));
    for (const auto& [name, tensor] : own) CHECK(tensor.to_vector() == file.at(name).to_vector());
    CHECK(own.size() == file.tensors.size());
  };
  const Tensor wte = file.at("transformer.wte.weight");
  const auto base = [](SafetensorsFile& f) {
    for (auto& t : f.tensors) t.name = t.name.substr(std::string("transformer.").size());
  };
  const auto masks = [](SafetensorsFile& f) {
    f.tensors.push_back({"h.0.attn.bias", Tensor::zeros({1, 1, 40, 40})});
    f.tensors.push_back({"h.1.attn.masked_bias", Tensor::zeros({})});
  };
  with([](SafetensorsFile&) {});
  with(base);
  with([&](SafetensorsFile& f) {
    base(f);
    masks(f);
  });
  with([&](SafetensorsFile& f) { f.tensors.push_back({"lm_head.weight", wte.clone()}); });
  with([&](SafetensorsFile& f) {
    base(f);
    masks(f);
    f.tensors.push_back({"lm_head.weight", wte.clone()});
  });
  with([&](SafetensorsFile& f) {
    for (auto& t : f.tensors) t.name = t.name == "transformer.wte.weight" ? "lm_head.weight" : t.name;
  });
  with([&](SafetensorsFile& f) {
    for (auto& t : f.tensors) t.name = "module." + t.name;
  });
  CHECK_ERROR(with([&](SafetensorsFile& f) {
                f.tensors.push_back({"lm_head.weight", wte + 1});
              }),
              data, "transformer.wte.weight", "lm_head.weight", "arch.tied", 0);
  CHECK_ERROR(with([](SafetensorsFile& f) {
                f.tensors.push_back({"h.0.attn.bias", Tensor::zeros({24})});
              }),
              data, 1, "h.0.attn.bias");

  GptOptions more = tiny_gpt;
  more.vocabulary = 31;
  Module larger = gpt2(more);
  Parameters of_larger(larger);
  CHECK_ERROR(import_weights(of_larger, c.path()), data, "transformer.wte.weight", "[29, 8]", "[31, 8]");
  Module untied = llama(tiny_llama);
  Parameters of_untied(untied);
  SafetensorsFile half = read_safetensors(Case::folder() + "llama.safetensors");
  std::erase_if(half.tensors, [](auto& t) { return t.name == "lm_head.weight"; });
  CHECK_ERROR(import_weights(of_untied, half, "a file"), data, 1, "lm_head.weight");
}

}  // namespace test_text_models
