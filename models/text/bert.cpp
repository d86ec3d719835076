#include "models/text/bert.h"

#include "framework/io/json.h"
#include "framework/layers/recompute.h"
#include "framework/ops/help.h"
#include "framework/tensor/fields.h"
#include "models/text/arch.h"

namespace trireme {
namespace {

const Init bert_start = Init::normal(0.02);

Linear dense(Index in, Index out, std::vector<Shares> shares = {}) {
  return Linear(in, out, {.init = bert_start, .shares = std::move(shares)});
}

struct Embeddings {
  explicit Embeddings(const BertOptions& o, const Embedding& words)
      : word_embeddings(words),
        position_embeddings(o.positions, o.width, bert_start),
        token_type_embeddings(o.types, o.width, bert_start),
        norm(o.width, o.eps),
        dropout(o.dropout) {}
  Tensor operator()(const Tensor& ids) const {
    const Tensor types = field_of(ids, "token_type_ids");
    check(!types || types.shape() == ids.shape(), "bert", "token_type_ids are {}, expected the ids' shape, {}",
          types ? types.shape() : Shape{}, ids.shape());
    const Tensor words = word_embeddings(ids);
    const Tensor kinds = types ? token_type_embeddings(types) : slice(token_type_embeddings.weight, 0, 0, 1);
    return dropout(norm(position_embeddings(words + ops::in_type(kinds, words.dtype()))));
  }
  void visit(const StateVisitor& v) {
    v("word_embeddings", word_embeddings, "position_embeddings", position_embeddings, "token_type_embeddings",
      token_type_embeddings, "LayerNorm", norm, "dropout", dropout);
  }
  Embedding word_embeddings;
  PositionEmbedding position_embeddings;
  Embedding token_type_embeddings;
  LayerNorm norm;
  Dropout dropout;
};

/// The end of a sub-layer: LayerNorm(x + dropout(dense(y))).
struct Output {
  Output(Index in, const BertOptions& o, std::vector<Shares> shares = {})
      : linear(dense(in, o.width, std::move(shares))), norm(o.width, o.eps), dropout(o.dropout) {}
  Tensor operator()(const Tensor& x, const Tensor& y) const { return norm(x + dropout(linear(y))); }
  void visit(const StateVisitor& v) { v("dense", linear, "LayerNorm", norm, "dropout", dropout); }
  Linear linear;
  LayerNorm norm;
  Dropout dropout;
};

struct BertBlock {
  explicit BertBlock(const BertOptions& o)
      : heads(o.width, o.heads, {.dropout = o.dropout}),
        query(dense(o.width, o.width, {heads.query_shares()})),
        key(dense(o.width, o.width, {heads.kv_shares()})),
        value(dense(o.width, o.width, {heads.kv_shares()})),
        intermediate(dense(o.width, o.hidden_size())),
        attended(o.width, o, {{}, heads.query_shares()}),
        output(o.hidden_size(), o),
        activation(activation_named(o.activation)) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor q = heads.split(query(x)), k = heads.split(key(x)), v = heads.split(value(x));
    const Tensor y = attended(x, heads(q, k, v, {field_of(x, "length"), field_of(x, "first_keys")}));
    return output(y, activation(intermediate(y)));
  }
  void visit(const StateVisitor& v) {
    v("attention.self", heads, "attention.self.query", query, "attention.self.key", key, "attention.self.value", value,
      "attention.output", attended, "intermediate.dense", intermediate, "output", output);
  }
  AttentionHeads heads;
  Linear query, key, value, intermediate;
  Output attended, output;
  Tensor (*activation)(const Tensor&);
};

struct Transform {
  explicit Transform(const BertOptions& o)
      : linear(dense(o.width, o.width)), norm(o.width, o.eps), activation(activation_named(o.activation)) {}
  Tensor operator()(const Tensor& x) const { return norm(activation(linear(x))); }
  void visit(const StateVisitor& v) { v("dense", linear, "LayerNorm", norm); }
  Linear linear;
  LayerNorm norm;
  Tensor (*activation)(const Tensor&);
};

/// The head's bias with its name in files: "cls.predictions.bias", a sibling of "cls.predictions.decoder".
struct Bias {
  Tensor operator()(const Tensor& x) const { return x; }
  /// Names the tensor as the layer.
  void visit(const StateVisitor& v) { v("", bias, StateKind::no_decay, Init::zeros()); }
  Tensor bias;  ///< [V]
};

}  // namespace

Sequential bert(const BertOptions& o) {
  text::check_sizes("bert", {{"layers", o.layers},
                             {"positions", o.positions},
                             {"vocabulary", o.vocabulary},
                             {"types of tokens", o.types},
                             {"hidden", o.hidden_size()}});
  check(o.bias, "bert", "arch.bias is 0, but BERT's linear layers and norms have biases; leave it out");
  const Embedding words(o.vocabulary, o.width, bert_start);
  const Bias bias{Tensor::zeros({o.vocabulary})};
  Sequential layer, encoder, inner, predictions, cls, model;
  for (Index i = 0; i < o.layers; ++i) layer.add(o.recompute ? Module(Recompute(BertBlock(o))) : Module(BertBlock(o)));
  inner.add("embeddings", Embeddings(o, words)).add("encoder", encoder.add("layer", std::move(layer)));
  predictions.add("transform", Transform(o))
      .add("bias", bias)
      .add("decoder", LmHead(o.tied ? words.weight : bert_start.make(words.weight.shape()), bias.bias));
  return model.add("bert", std::move(inner)).add("cls", cls.add("predictions", std::move(predictions)));
}

BertOptions bert_options(BertOptions base, const ModelOptions& o) {
  const ArchOptions& a = o.arch;
  check(a.kv_heads == 0, "bert", "arch.kv_heads is {}: its keys have as many heads as its queries; llama has fewer",
        a.kv_heads);
  text::override_sizes("bert", base, o);
  if (!a.activation.empty()) base.activation = a.activation;
  if (a.dropout >= 0) base.dropout = a.dropout;
  return base;
}

std::string bert_config(const BertOptions& o) {
  return json_text({{"architectures", Json::array({"BertForMaskedLM"})},
                    {"model_type", "bert"},
                    {"vocab_size", o.vocabulary},
                    {"hidden_size", o.width},
                    {"num_hidden_layers", o.layers},
                    {"num_attention_heads", o.heads},
                    {"intermediate_size", o.hidden_size()},
                    {"hidden_act", o.activation == "gelu_tanh" ? "gelu_new" : o.activation},
                    {"hidden_dropout_prob", o.dropout},
                    {"attention_probs_dropout_prob", o.dropout},
                    {"max_position_embeddings", o.positions},
                    {"type_vocab_size", o.types},
                    {"layer_norm_eps", o.eps},
                    {"initializer_range", 0.02},
                    {"position_embedding_type", "absolute"},
                    {"pad_token_id", 0},
                    {"tie_word_embeddings", o.tied},
                    {"torch_dtype", "float32"}},
                   NotUtf8::fails, 2);
}

namespace {
ModelRow bert_row(const std::string& name, const BertOptions& base) {
  return {.name = name,
          .make = [=](const ModelOptions& o) { return bert(bert_options(base, o)); },
          .usual = {.input = {base.positions}, .classes = base.vocabulary},
          .sized = true,
          .text = true,
          .config = [=](const ModelOptions& o) { return bert_config(bert_options(base, o)); }};
}
const bool bert_added =
    add_model(bert_row("bert", {})) && add_model(bert_row("bert_large", {.layers = 24, .heads = 16, .width = 1024}));
}  // namespace
}  // namespace trireme
