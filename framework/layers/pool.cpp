#include "framework/layers/pool.h"

namespace trireme {
namespace {

PoolOptions pool_options(const char* op, const PerAxis& window, const PoolLayerOptions& given) {
  // The input's number of axes is unknown here: any number of numbers is accepted, and checked later.
  const auto numbers = [&](const PerAxis& p) { return p.of(0, op); };
  PoolOptions o{.window = numbers(window),
                .stride = numbers(given.stride),
                .pad_begin = numbers(given.pad),
                .pad_end = numbers(given.pad),
                .dilation = numbers(given.dilation),
                .ceil_mode = given.ceil_mode};
  for (std::size_t s = 0; s < 3; ++s) {
    check(o.window[s] > 0, op, "window is {}, expected at least 1", o.window[s]);
    check(o.stride[s] >= 0, op, "stride is {}, expected at least 1 (0 means the window)", o.stride[s]);
    check(o.dilation[s] > 0, op, "dilation is {}, expected at least 1", o.dilation[s]);
    check(o.pad_begin[s] >= 0 && 2 * o.pad_begin[s] <= o.window[s], op,
          "padding is {}, expected at most half the window of {}", o.pad_begin[s], o.window[s]);
    if (o.stride[s] == 0) o.stride[s] = o.window[s];
  }
  return o;
}

}  // namespace

MaxPool::MaxPool(PerAxis window, const PoolLayerOptions& o) : options(pool_options("max_pool", window, o)) {}
AvgPool::AvgPool(PerAxis window, const PoolLayerOptions& o) : options(pool_options("avg_pool", window, o)) {}

}  // namespace trireme
