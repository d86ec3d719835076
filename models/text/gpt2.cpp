#include "models/text/gpt2.h"

#include <cmath>

#include "framework/layers/experts.h"
#include "framework/layers/recompute.h"
#include "framework/tensor/fields.h"
#include "models/text/arch.h"
#include "models/text/pretrained.h"

namespace trireme {
namespace {

const Init gpt2_start = Init::normal(0.02);

/// A linear layer whose matrix is [in, out] in files.
Linear conv1d(Index in, Index out, const GptOptions& o, const Init& init = gpt2_start,
              std::vector<Shares> shares = {}) {
  return Linear(in, out, {.bias = o.bias, .init = init, .layout = FileLayout::transposed, .shares = std::move(shares)});
}
/// Initialization of residual branches, of which 2 layers terms are added up (GPT-2, section 2.3).
Init residual(const GptOptions& o) { return Init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(o.layers))); }
LayerNorm norm(const GptOptions& o) { return LayerNorm(o.width, 1e-5, o.bias); }

struct Gpt2Attention {
  explicit Gpt2Attention(const GptOptions& o)
      : heads(o.width, o.heads, {.causal = true, .dropout = o.dropout}),
        c_attn(conv1d(o.width, heads.packed(), o, gpt2_start, {heads.packed_shares()})),
        c_proj(conv1d(o.width, o.width, o, residual(o), {{}, heads.query_shares()})),
        dropout(o.dropout) {}
  Tensor operator()(const Tensor& x, const KeyLimits& limits) const {
    return dropout(c_proj(heads(c_attn(x), limits)));
  }
  void visit(const StateVisitor& v) {
    heads.visit(v);
    v("c_attn", c_attn, "c_proj", c_proj, "resid_dropout", dropout);
  }
  AttentionHeads heads;
  Linear c_attn, c_proj;
  Dropout dropout;
};

struct Gpt2Mlp {
  explicit Gpt2Mlp(const GptOptions& o)
      : c_fc(conv1d(o.width, o.hidden, o)),
        c_proj(conv1d(o.hidden, o.width, o, residual(o))),
        dropout(o.dropout),
        activation(activation_named(o.activation)) {}
  Tensor operator()(const Tensor& x) const { return dropout(c_proj(activation(c_fc(x)))); }
  void visit(const StateVisitor& v) { v("c_fc", c_fc, "c_proj", c_proj, "dropout", dropout); }
  Linear c_fc, c_proj;
  Dropout dropout;
  Tensor (*activation)(const Tensor&);
};

/// In the place of the MLP; its experts have no biases.
struct Gpt2Experts {
  explicit Gpt2Experts(const GptOptions& o)
      : experts(o.width, o.hidden,
                {.experts = o.experts,
                 .top_k = o.expert_top_k,
                 .activation = activation_named(o.activation),
                 .gated = false,
                 .balance = o.expert_balance,
                 .init = gpt2_start,
                 .init_w2 = residual(o)}),
        dropout(o.dropout) {}
  Tensor operator()(const Tensor& x) const { return dropout(experts(x)); }
  void visit(const StateVisitor& v) {
    experts.visit(v);
    v("dropout", dropout);
  }
  MixtureOfExperts experts;
  Dropout dropout;
};

struct Gpt2Block {
  explicit Gpt2Block(const GptOptions& o)
      : ln_1(norm(o)), attn(o), ln_2(norm(o)), mlp(o.experts == 0 ? Module(Gpt2Mlp(o)) : Module(Gpt2Experts(o))) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor y = x + attn(ln_1(x), {{}, field_of(x, "first_keys")});
    return y + mlp(ln_2(y));
  }
  void visit(const StateVisitor& v) { v("ln_1", ln_1, "attn", attn, "ln_2", ln_2, "mlp", mlp); }
  LayerNorm ln_1;
  Gpt2Attention attn;
  LayerNorm ln_2;
  Module mlp;
};

}  // namespace

Sequential gpt2(const GptOptions& options) {
  GptOptions o = options;
  o.hidden = options.hidden_size();
  text::check_sizes("gpt2", {{"layers", o.layers}, {"positions", o.positions}, {"vocabulary", o.vocabulary}});
  Embedding wte(o.vocabulary, o.width, gpt2_start);
  wte.dtype = o.dtype;
  Sequential h, transformer, model;
  for (Index i = 0; i < o.layers; ++i) h.add(o.recompute ? Module(Recompute(Gpt2Block(o))) : Module(Gpt2Block(o)));
  transformer.add("wte", wte)
      .add("wpe", PositionEmbedding(o.positions, o.width, gpt2_start))
      .add("drop", Dropout(o.dropout))
      .add("h", std::move(h))
      .add("ln_f", norm(o));
  return model.add("transformer", std::move(transformer))
      .add("lm_head", LmHead(o.tied ? wte.weight : gpt2_start.make(wte.weight.shape())));
}

GptOptions gpt_options(GptOptions base, const ModelOptions& o) {
  const ArchOptions& a = o.arch;
  check(a.kv_heads == 0, "gpt2", "arch.kv_heads is {}: its keys have as many heads as its queries; llama has fewer",
        a.kv_heads);
  text::override_sizes("gpt2", base, o);
  if (!a.activation.empty()) base.activation = a.activation;
  if (a.dropout >= 0) base.dropout = a.dropout;
  return base;
}

namespace {
ModelRow gpt2_row(const std::string& name, const GptOptions& base) {
  return {.name = name,
          .make = [=](const ModelOptions& o) { return gpt2(gpt_options(base, o)); },
          .usual = {.input = {base.positions}, .classes = base.vocabulary},
          .sized = true,
          .text = true,
          .config = [=](const ModelOptions& o) { return gpt2_config(gpt_options(base, o)); }};
}
const bool gpt2_added = add_model(gpt2_row("gpt2", {})) &&
                        add_model(gpt2_row("gpt2_medium", {.layers = 24, .heads = 16, .width = 1024})) &&
                        add_model(gpt2_row("gpt2_large", {.layers = 36, .heads = 20, .width = 1280})) &&
                        add_model(gpt2_row("gpt2_xl", {.layers = 48, .heads = 25, .width = 1600}));
}  // namespace
}  // namespace trireme
