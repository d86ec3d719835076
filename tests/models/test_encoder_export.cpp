// Exported ViTs and BERTs, read by others: torchvision and Hugging Face transformers, strictly.
#include <filesystem>

#include "framework/io/file.h"
#include "framework/io/weights.h"
#include "framework/layers/inference.h"
#include "framework/tensor/create.h"
#include "models/text/bert.h"
#include "models/vision/vit.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_encoder_export {

using namespace trireme;
using namespace trireme::test;

TEST_CASE("saved BERTs and ViTs load in transformers and torchvision, no tensor missing or unexpected") {
  const Oracle oracle;
  const auto save = [&](const std::string& name, Module model, const Tensor& x, const std::string& config) {
    initialize(model, 5);
    Parameters parameters(model);
    std::uint64_t key = 0;
    for (const auto& e : parameters.entries())  // what starts as 0 or 1, too
      uniform(e.tensor, -0.5, 0.7, ++key);
    const auto folder = oracle.folder() / name;
    std::filesystem::create_directories(folder);
    const bool alone = config.empty();
    write_safetensors(alone ? folder.string() + ".safetensors" : (folder / "model.safetensors").string(),
                      export_weights(parameters), {{"format", "pt"}});
    if (!alone) replace_file((folder / "config.json").string(), config);
    const Inference inference;
    oracle.put(name + ".logits", model(x));
  };
  const VitOptions v{.input = {12, 12, 3}, .patch = 4, .layers = 2, .heads = 2, .width = 8, .hidden = 20, .classes = 5};
  const Tensor images = normal({2, 12, 12, 3}, 0, 1, 1);
  oracle.put("images", images);
  oracle.note("vit.json", R"({"image_size": 12, "patch_size": 4, "num_layers": 2, "num_heads": 2, "hidden_dim": 8,)"
                          R"( "mlp_dim": 20, "num_classes": 5})");
  save("vit", vit(v), images, "");
  save("vit_hf", vit_hf(v), images, vit_config(v));

  const BertOptions b{
      .layers = 2, .heads = 2, .width = 8, .positions = 16, .vocabulary = 23, .hidden = 12, .activation = "gelu_tanh"};
  const Tensor places = expand(arange(10), {3, 10}), ids = remainder(places * 7 + 3, 23);
  const Tensor kinds = ge(places, 4).to(DType::i64), length = Tensor::from<std::int64_t>({10, 4, 7});
  oracle.put("ids", ids);
  oracle.put("kinds", kinds);
  oracle.put("length", length);
  save("bert", bert(b), ids.with("token_type_ids", kinds).with("length", length), bert_config(b));
  if (oracle.run("vit_bert_load.py", "", test::Python::oracles)) SUCCEED("they do");
}

}  // namespace test_encoder_export
