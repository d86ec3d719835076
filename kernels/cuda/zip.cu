// Binary formulas with NumPy broadcasting: kernel::Zip.
#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/formulas/pointwise.h"

namespace trireme::gpu {
namespace {

/// Both operands lie as y does, or hold one number.
template <class F, class T>
struct SameLayout {
  T* y;
  const T *a, *b;
  bool one_a, one_b;
  F f;

  template <int n>
  __device__ static Pack<T, n> take(const T* from, bool one, Index i) {
    if (!one) return load<n>(from + i);
    Pack<T, n> p;
    const T v = *from;
    for (int j = 0; j < n; ++j) p.v[j] = v;
    return p;
  }
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    Pack<T, n> p = take<n>(a, one_a, i);
    const Pack<T, n> q = take<n>(b, one_b, i);
    for (int j = 0; j < n; ++j) p.v[j] = rounded<T>(f.value(wide(p.v[j]), wide(q.v[j])));
    store(y + i, p);
  }
};

using Small = unsigned;  ///< indices of a launch; it has at most so many elements:
constexpr Index most_elements = (Index{1} << 31) - 1;
using Loop = detail::StridedLoop<2>;

/// How an operand is read for a pack of y. dense: it lies as y does. even: a pack of y is a pack of it, or one number.
enum class Access : std::uint8_t { dense, even, single };

/// Any broadcast.
template <class F, class T>
struct Broadcast {
  T* y;
  const T* operand[2];
  Access access[2];
  DeviceLoop<Small, 2> loop;
  F f;

  template <int n>
  __device__ void take(Pack<T, n>& p, int which, Small i, Small at) const {
    const T* data = operand[which];
    if (access[which] == Access::dense) {
      p = load<n>(data + i);
    } else if (access[which] == Access::even && loop.step[0][which] == 1) {
      p = load<n>(data + at);
    } else {
      const T v = data[at];
      for (int j = 0; j < n; ++j) p.v[j] = v;
    }
  }

  template <int n>
  __device__ void operator()(Count<n>, Index index) const {
    const auto i = static_cast<Small>(index);
    const auto first = loop.offset(i);
    Pack<T, n> p[2];
    for (int o = 0; o < 2; ++o) take(p[o], o, i, first.of[o]);
    if (access[0] == Access::single || access[1] == Access::single)
      for (int j = 1; j < n; ++j) {
        const auto at = loop.offset(i + static_cast<Small>(j));
        for (int o = 0; o < 2; ++o)
          if (access[o] == Access::single) p[o].v[j] = operand[o][at.of[o]];
      }
    for (int j = 0; j < n; ++j) p[0].v[j] = rounded<T>(f.value(wide(p[0].v[j]), wide(p[1].v[j])));
    store(y + i, p[0]);
  }
};

/// Of an operand of the loop, for packs of `width` elements.
Access access_of(const Loop& loop, std::size_t operand, const void* data, int width) {
  const Index inner = loop.step[0][operand];
  bool all_dense = true, even = loop.extent[0] % width == 0 && (inner == 0 || aligned(data));
  Index dense = 1;
  for (int k = 0; k < loop.rank; dense *= loop.extent[k++]) {
    const Index step = loop.step[k][operand];
    all_dense = all_dense && step == dense;
    even = even && (k == 0 || inner == 0 || step % width == 0);
  }
  return all_dense ? Access::dense : even ? Access::even : Access::single;
}

template <class F, class T>
void launch(const On& on, const Loop& loop, T* y, const T* a, const T* b, F f) {
  const Index n = loop.count();
  if (n == 0) return;
  if (loop.rank == 1) {
    const bool one_a = loop.step[0][0] == 0, one_b = loop.step[0][1] == 0;
    const bool vector = aligned(y, one_a ? nullptr : a, one_b ? nullptr : b);
    return each<pack<T>>(on, n, vector, SameLayout<F, T>{y, a, b, one_a, one_b, f});
  }
  if (n > most_elements) {  // slabs of the outermost axis
    const int outer = loop.rank - 1;
    const Index slab = n / loop.extent[outer], most = std::max<Index>(1, most_elements / slab);
    for (Index k = 0; k < loop.extent[outer]; k += most) {
      Loop part = loop;
      part.extent[outer] = std::min(most, loop.extent[outer] - k);
      if (part.extent[outer] == 1) --part.rank;
      launch(on, part, y + k * slab, a + k * loop.step[outer][0], b + k * loop.step[outer][1], f);
    }
    return;
  }
  const Access of_a = access_of(loop, 0, a, pack<T>), of_b = access_of(loop, 1, b, pack<T>);
  const bool vector = aligned(y, of_a == Access::dense ? a : nullptr, of_b == Access::dense ? b : nullptr);
  each<pack<T>>(on, n, vector, Broadcast<F, T>{y, {a, b}, {of_a, of_b}, DeviceLoop<Small, 2>(loop), f});
}

template <class F>
void zip(View y, View a, View b, F f) {
  const Loop loop = detail::plan_broadcast(y, a, b, F::name);
  const On on(y.device, F::name);
  const auto floats = [](DType type, std::string_view op, auto&& g) { return dispatch_device_float(type, op, g); };
  pointwise::dispatch<F>(y.dtype, floats, [&](auto t) {
    using T = decltype(t);
    launch(on, loop, y.as<T>(), a.as<const T>(), b.as<const T>(), f);
  });
}

template <class F>
struct CudaBinaryFormula {
  Kernel<kernel::Zip<F>> forward{DeviceKind::cuda, zip<F>};
};

const pointwise::EachBinary<CudaBinaryFormula> formulas_cuda;

}  // namespace
}  // namespace trireme::gpu
