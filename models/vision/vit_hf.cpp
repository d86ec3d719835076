// Vision transformers with the names in Hugging Face's files.
#include "framework/io/json.h"
#include "framework/layers/recompute.h"
#include "models/vision/vit.h"
#include "models/vision/vit_parts.h"

namespace trireme {
namespace {

const Init start = Init::trunc_normal(0.02);

struct VitEmbeddings {
  explicit VitEmbeddings(const VitOptions& o)
      : projection(vision::patches(o, start)),
        cls_token(o.width, start),
        position_embeddings(o.tokens(), o.width, start),
        dropout(o.dropout) {}
  Tensor operator()(const Tensor& x) const { return dropout(position_embeddings(cls_token(projection(x)))); }
  void visit(const StateVisitor& v) {
    v("cls_token", cls_token, "position_embeddings", position_embeddings, "patch_embeddings.projection", projection,
      "dropout", dropout);
  }
  Conv2d projection;
  vision::ClassToken cls_token;
  vision::Positions position_embeddings;
  Dropout dropout;
};

struct HfBlock {
  explicit HfBlock(const VitOptions& o)
      : before(o.width, o.eps),
        after(o.width, o.eps),
        heads(o.width, o.heads, {.dropout = o.dropout}),
        query(square(o, {heads.query_shares()})),
        key(square(o, {heads.kv_shares()})),
        value(square(o, {heads.kv_shares()})),
        joined(square(o, {{}, heads.query_shares()})),
        intermediate(o.width, o.hidden_size(), {.init = start}),
        output(o.hidden_size(), o.width, {.init = start}),
        attention_dropout(o.dropout),
        dropout(o.dropout) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor t = before(x);
    const Tensor seen = heads(heads.split(query(t)), heads.split(key(t)), heads.split(value(t)));
    const Tensor y = x + attention_dropout(joined(seen));
    return y + dropout(output(gelu(intermediate(after(y)))));
  }
  void visit(const StateVisitor& v) {
    v("attention.attention", heads, "attention.attention.query", query, "attention.attention.key", key,
      "attention.attention.value", value, "attention.output.dense", joined, "attention.output.dropout",
      attention_dropout, "intermediate.dense", intermediate, "output.dense", output, "output.dropout", dropout,
      "layernorm_before", before, "layernorm_after", after);
  }
  static Linear square(const VitOptions& o, std::vector<Shares> shares) {
    return Linear(o.width, o.width, {.init = start, .shares = std::move(shares)});
  }
  LayerNorm before, after;
  AttentionHeads heads;
  Linear query, key, value, joined, intermediate, output;
  Dropout attention_dropout, dropout;
};

}  // namespace

Sequential vit_hf(const VitOptions& o) {
  vision::check_options("vit_hf", o);
  Sequential layer, encoder, inner, model;
  for (Index i = 0; i < o.layers; ++i) layer.add(o.recompute ? Module(Recompute(HfBlock(o))) : Module(HfBlock(o)));
  inner.add("embeddings", VitEmbeddings(o))
      .add("encoder", encoder.add("layer", std::move(layer)))
      .add("class", vision::first_token)
      .add("layernorm", LayerNorm(o.width, o.eps));
  return model.add("vit", std::move(inner)).add("classifier", Linear(o.width, o.classes, {.init = start}));
}

std::string vit_config(const VitOptions& o) {
  check(o.input.rank() == 3 && o.input[0] == o.input[1], "vit_hf",
        "images are {}, but Hugging Face's configuration has one size for both sides; export the weights alone",
        o.input);
  Json names = Json::object(), ids = Json::object();
  for (Index i = 0; i < o.classes; ++i) {
    const std::string name = "LABEL_" + std::to_string(i);
    names[std::to_string(i)] = name;
    ids[name] = i;
  }
  return json_text({{"architectures", Json::array({"ViTForImageClassification"})},
                    {"model_type", "vit"},
                    {"image_size", o.input[0]},
                    {"num_channels", o.input[2]},
                    {"patch_size", o.patch},
                    {"hidden_size", o.width},
                    {"num_hidden_layers", o.layers},
                    {"num_attention_heads", o.heads},
                    {"intermediate_size", o.hidden_size()},
                    {"hidden_act", "gelu"},
                    {"hidden_dropout_prob", o.dropout},
                    {"attention_probs_dropout_prob", o.dropout},
                    {"layer_norm_eps", o.eps},
                    {"initializer_range", 0.02},
                    {"qkv_bias", true},
                    {"id2label", names},
                    {"label2id", ids},
                    {"torch_dtype", "float32"}},
                   NotUtf8::fails, 2);
}

}  // namespace trireme
