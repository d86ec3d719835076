// Binary formulas with NumPy broadcasting: kernel::Zip.
#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/formulas/pointwise.h"
#include "kernels/plans/broadcast.h"

namespace trireme::gpu {
namespace {

/// Both operands lie as y does, or hold one number.
template <class F, class T>
struct FlatBuffer {
  T* y;
  const T *a, *b;
  bool one_a, one_b;

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
    for (int j = 0; j < n; ++j) p.v[j] = rounded<T>(F::value(wide(p.v[j]), wide(q.v[j])));
    store(y + i, p);
  }
};

using Small = unsigned;  ///< elements of a walk are at most so many:
constexpr Index most_elements = (Index{1} << 31) - 1;

/// How an operand is read for a pack of y. flat: it lies as y does. even: a pack of y is a pack of it, or one number.
enum class HostCopy : std::uint8_t { flat, even, single };

struct Operand {
  const void* data;
  HostCopy reading;
  Small step[Shape::max_rank];
};

/// Any broadcast.
template <class F, class T>
struct Broadcast {
  T* y;
  Operand a, b;
  int rank;
  Divisor extent[Shape::max_rank];

  struct Place {
    Small a, b;
  };
  /// Where the operands of element i lie.
  __device__ Place place(Small i) const {
    Place p{0, 0};
    for (int k = 0; k + 1 < rank; ++k) {
      const Small at = extent[k].split(i);
      p.a += at * a.step[k], p.b += at * b.step[k];
    }
    return {p.a + i * a.step[rank - 1], p.b + i * b.step[rank - 1]};
  }
  template <int n>
  __device__ static void take(Pack<T, n>& p, const Operand& from, Small i, Small at) {
    const T* data = static_cast<const T*>(from.data);
    if (from.reading == HostCopy::flat) {
      p = load<n>(data + i);
    } else if (from.reading == HostCopy::even && from.step[0] == 1) {
      p = load<n>(data + at);
    } else {
      const T v = data[at];
      for (int j = 0; j < n; ++j) p.v[j] = v;
    }
  }

  template <int n>
  __device__ void operator()(Count<n>, Index index) const {
    const auto i = static_cast<Small>(index);
    const Place first = place(i);
    Pack<T, n> p, q;
    take(p, a, i, first.a);
    take(q, b, i, first.b);
    if (a.reading == HostCopy::single || b.reading == HostCopy::single)
      for (int j = 1; j < n; ++j) {
        const Place at = place(i + static_cast<Small>(j));
        if (a.reading == HostCopy::single) p.v[j] = static_cast<const T*>(a.data)[at.a];
        if (b.reading == HostCopy::single) q.v[j] = static_cast<const T*>(b.data)[at.b];
      }
    for (int j = 0; j < n; ++j) p.v[j] = rounded<T>(F::value(wide(p.v[j]), wide(q.v[j])));
    store(y + i, p);
  }
};

/// An operand with these steps for packs of so many elements.
Operand operand(const Walk& w, const Index* step, const void* data, int width) {
  Operand o{data, HostCopy::single, {}};
  bool flat = true, even = w.extent[0] % width == 0 && (step[0] == 0 || aligned(data));
  Index dense = 1;
  for (int k = 0; k < w.rank; dense *= w.extent[k++]) {
    o.step[k] = static_cast<Small>(step[k]);
    flat = flat && step[k] == dense;
    even = even && (k == 0 || step[0] == 0 || step[k] % width == 0);
  }
  o.reading = flat ? HostCopy::flat : even ? HostCopy::even : HostCopy::single;
  return o;
}

template <class F, class T>
void launch(const On& on, const Walk& w, T* y, const T* a, const T* b) {
  Index n = 1;
  for (int k = 0; k < w.rank; ++k) n *= w.extent[k];
  if (n == 0) return;
  if (w.rank == 1) {
    const bool one_a = w.step_a[0] == 0, one_b = w.step_b[0] == 0;
    const bool vector = aligned(y, one_a ? nullptr : a, one_b ? nullptr : b);
    return each<pack<T>>(on, n, vector, FlatBuffer<F, T>{y, a, b, one_a, one_b});
  }
  if (n > most_elements) {  // slabs of the outermost axis
    const int outer = w.rank - 1;
    const Index slab = n / w.extent[outer], most = std::max<Index>(1, most_elements / slab);
    for (Index k = 0; k < w.extent[outer]; k += most) {
      Walk part = w;
      part.extent[outer] = std::min(most, w.extent[outer] - k);
      if (part.extent[outer] == 1) --part.rank;
      launch<F>(on, part, y + k * slab, a + k * w.step_a[outer], b + k * w.step_b[outer]);
    }
    return;
  }
  Broadcast<F, T> f{y, operand(w, w.step_a, a, pack<T>), operand(w, w.step_b, b, pack<T>), w.rank, {}};
  for (int k = 0; k < w.rank; ++k) f.extent[k] = Divisor(w.extent[k]);
  const bool vector =
      aligned(y, f.a.reading == HostCopy::flat ? a : nullptr, f.b.reading == HostCopy::flat ? b : nullptr);
  each<pack<T>>(on, n, vector, f);
}

template <class F>
void zip(View y, View a, View b) {
  const Walk w = plan_walk(y, a, b, F::name);
  const On on(y.device, F::name);
  dispatch_device_float(y.dtype, F::name, [&](auto t) {
    using T = decltype(t);
    launch<F>(on, w, y.as<T>(), a.as<const T>(), b.as<const T>());
  });
}

template <class F>
struct Binary {
  Kernel<kernel::Zip<F>> forward{DeviceKind::cuda, zip<F>};
};

const Binary<pointwise::Add> add_cuda;
const Binary<pointwise::Sub> sub_cuda;
const Binary<pointwise::Mul> mul_cuda;
const Binary<pointwise::Div> div_cuda;
const Binary<pointwise::Maximum> maximum_cuda;
const Binary<pointwise::Minimum> minimum_cuda;
const Binary<pointwise::MaximumShare> maximum_share_cuda;
const Binary<pointwise::MinimumShare> minimum_share_cuda;

}  // namespace
}  // namespace trireme::gpu
