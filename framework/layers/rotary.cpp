#include "framework/layers/rotary.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "framework/layers/kv_cache.h"
#include "framework/ops/help.h"
#include "framework/tensor/watch_pause.h"

namespace trireme {

struct RotaryEmbedding::Tables {
  std::mutex mutex;
  std::map<std::tuple<DType, DeviceKind, int>, Tensor> made;
};

RotaryEmbedding::RotaryEmbedding(Index positions, Index head_size, const RopeOptions& options, bool interleaved)
    : positions_(positions),
      size_(head_size),
      options_(options),
      interleaved_(interleaved),
      tables_(std::make_shared<Tables>()) {
  check(positions > 0 && head_size > 0 && head_size % 2 == 0, "rotary_embedding",
        "got {} positions and {} elements per head, expected at least 1 position and an even number of elements",
        positions, head_size);
}

Tensor RotaryEmbedding::table(Index rows, DType dtype, Device device) const {
  const std::scoped_lock lock(tables_->mutex);
  Tensor& made = tables_->made[{dtype, device.kind, device.index}];
  if (!made || made.dim(0) < rows) {
    const NoGrad no_grad;
    const WatchPause pause;  // the table outlives a dry run
    const Index grown = std::min(positions_, std::max<Index>(rows, made ? 2 * made.dim(0) : 0));
    made = rope_table(grown, size_, options_).to(dtype).to(device);
  }
  return made;
}

Tensor RotaryEmbedding::operator()(const Tensor& x) const {
  const char* op = "rotary_embedding";
  check(x && x.rank() == 4 && x.global_shape()[3] >= size_, op, "x is {}, expected [N, T, heads, {}]",
        x ? x.global_shape() : Shape{}, size_);
  const Index tokens = x.global_shape()[1];
  const KvCache* cache = StepContext::current().kv_cache;
  const Index end = tokens + (cache ? std::ranges::max(cache->lengths()) : 0);
  check(end <= positions_, op,
        "got {} tokens, but the model has {} positions: cut the text into windows of {}, or build the model with more "
        "(arch.positions)",
        end, positions_, positions_);
  const Tensor all = table(end, ops::accumulator(x.dtype()), x.device());
  const Tensor angles = cache ? take(all, cache->positions(tokens, x.device())) : all.rows(0, tokens);
  return rope(x, ops::constant(angles), interleaved_);
}

}  // namespace trireme
