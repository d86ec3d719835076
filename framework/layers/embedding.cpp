#include "framework/layers/embedding.h"

#include <algorithm>

#include "framework/layers/kv_cache.h"
#include "framework/ops/help.h"
#include "framework/ops/take_rows.h"

namespace trireme {
namespace {

/// Throws Error naming the first id outside of [0, count) and its place: "row 3, token 7".
void check_ids(const Tensor& ids, Index count) {
  if (!ids || ids.dtype() != DType::i64 || ids.device().kind != DeviceKind::cpu) return;
  const auto all = ids.view().span<const std::int64_t>();
  const auto bad = std::ranges::find_if(all, [count](std::int64_t id) { return id < 0 || id >= count; });
  if (bad == all.end()) return;
  const Index at = bad - all.begin(), tokens = ids.rank() > 1 ? ids.shape().product(1, ids.rank()) : 1;
  fail(ErrorKind::data, "embedding",
       "row {}{}: id {} lies outside [0, {}); tokenize with the vocabulary that the model was built for", at / tokens,
       ids.rank() > 1 ? fmt::format(", token {}", at % tokens) : "", *bad, count);
}

}  // namespace

Embedding::Embedding(Index count, Index features, Init draw) : init(std::move(draw)) {
  check(count > 0 && features > 0, "embedding", "{} ids and {} features, expected at least 1 of each", count, features);
  weight = init.make({count, features});
}

Tensor Embedding::operator()(const Tensor& ids) const {
  check_ids(ids, weight.global_shape()[0]);
  return ops::take_rows(weight, ids, dtype.value_or(weight.dtype()));
}

Tensor PositionEmbedding::operator()(const Tensor& x) const {
  const char* op = "position_embedding";
  check(x && x.rank() == 3 && x.global_shape()[2] == weight.global_shape()[1], op, "x is {}, expected [N, T, {}]",
        x ? x.global_shape() : Shape{}, weight.global_shape()[1]);
  const Index tokens = x.global_shape()[1];
  const KvCache* cache = StepContext::current().kv_cache;
  const Index begin = cache ? std::ranges::max(cache->lengths()) : 0;
  check(begin + tokens <= weight.global_shape()[0], op,
        "got {} tokens, but the model has {} positions: cut the text into windows of {}, or build the model with more "
        "(arch.positions)",
        begin + tokens, weight.global_shape()[0], weight.global_shape()[0]);
  if (cache) return x + ops::take_rows(weight, cache->positions(tokens, x.device()), x.dtype());
  return x + ops::in_type(slice(weight, 0, 0, tokens), x.dtype());
}

}  // namespace trireme
