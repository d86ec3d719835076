// Binary formulas with NumPy broadcasting: kernel::Zip. Kernels choose the formula at run time, once per pack: waiting
// for memory takes longer. All integers share one kernel, which computes them in 64 bits: the lowest are the result.
#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cuda/choice.cuh"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/formulas/pointwise.h"

namespace trireme::gpu {
namespace {

using Binary = Formulas<pointwise::EachBinary<std::type_identity>>;

/// p becomes the formula's value of p and q.
template <class T, int n>
__device__ void combine(const Choice& formula, Pack<T, n>& p, const Pack<T, n>& q) {
  Binary::with(formula, [&](auto f) {
    for (int j = 0; j < n; ++j) p.v[j] = rounded<T>(f.value(wide(p.v[j]), wide(q.v[j])));
  });
}

/// Both operands have y's layout, or hold one number.
template <class T>
struct SameLayout {
  T* y;
  const T *a, *b;
  bool one_a, one_b;
  Choice formula;

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
    combine(formula, p, take<n>(b, one_b, i));
    store(y + i, p);
  }
};

using Small = unsigned;  ///< indices of a launch of at most most_elements elements
constexpr Index most_elements = (Index{1} << 31) - 1;
using Loop = detail::StridedLoop<2>;

/// How an operand is read for a pack of y. dense: the operand has y's layout. even: a pack of y is a pack of the
/// operand, or one of its numbers.
enum class Access : std::uint8_t { dense, even, single };

/// Any broadcast.
template <class T>
struct Broadcast {
  T* y;
  const T* operand[2];
  Access access[2];
  DeviceLoop<Small, 2> loop;
  Choice formula;

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
    combine(formula, p[0], p[1]);
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

template <class T>
void launch(const On& on, const Loop& loop, T* y, const T* a, const T* b, const Choice& formula) {
  const Index n = loop.count();
  if (n == 0) return;
  if (loop.rank == 1) {
    const bool one_a = loop.step[0][0] == 0, one_b = loop.step[0][1] == 0;
    const bool vector = aligned(y, one_a ? nullptr : a, one_b ? nullptr : b);
    return each<pack<T>>(on, n, vector, SameLayout<T>{y, a, b, one_a, one_b, formula});
  }
  if (n > most_elements) {  // slabs of the outermost axis
    const int outer = loop.rank - 1;
    const Index slab = n / loop.extent[outer], most = std::max<Index>(1, most_elements / slab);
    for (Index k = 0; k < loop.extent[outer]; k += most) {
      Loop part = loop;
      part.extent[outer] = std::min(most, loop.extent[outer] - k);
      if (part.extent[outer] == 1) --part.rank;
      launch(on, part, y + k * slab, a + k * loop.step[outer][0], b + k * loop.step[outer][1], formula);
    }
    return;
  }
  const Access of_a = access_of(loop, 0, a, pack<T>), of_b = access_of(loop, 1, b, pack<T>);
  const bool vector = aligned(y, of_a == Access::dense ? a : nullptr, of_b == Access::dense ? b : nullptr);
  each<pack<T>>(on, n, vector, Broadcast<T>{y, {a, b}, {of_a, of_b}, DeviceLoop<Small, 2>(loop), formula});
}

struct Integers {
  void* y;
  const void* operand[2];
  DType type;
  DeviceLoop<Index, 2> loop;
  Choice formula;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const auto at = loop.offset(i);
    const auto v =
        value(number<std::int64_t>(operand[0], type, at.of[0]), number<std::int64_t>(operand[1], type, at.of[1]));
    with_integer(type, [&](auto t) { static_cast<decltype(t)*>(y)[i] = static_cast<decltype(t)>(v); });
  }

 private:
  __device__ std::int64_t value(std::int64_t a, std::int64_t b) const {
    std::int64_t v = 0;
    Binary::with(formula, [&]<class F>(F f) {
      if constexpr (requires { F::integers; }) v = f.value(a, b);
    });
    return v;
  }
};

void zip_by(std::string_view op, bool integers, const View& y, const View& a, const View& b, const Choice& formula) {
  const Loop loop = detail::plan_broadcast(y, a, b, op);
  const On on(y.device, op);
  if (integers && !is_float(y.dtype))
    return each<1>(on, y.numel(), false,
                   Integers{y.data,
                            {a.data, b.data},
                            y.dtype == DType::boolean ? DType::u8 : y.dtype,
                            DeviceLoop<Index, 2>(loop),
                            formula});
  dispatch_device_float(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    launch(on, loop, y.as<T>(), a.as<const T>(), b.as<const T>(), formula);
  });
}

template <class F>
void zip(View y, View a, View b, F f) {
  zip_by(
      F::name, requires { F::integers; }, y, a, b, Binary::choice(f));
}

template <class F>
struct CudaBinaryFormula {
  Kernel<kernel::Zip<F>> forward{DeviceKind::cuda, zip<F>};
};

const pointwise::EachBinary<CudaBinaryFormula> binary_formulas_cuda;

}  // namespace
}  // namespace trireme::gpu
