#include "models/text/llama.h"

#include <algorithm>

#include "framework/layers/experts.h"
#include "framework/layers/recompute.h"
#include "framework/tensor/fields.h"
#include "models/text/arch.h"
#include "models/text/pretrained.h"

namespace trireme {
namespace {

const Init llama_start = Init::normal(0.02);

Linear projection(Index in, Index out, const LlamaOptions& o, std::vector<Shares> shares = {}) {
  return Linear(in, out, {.bias = o.bias, .init = llama_start, .shares = std::move(shares)});
}

struct LlamaAttention {
  LlamaAttention(const LlamaOptions& o, const RotaryEmbedding& rope)
      : heads(o.width, o.heads, {.kv_heads = o.kv_heads, .causal = true, .window = o.window}),
        rotary(rope),
        q_proj(projection(o.width, o.width, o, {heads.query_shares()})),
        k_proj(projection(o.width, heads.kv_heads() * heads.head_size(), o, {heads.kv_shares()})),
        v_proj(projection(o.width, heads.kv_heads() * heads.head_size(), o, {heads.kv_shares()})),
        o_proj(projection(o.width, o.width, o, {{}, heads.query_shares()})) {}
  Tensor operator()(const Tensor& x, const KeyLimits& limits) const {
    const Tensor q = rotary(heads.split(q_proj(x))), k = rotary(heads.split(k_proj(x)));
    return o_proj(heads(q, k, heads.split(v_proj(x)), limits));
  }
  void visit(const StateVisitor& v) {
    heads.visit(v);
    v("q_proj", q_proj, "k_proj", k_proj, "v_proj", v_proj, "o_proj", o_proj);
  }
  AttentionHeads heads;
  RotaryEmbedding rotary;
  Linear q_proj, k_proj, v_proj, o_proj;
};

struct LlamaMlp {
  explicit LlamaMlp(const LlamaOptions& o)
      : gate_proj(projection(o.width, o.hidden, o)),
        up_proj(projection(o.width, o.hidden, o)),
        down_proj(projection(o.hidden, o.width, o)) {}
  Tensor operator()(const Tensor& x) const { return down_proj(silu(gate_proj(x)) * up_proj(x)); }
  void visit(const StateVisitor& v) { v("gate_proj", gate_proj, "up_proj", up_proj, "down_proj", down_proj); }
  Linear gate_proj, up_proj, down_proj;
};

struct LlamaBlock {
  LlamaBlock(const LlamaOptions& o, const RotaryEmbedding& rope)
      : self_attn(o, rope),
        mlp(o.experts == 0 ? Module(LlamaMlp(o))
                           : Module(MixtureOfExperts(
                                 o.width, o.hidden,
                                 {.experts = o.experts, .top_k = o.expert_top_k, .balance = o.expert_balance}))),
        mlp_name(o.experts == 0 ? "mlp" : "block_sparse_moe"),
        input_layernorm(o.width, o.eps),
        post_attention_layernorm(o.width, o.eps) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor y = x + self_attn(input_layernorm(x), {{}, field_of(x, "first_keys")});
    return y + mlp(post_attention_layernorm(y));
  }
  void visit(const StateVisitor& v) {
    v("self_attn", self_attn, mlp_name, mlp, "input_layernorm", input_layernorm, "post_attention_layernorm",
      post_attention_layernorm);
  }
  LlamaAttention self_attn;
  Module mlp;
  const char* mlp_name;
  RMSNorm input_layernorm, post_attention_layernorm;
};

}  // namespace

Sequential llama(const LlamaOptions& options) {
  LlamaOptions o = options;
  o.hidden = options.hidden_size();
  text::check_sizes("llama", {{"layers", o.layers}, {"positions", o.positions}, {"vocabulary", o.vocabulary}});
  const AttentionHeads heads(o.width, o.heads, {.kv_heads = o.kv_heads});
  const RotaryEmbedding rope(o.positions, heads.head_size(), o.rope);
  Embedding embed_tokens(o.vocabulary, o.width, llama_start);
  embed_tokens.dtype = o.dtype;
  Sequential layers, inner, model;
  for (Index i = 0; i < o.layers; ++i)
    layers.add(o.recompute ? Module(Recompute(LlamaBlock(o, rope))) : Module(LlamaBlock(o, rope)));
  inner.add("embed_tokens", embed_tokens).add("layers", std::move(layers)).add("norm", RMSNorm(o.width, o.eps));
  return model.add("model", std::move(inner))
      .add("lm_head", LmHead(o.tied ? embed_tokens.weight : llama_start.make(embed_tokens.weight.shape())));
}

LlamaOptions llama_options(LlamaOptions base, const ModelOptions& o) {
  const ArchOptions& a = o.arch;
  check(a.activation.empty() || a.activation == "silu", "llama", "arch.activation is {}: its MLP's is silu",
        a.activation);
  check(a.dropout <= 0, "llama", "arch.dropout is {}: it has no dropout", a.dropout);
  const Index positions = base.positions;
  if (a.width != 0) base.hidden = 0;
  if (a.heads != 0) base.kv_heads = 0;
  if (a.kv_heads != 0) base.kv_heads = a.kv_heads;
  text::override_sizes("llama", base, o);
  if (a.positions == 0) base.positions = std::max(positions, base.positions);  // positions are not learned
  return base;
}

namespace {
ModelRow llama_row(const std::string& name, const LlamaOptions& base) {
  return {.name = name,
          .make = [=](const ModelOptions& o) { return llama(llama_options(base, o)); },
          .usual = {.input = {base.positions}, .classes = base.vocabulary},
          .sized = true,
          .text = true,
          .config = [=](const ModelOptions& o) { return llama_config(llama_options(base, o)); }};
}
RopeOptions llama3_rope(double factor) {
  if (factor == 0) return {.base = 500000};
  return {.base = 500000, .scaling = {.kind = RopeScaling::Kind::llama3, .factor = factor}};
}
LlamaOptions llama3(Index layers, Index heads, Index width, Index hidden, Index positions, double factor, bool tied) {
  return {.layers = layers,
          .heads = heads,
          .kv_heads = 8,
          .width = width,
          .hidden = hidden,
          .positions = positions,
          .vocabulary = 128256,
          .rope = llama3_rope(factor),
          .tied = tied};
}
const bool llama_added =
    add_model(llama_row("llama", {})) &&
    add_model(llama_row("tinyllama_1_1b", {.layers = 22, .heads = 32, .kv_heads = 4, .width = 2048, .hidden = 5632})) &&
    add_model(llama_row("mixtral_8x7b", {.layers = 32,
                                         .heads = 32,
                                         .kv_heads = 8,
                                         .width = 4096,
                                         .hidden = 14336,
                                         .experts = 8,
                                         .positions = 32768,
                                         .rope = {.base = 1e6}})) &&
    add_model(llama_row("llama2_7b", {.layers = 32, .heads = 32, .width = 4096, .hidden = 11008, .positions = 4096})) &&
    add_model(llama_row("mistral_7b", {.layers = 32,
                                       .heads = 32,
                                       .kv_heads = 8,
                                       .width = 4096,
                                       .hidden = 14336,
                                       .positions = 32768,
                                       .window = 4096})) &&
    add_model(llama_row("llama3_8b", llama3(32, 32, 4096, 14336, 8192, 0, false))) &&
    add_model(llama_row("llama3_1_8b", llama3(32, 32, 4096, 14336, 131072, 8, false))) &&
    add_model(llama_row("llama3_2_1b", llama3(16, 32, 2048, 8192, 131072, 32, true))) &&
    add_model(llama_row("llama3_2_3b", llama3(28, 24, 3072, 8192, 131072, 32, true)));
}  // namespace
}  // namespace trireme
