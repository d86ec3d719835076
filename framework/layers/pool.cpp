#include "framework/layers/pool.h"

namespace trireme {
namespace {

Extents all(Index n) { return {n, n, n}; }

PoolOptions pool_options(std::string_view op, Index window, const PoolLayerOptions& o) {
  check(window > 0, op, "window is {}, expected at least 1", window);
  check(o.stride >= 0, op, "stride is {}, expected at least 1 (0 means the window)", o.stride);
  check(o.pad >= 0 && 2 * o.pad <= window, op, "padding is {}, expected at most half the window of {}", o.pad, window);
  return {.window = all(window),
          .stride = all(o.stride ? o.stride : window),
          .pad_begin = all(o.pad),
          .pad_end = all(o.pad)};
}

}  // namespace

MaxPool::MaxPool(Index window, PoolLayerOptions o) : options(pool_options("max_pool", window, o)) {}
AvgPool::AvgPool(Index window, PoolLayerOptions o) : options(pool_options("avg_pool", window, o)) {}

}  // namespace trireme
