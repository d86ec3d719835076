// Exported models of text, read by others: Hugging Face transformers, strictly.
#include "framework/layers/inference.h"
#include "models/text/pretrained.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_text_export {

using namespace trireme;

TEST_CASE("saved models load in transformers, no tensor missing or unexpected, and say the same") {
  test::Oracle oracle;
  const Tensor ids = Tensor::empty({2, 9}, DType::i64);
  for (Index i = 0; i < ids.numel(); ++i) ids.data<std::int64_t>()[i] = i * 7 % 19;
  oracle.put("ids", ids);
  const auto save = [&](const std::string& name, Module model, const std::string& config) {
    initialize(model, 5);
    Parameters parameters(model);
    std::uint64_t key = 0;
    for (const auto& e : parameters.entries())  // biases, too
      if (e.tensor.rank() == 1) uniform(e.tensor, -0.5, 1, ++key);
    save_pretrained((oracle.folder() / name).string(), parameters, config);
    const Inference inference;
    oracle.put(name + ".logits", model(ids));
  };
  GptOptions g{.layers = 2, .heads = 2, .width = 12, .positions = 16, .vocabulary = 19, .hidden = 20};
  save("gpt2", gpt2(g), gpt2_config(g));
  g.tied = false;
  g.activation = "relu";
  g.hidden = 0;
  save("gpt2_untied", gpt2(g), gpt2_config(g));
  LlamaOptions l{.layers = 2, .heads = 4, .kv_heads = 2, .width = 24, .hidden = 28, .positions = 64, .vocabulary = 19};
  save("llama", llama(l), llama_config(l));
  l.window = 4;
  save("mistral", llama(l), llama_config(l));
  l.window = 0;
  l.experts = 4;
  save("mixtral", llama(l), llama_config(l));
  l.experts = 0;
  l.tied = l.bias = true;
  l.rope = {.base = 1000, .scaling = {.kind = RopeScaling::Kind::linear, .factor = 2}};
  save("llama_linear", llama(l), llama_config(l));
  l.rope.scaling = {.kind = RopeScaling::Kind::llama3, .factor = 8, .original_context = 32};
  save("llama3", llama(l), llama_config(l));
  if (oracle.run("hf_load.py", "", test::Python::oracles)) SUCCEED("they do");
}

}  // namespace test_text_export
