// ViT beside torchvision's and Hugging Face's: seeded models that tests/oracles/vit_bert_fixtures.py has written.
#include "models/vision/vit.h"
#include "parallel/runtime/step_probe.h"

#include <random>

#include "framework/io/onnx/onnx.h"
#include "framework/layers/inference.h"
#include "framework/tensor/create.h"
#include "parallel/model/chain.h"
#include "tests/models/fixtures.h"
#include "tests/parallel/training.h"

namespace test_vit {

using namespace trireme;
using namespace trireme::test;

namespace {

const VitOptions tiny{.input = {8, 8, 3}, .patch = 4, .layers = 2, .heads = 2, .width = 8, .hidden = 20, .classes = 5};
const VitOptions tiny_hf{
    .input = {12, 12, 2}, .patch = 4, .layers = 2, .heads = 3, .width = 12, .hidden = 16, .classes = 5, .eps = 1e-12};

struct Case {
  std::string name;
  Module model;
  SafetensorsFile expected;
  std::string path() const { return fixture("vision/" + name + ".safetensors"); }
  Tensor images() const { return permute(expected.at("images"), {0, 2, 3, 1}); }
};
std::vector<Case> cases() {
  return {{"vit", vit(tiny), read_safetensors(fixture("vision/vit.expected.safetensors"))},
          {"vit_hf", vit_hf(tiny_hf), read_safetensors(fixture("vision/vit_hf.expected.safetensors"))}};
}

/// Of as many layers as the model has, each as large as the next, from what one and two have.
Index named_count(const std::string& name) {
  const ModelRow& row = model_row(name);
  CHECK(row.usual.input == Shape{224, 224, 3});
  const auto with = [&](Index layers) {
    ModelOptions o = row.usual;
    o.arch.layers = layers;
    return Parameters(row.make(o)).count();
  };
  const Index one = with(1), layers = name.starts_with("vit_h") ? 32 : name.starts_with("vit_l") ? 24 : 12;
  return one + (layers - 1) * (with(2) - one);
}

VitOptions some(std::mt19937& random) {
  const Index heads = 1 + random() % 3, patch = 1 + random() % 4;
  return {.input = {patch * (1 + static_cast<Index>(random() % 3)), patch * (1 + static_cast<Index>(random() % 3)),
                    1 + static_cast<Index>(random() % 3)},
          .patch = patch,
          .layers = 1 + static_cast<Index>(random() % 3),
          .heads = heads,
          .width = heads * (1 + static_cast<Index>(random() % 5)),
          .hidden = static_cast<Index>(random() % 3 * 7),
          .classes = 1 + static_cast<Index>(random() % 6)};
}

/// The file of a torchvision ViT with Hugging Face's names: queries, keys and values apart.
SafetensorsFile renamed(const std::vector<NamedTensor>& weights) {
  SafetensorsFile file;
  const auto replaced = [](std::string name, const std::string& from, const std::string& to) {
    const auto at = name.find(from);
    return at == name.npos ? name : name.replace(at, from.size(), to);
  };
  for (auto [name, tensor] : weights) {
    for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
             {"class_token", "vit.embeddings.cls_token"},
             {"conv_proj", "vit.embeddings.patch_embeddings.projection"},
             {"encoder.pos_embedding", "vit.embeddings.position_embeddings"},
             {"encoder.layers.encoder_layer_", "vit.encoder.layer."},
             {"encoder.ln.", "vit.layernorm."},
             {"heads.head", "classifier"},
             {"ln_1", "layernorm_before"},
             {"ln_2", "layernorm_after"},
             {"mlp.0", "intermediate.dense"},
             {"mlp.3", "output.dense"},
             {"self_attention.out_proj", "attention.output.dense"}})
      name = replaced(name, from, to);
    if (name.find("in_proj_") == name.npos) {
      file.tensors.push_back({name, tensor});
      continue;
    }
    const Index width = tensor.dim(0) / 3;
    for (Index i = 0; i < 3; ++i) {
      const char* part[] = {"query.", "key.", "value."};
      file.tensors.push_back({replaced(name, "self_attention.in_proj_", std::string("attention.attention.") + part[i]),
                              tensor.rows(i * width, (i + 1) * width)});
    }
  }
  return file;
}

}  // namespace

TEST_CASE("torchvision's and Hugging Face's weights come in by name, and their logits and gradients are ours") {
  for (Case& c : cases()) {
    INFO(c.name);
    Parameters parameters(c.model);
    import_weights(parameters, c.path());
    const Tensor logits = c.model(c.images());
    CHECK(distance(logits.to_vector(), c.expected.at("logits").to_vector()) < 1e-5);
    CHECK(logits.shape() == c.expected.at("logits").shape());
    const Tensor loss = cross_entropy(logits, c.expected.at("labels"));
    CHECK(loss.item() == Approx(c.expected.at("loss").item()).epsilon(1e-6));
    loss.backward();
    check_gradients(parameters, c.expected, "key.bias");
    check_same_file(parameters, c.path());
  }
  check_config(vit_config(tiny_hf), fixture("vision/vit_hf.json"));
}

TEST_CASE("the named ones have torchvision's numbers of parameters, with both namings") {
  CHECK(named_count("vit_b_16") == 86'567'656);
  CHECK(named_count("vit_b_32") == 88'224'232);
  CHECK(named_count("vit_l_16") == 304'326'632);
  CHECK(named_count("vit_l_32") == 306'535'400);
  CHECK(named_count("vit_h_14") == 632'045'800);
  for (const char* name : {"vit_b_16", "vit_b_32"}) CHECK(named_count(name + std::string("_hf")) == named_count(name));
  Module whole = make_model("vit_b_16", {.input = {32, 32, 3}, .classes = 10, .arch = {.width = 24}});
  Index blocks = 0;
  for (const NamedState& t : named_tensors(whole)) blocks += t.name.ends_with("ln_1.weight");
  CHECK(blocks == 12);
}

TEST_CASE("both namings are one model: of renamed weights the same logits and gradients") {
  std::mt19937 random(4);
  for (int i = 0; i < 20; ++i) {
    const VitOptions o = some(random);
    INFO(to_string(o.input) << " in patches of " << o.patch << ", " << o.layers << " layers, " << o.heads << " heads, "
                            << o.width);
    Module torchvision = vit(o), hf = vit_hf(o);
    convert(torchvision, DType::f64);
    convert(hf, DType::f64);
    Parameters a(torchvision), b(hf);
    std::uint64_t key = 0;
    for (auto& e : a.entries()) uniform(e.tensor, -0.5, 0.5, ++key);
    import_weights(b, renamed(export_weights(a)), "renamed");
    const Tensor x = normal({3, o.input[0], o.input[1], o.input[2]}, 0, 1, ++key, DType::f64);
    const Tensor y = torchvision(x), z = hf(x);
    CHECK(y.shape() == Shape{3, o.classes});
    CHECK(distance(z.to_vector(), y.to_vector()) < 1e-12);
    sum(square(y)).backward();
    sum(square(z)).backward();
    const auto theirs = by_name(renamed(export_tensors(stored_state(a, "g", a.grads()))).tensors);
    const auto own = by_name(export_tensors(stored_state(b, "g", b.grads())));
    CHECK(own.size() == theirs.size());
    for (const auto& [name, gradient] : own) {
      INFO(name);
      const auto at = theirs.find(name);
      REQUIRE(at != theirs.end());
      const auto values = at->second.to_vector();
      const bool zero = name.ends_with("key.bias");  // but for rounding: softmax takes it away
      if (zero) CHECK(distance(gradient.to_vector(), std::vector<double>(values.size(), 0)) < 1e-12);
      if (!zero) CHECK(distance(gradient.to_vector(), values) < 1e-10);
    }
  }
}

TEST_CASE("a ViT starts as torchvision's does") {
  Module model = vit({.input = {64, 64, 3}, .patch = 16, .layers = 1, .heads = 2, .width = 64, .classes = 10});
  initialize(model, 3);
  for (const NamedState& t : named_tensors(model)) {
    INFO(t.name);
    const auto values = t.tensor->to_vector();
    double square = 0, most = 0;
    for (const double v : values) {
      square += v * v;
      most = std::max(most, std::abs(v));
    }
    const double deviation = std::sqrt(square / static_cast<double>(values.size()));
    if (t.name == "conv_proj.weight") CHECK(deviation == Approx(std::sqrt(1.0 / (3 * 16 * 16))).epsilon(0.02));
    if (t.name == "encoder.pos_embedding") CHECK(deviation == Approx(0.02).epsilon(0.1));
    const bool projects = t.name.ends_with("in_proj_weight"), mlp = t.name.ends_with(".0.weight");
    if (projects || mlp) CHECK(most == Approx(std::sqrt(6.0 / (64 + (projects ? 192 : 256)))).epsilon(0.02));
    if (t.name.ends_with("out_proj.weight")) CHECK(most == Approx(1.0 / 8).epsilon(0.02));
    const bool norm = t.name.find("ln") != t.name.npos && t.name.ends_with("weight");
    const bool zero = t.name.ends_with("bias") || t.name == "class_token" || t.name == "heads.head.weight";
    if (norm) CHECK(values == std::vector<double>(values.size(), 1));
    if (zero) CHECK(most == 0);
  }
}

TEST_CASE("settings and images that a ViT does not have are refused") {
  const auto made = [](ModelOptions o) { return make_model("vit_b_16", o); };
  const ModelOptions small{.input = {32, 32, 3}, .classes = 10, .arch = {.layers = 1, .heads = 2, .width = 8}};
  const Module model = made(small);
  const Inference inference;
  CHECK(model(Tensor::zeros({0, 32, 32, 3})).shape() == Shape{0, 10});
  CHECK_ERROR(model(Tensor::zeros({2, 48, 32, 3})), usage, "[2, 7, 8]", 5, 8);
  const auto refused = [&](const std::function<void(ModelOptions&)>& change, const std::string& why) {
    ModelOptions o = small;
    change(o);
    CHECK_ERROR(made(o), usage, why);
    CHECK_ERROR(make_model("vit_b_16_hf", o), usage, why);
  };
  refused([](auto& o) { o.input = {32, 40, 3}; }, "40");
  refused([](auto& o) { o.input = {32}; }, "[height, width, channels]");
  refused([](auto& o) { o.arch.heads = 3; }, "8");
  refused([](auto& o) { o.arch.kv_heads = 1; }, "layers, heads, width, hidden and dropout");
  refused([](auto& o) { o.arch.tied = 1; }, "layers, heads, width, hidden and dropout");
  refused([](auto& o) { o.arch.dropout = 1; }, "dropout");
  refused([](auto& o) { o.classes = 0; }, "0 classes");
  CHECK_ERROR(vit_config({.input = {32, 16, 3}}), usage, "vit_hf", "[32, 16, 3]");
}

TEST_CASE("a ViT trains alike on one rank and under every strategy, dropout included") {
  using Make = Sequential (*)(const VitOptions&);
  const auto train = [](Make make, World& world, const std::string& axis, const std::string& text, bool recompute) {
    Module model = make({.input = {8, 6, 1},
                         .patch = 2,
                         .layers = 3,
                         .heads = 2,
                         .width = 6,
                         .hidden = 8,
                         .classes = 5,
                         .dropout = 0.1,
                         .recompute = recompute});
    std::uint64_t key = 0;
    for (const NamedState& t : named_tensors(model)) uniform(*t.tensor, -0.5, 0.5, ++key);
    convert(model, DType::f64);
    Mesh mesh(world, {{axis, world.size()}});
    Step step(model, cross_entropy, AdamW{.lr = 0.01, .eps = 1e-3}, mesh,
              text.empty() ? std::nullopt : std::optional(parse_strategy(text)),
              {.seed = 3, .optimizer = {.clip_norm = 0.5}});
    std::vector<double> losses;
    for (int i = 0; i < 6; ++i) {
      const Tensor x = normal({7, 8, 6, 1}, 0, 1, 20, DType::f64), y = remainder(arange(7), 5);
      const bool all = axis == "pipe";
      const auto [begin, end] = share(7, all ? 0 : world.rank(), all ? 1 : world.size());
      losses.push_back(step(x.rows(begin, end), y.rows(begin, end)).item());
    }
    StepProbe(step).consolidate();
    return outcome(world, losses, step.parameters());
  };
  const std::string cut = "pipeline(micro=2, partition=even)";
  for (const Make make : {vit, vit_hf}) {
    const auto on = [&](int ranks, const std::string& axis, const std::string& text, bool recompute = false) {
      return on_ranks(ranks, [&](World& world) { return train(make, world, axis, text, recompute); });
    };
    const Outcome serial = on(1, "data", "");
    CHECK(serial.losses.back() < serial.losses.front());
    check_close(on(1, "data", "", true), serial, 1e-12);
    check_close(on(1, "data", "accumulate(micro=3)"), serial, 1e-12);
    for (const int ranks : rank_counts({2, 3}))
      for (const std::string& text : {std::string("data_parallel"), std::string("zero(3)"), cut,
                                      std::string("pipeline(micro=3, partition=even, schedule=zb-h1)")}) {
        INFO(text << " on " << ranks);
        check_close(on(ranks, text.starts_with("pipe") ? "pipe" : "data", text), serial, 1e-12);
      }
    check_close(on(2, "pipe", cut, true), serial, 1e-12);
  }
}

TEST_CASE("a ViT in bf16, and of f32 weights with bf16 images, gives nearly the logits of f32") {
  for (Sequential (*make)(const VitOptions&) : {vit, vit_hf}) {
    Module model = make(tiny);
    std::uint64_t key = 0;
    for (const NamedState& t : named_tensors(model)) uniform(*t.tensor, -0.5, 0.5, ++key);
    const Inference inference;
    const Tensor images = normal({4, 8, 8, 3}, 0, 1, 9), y = model(images);
    const Tensor mixed = model(images.to(DType::bf16));
    CHECK(mixed.dtype() == DType::bf16);
    CHECK(distance(mixed.to_vector(), y.to_vector()) < 0.05);
    convert(model, DType::bf16);
    CHECK(distance(model(images.to(DType::bf16)).to_vector(), y.to_vector()) < 0.05);
  }
}

TEST_CASE("a pipeline may cut a ViT between any two blocks") {
  for (const Module& model : {Module(vit(tiny)), Module(vit_hf(tiny_hf))}) {
    const Chain chain(model);
    const Parameters parameters(model);
    Index blocks = 0, size = 0;
    for (const PartInfo& part : chain.parts(parameters)) {
      blocks += part.name.find("layer_") != part.name.npos || part.name.find(".layer.") != part.name.npos;
      size += part.slice.size();
    }
    CHECK(blocks == 2);
    CHECK(size == parameters.size());
  }
}

TEST_CASE("onnxruntime computes a ViT's logits from our ONNX files") {
  const Oracle oracle;
  const std::vector<Case> all = cases();
  for (const Case& c : all) {
    Module model = c.model;
    Parameters parameters(model);
    import_weights(parameters, c.path());
    const Tensor images = c.images();
    export_onnx(model, parameters, {images.dim(1), images.dim(2), images.dim(3)}, oracle.folder() / (c.name + ".onnx"));
    oracle.put(c.name + ".all.x", c.expected.at("images"));
    oracle.put(c.name + ".one.x", c.expected.at("images").rows(1, 2));
  }
  oracle.run("onnx_oracle.py", "check");
  if (!oracle.run("onnx_oracle.py", "run", test::Python::oracles)) return;
  for (const Case& c : all) {
    INFO(c.name);
    const Tensor logits = c.expected.at("logits");
    CHECK(distance(oracle.get(c.name + ".all.y"), logits.to_vector()) < 1e-5);
    CHECK(distance(oracle.get(c.name + ".one.y"), logits.rows(1, 2).to_vector()) < 1e-5);
  }
}

}  // namespace test_vit
