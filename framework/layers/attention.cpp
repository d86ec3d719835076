#include "framework/layers/attention.h"

#include "framework/layers/kv_cache.h"

namespace trireme {

AttentionHeads::AttentionHeads(Index width, Index heads, const SelfAttentionOptions& o)
    : heads_(heads), kv_heads_(o.kv_heads == 0 ? heads : o.kv_heads) {
  const char* op = "self_attention";
  check(width > 0 && heads > 0 && width % heads == 0, op, "{} heads do not divide a width of {}: choose a divisor",
        heads, width);
  check(kv_heads_ > 0 && heads % kv_heads_ == 0, op,
        "{} heads of keys and values do not divide the {} of queries: choose a divisor", kv_heads_, heads);
  check(o.dropout >= 0 && o.dropout < 1, op, "dropout is {}, expected 0 <= dropout < 1", o.dropout);
  check(o.window >= 0 && (o.window == 0 || o.causal), op,
        "a window of {} tokens{}, expected 0, or a positive number with causal", o.window,
        o.causal ? "" : " without causal");
  size_ = width / heads;
  options_ = {.causal = o.causal, .window = o.window, .scale = o.scale, .dropout = o.dropout, .alibi = o.alibi};
}

Shares AttentionHeads::packed_shares() const {
  return {.ranges = {query_shares().ranges[0], kv_shares().ranges[0], kv_shares().ranges[0]}};
}

Tensor AttentionHeads::split(const Tensor& x) const {
  check(x && x.rank() == 3 && x.global_shape()[2] % size_ == 0, "self_attention",
        "x is {}, expected [N, T, heads x {}]", x ? x.global_shape() : Shape{}, size_);
  const Shape& s = x.global_shape();
  return x.reshape({s[0], s[1], s[2] / size_, size_});
}

Tensor AttentionHeads::operator()(const Tensor& qkv, const KeyLimits& limits) const {
  check(qkv && qkv.rank() == 3 && qkv.global_shape()[2] == packed(), "self_attention",
        "q, k and v are {}, expected [N, T, {}]", qkv ? qkv.global_shape() : Shape{}, packed());
  const Tensor heads = split(qkv);
  if (StepContext::current().kv_cache) {
    const auto parts = trireme::split(heads, {heads_, kv_heads_, kv_heads_}, 2);
    return (*this)(parts[0], parts[1], parts[2], limits);
  }
  const Shape joined{qkv.global_shape()[0], qkv.global_shape()[1], heads_ * size_};
  return attention_packed(heads, heads_, kv_heads_, options_, limits.lengths, limits.first_keys).reshape(joined);
}

Tensor AttentionHeads::operator()(const Tensor& q, const Tensor& k, const Tensor& v, const KeyLimits& limits) const {
  const Shape joined{q.global_shape()[0], q.global_shape()[1], heads_ * size_};
  KvCache* cache = StepContext::current().kv_cache;
  if (!cache) return attention(q, k, v, options_, limits.lengths, {}, limits.first_keys).reshape(joined);
  check(options_.causal, "self_attention", "this layer is not causal, but a KvCache needs causal layers: set causal");
  // A layer without a key (it is in no ParameterStore) is identified by its address.
  const std::uint64_t layer = options_.layer ? options_.layer : reinterpret_cast<std::uintptr_t>(this);
  const auto [keys, values] = cache->append(layer, k, v);
  return attention(q, keys, values, options_, {}, cache->starts(q.device()), limits.first_keys).reshape(joined);
}

SelfAttention::SelfAttention(Index width, Index count, SelfAttentionOptions options)
    : heads(width, count, options),
      out_proj(
          width, width,
          {.bias = options.bias, .init = Init::kaiming_uniform(std::sqrt(5.0)), .shares = {{}, heads.query_shares()}}),
      init(std::move(options.init)) {
  in_proj_weight = init.make({heads.packed(), width});
  if (options.bias) in_proj_bias = Tensor::zeros({heads.packed()});
}

void SelfAttention::visit(const StateVisitor& v) {
  const std::vector<Shares> shares{heads.packed_shares()};
  v("in_proj_weight", in_proj_weight, StateKind::weight, init, FileLayout::same, shares);
  v("in_proj_bias", in_proj_bias, StateKind::no_decay, Init::zeros(), FileLayout::same, shares);
  v("out_proj", out_proj);
  heads.visit(v);
}

}  // namespace trireme
