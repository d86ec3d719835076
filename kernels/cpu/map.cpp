// Unary formulas: kernel::Map and kernel::MapBackward.
#include "kernels/cpu/map.h"

#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace detail {

void run_map(const View& y, const View& x, const void* formula, std::string_view name,
             const FloatLoops<MapLoop>& loops) {
  check_same(y, x, name);
  dispatch_float(y.dtype, name, [&]<class T>(T) {
    parallel_for(y.numel(), 4,
                 [loop = std::get<MapLoop<T>>(loops), formula, to = y.as<T>(), from = x.as<const T>()](
                     Index begin, Index end) { loop(formula, to + begin, from + begin, end - begin); });
  });
}

void run_map_backward(const View& dx, const View& dy, const View* x, const View* y, const void* formula,
                      std::string_view name, const FloatLoops<MapBackwardLoop>& loops) {
  check_same(dx, dy, name);
  if (x) check_same(dx, *x, name);
  if (y) check_same(dx, *y, name);
  dispatch_float(dx.dtype, name, [&]<class T>(T) {
    parallel_for(dx.numel(), 4,
                 [loop = std::get<MapBackwardLoop<T>>(loops), formula, to = dx.as<T>(), from = dy.as<const T>(),
                  in = x ? x->as<const T>() : nullptr, out = y ? y->as<const T>() : nullptr](Index begin, Index end) {
                   loop(formula, to + begin, from + begin, in ? in + begin : nullptr, out ? out + begin : nullptr,
                        end - begin);
                 });
  });
}

}  // namespace detail

namespace {

const pointwise::EachUnary<CpuFormula> formulas_cpu;

}  // namespace
}  // namespace trireme
