#include "framework/layers/kv_cache.h"

#include <algorithm>

#include "framework/autograd/tape.h"
#include "framework/ops/moves.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/move.h"

namespace trireme {
namespace {

/// Writes tokens [samples, T, G, D] into all [samples, capacity, G, D], for sample n from starts[n] on.
void write_tokens(const Tensor& all, const Tensor& tokens, const std::vector<Index>& starts) {
  Shape extent = tokens.shape();
  if (std::ranges::all_of(starts, [&](Index s) { return s == starts[0]; }))
    return launch<kernel::CopyBox>(all, Shape{0, starts[0], 0, 0}, tokens, Shape{0, 0, 0, 0}, extent);
  extent[0] = 1;
  for (Index n = 0; n < tokens.dim(0); ++n)
    launch<kernel::CopyBox>(all, Shape{n, starts[static_cast<std::size_t>(n)], 0, 0}, tokens, Shape{n, 0, 0, 0},
                            extent);
}

/// x [samples, T, G, D], divided at most by heads.
Tensor own_heads(const Tensor& x) {
  const ShardSpec* spec = x ? x.shard_spec() : nullptr;
  const int heads = 2;
  if (!spec || x.rank() != 4 || spec->placements() == Placements().with(heads, spec->over(heads))) return x;
  return relayout(
      x, *spec->with(x.global_shape(), Placements().with(heads, spec->over(heads)), spec->shares(heads), heads));
}
/// All tokens [samples, capacity, G, D], divided as x [samples, T, G, D] is.
Tensor with_heads_of(const Tensor& all, const Tensor& x) {
  const ShardSpec* spec = x.shard_spec();
  if (!spec) return all;
  Shape whole = x.global_shape();
  whole[1] = all.dim(1);
  return all.with_shard_spec(spec->with(whole, spec->placements(), spec->shares(2), 2));
}

}  // namespace

KvCache::KvCache(Index samples, Index capacity) : capacity_(capacity) {
  check(samples >= 1 && capacity >= 1, "kv_cache", "{} samples of {} tokens, expected at least 1 of each", samples,
        capacity);
  lengths_.resize(static_cast<std::size_t>(samples));
}

bool KvCache::empty() const {
  return std::ranges::all_of(lengths_, [](Index n) { return n == 0; });
}

Tensor KvCache::starts(Device device) const {
  const Tensor host = Tensor::empty({samples()}, DType::i64);
  std::ranges::copy(lengths_, host.data<std::int64_t>());
  return host.to(device);
}

Tensor KvCache::positions(Index tokens, Device device) const {
  const Tensor host = Tensor::empty({samples(), tokens}, DType::i64);
  auto* at = host.data<std::int64_t>();
  for (const Index begin : lengths_)
    for (Index t = 0; t < tokens; ++t) *at++ = std::min(begin + t, capacity_ - 1);
  return host.to(device);
}

std::pair<Tensor, Tensor> KvCache::append(std::uint64_t layer, const Tensor& k_given, const Tensor& v_given) {
  const char* op = "kv_cache";
  const NoGrad inference;
  const Tensor k = own_heads(k_given), v = own_heads(v_given);
  check(k && v && k.rank() == 4 && k.shape() == v.shape() && k.dim(0) == samples(), op,
        "keys are {}, values {}, expected [{}, tokens, heads, D] of both", k ? k.shape() : Shape{},
        v ? v.shape() : Shape{}, samples());
  const Index end = std::ranges::max(lengths_) + k.dim(1);
  check(end <= capacity_, op,
        "got {} tokens after {} earlier ones, but the capacity is {}: create the cache with a larger one", k.dim(1),
        end - k.dim(1), capacity_);
  auto& [keys, values] = layers_[layer];
  const Shape all{samples(), capacity_, k.dim(2), k.dim(3)};
  if (!keys) {
    keys = Tensor::zeros(all, k.dtype(), k.device());
    values = Tensor::zeros(all, v.dtype(), v.device());
  }
  check(keys.shape() == all && keys.dtype() == k.dtype(), op,
        "two layers with the same number ({}) have keys {} {} and {} {}: use each layer's key as its number", layer,
        keys.dtype(), keys.shape(), k.dtype(), all);
  write_tokens(keys, k.detach(), lengths_);
  write_tokens(values, v.detach(), lengths_);
  return {with_heads_of(keys, k), with_heads_of(values, v)};
}

void KvCache::advance(const std::vector<Index>& counts) {
  check(std::ssize(counts) == samples(), "kv_cache", "got {} counts for {} samples, expected one per sample",
        counts.size(), samples());
  for (std::size_t n = 0; n < counts.size(); ++n) {
    check(counts[n] >= 0 && lengths_[n] + counts[n] <= capacity_, "kv_cache",
          "sample {} has {} tokens, and {} more exceed the capacity of {}", n, lengths_[n], counts[n], capacity_);
    lengths_[n] += counts[n];
  }
}
void KvCache::advance(Index count) { advance(std::vector<Index>(lengths_.size(), count)); }

void KvCache::truncate(const std::vector<Index>& lengths) {
  check(lengths.size() == lengths_.size(), "kv_cache", "got {} lengths for {} samples, expected one per sample",
        lengths.size(), samples());
  for (std::size_t n = 0; n < lengths.size(); ++n) lengths_[n] = std::clamp<Index>(lengths[n], 0, lengths_[n]);
}

}  // namespace trireme
