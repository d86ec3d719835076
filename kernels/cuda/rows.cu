// A bias along rows and sums over rows: rows.h.
#include "kernels/cuda/rows.h"

#include "kernels/cuda/launch.cuh"

namespace trireme::gpu {
namespace {

/// y[i] = relu(y[i] + bias[i % width]); a pack lies within one row.
template <class T, class B, bool relu>
struct AddBias {
  T* y;
  const B* bias;  ///< may be null
  Index width;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    using A = Accumulator<T>;
    Pack<T, n> p = load<n>(y + i);
    const Index column = i % width;
    for (int j = 0; j < n; ++j) {
      A v = wide(p.v[j]);
      if (bias) v += static_cast<A>(wide(bias[column + j]));
      if (relu && v < A(0)) v = A(0);
      p.v[j] = rounded<T>(v);
    }
    store(y + i, p);
  }
};

template <class T, class B>
void add_bias_of(const On& on, const View& y, const View& bias, bool relu) {
  const Index width = row_width(y.shape);
  const bool vector = width % pack<T> == 0 && aligned(y.data);
  if (relu)
    each<pack<T>>(on, y.numel(), vector, AddBias<T, B, true>{y.as<T>(), bias.as<const B>(), width});
  else
    each<pack<T>>(on, y.numel(), vector, AddBias<T, B, false>{y.as<T>(), bias.as<const B>(), width});
}

/// Row r of x goes to strip r / strip_rows; a block sums the columns of one tile in one strip.
struct Strips {
  Index rows, width, strip_rows;
  int lanes;  ///< threads side by side in a row, a power of two: the others of the block take the rows below
};

/// Additions in a row in the element's own accumulator before it is emptied into a double.
constexpr int run_length = 16;

/// parts[strip, column] = sum of x in the strip.
template <class T, int n>
__global__ void sum_strips(double* parts, const T* x, Strips s) {
  __shared__ double shared[block * n];
  const int lane = static_cast<int>(threadIdx.x) % s.lanes, below = static_cast<int>(threadIdx.x) / s.lanes;
  const int step = block / s.lanes;
  const Index column = (static_cast<Index>(blockIdx.x) * s.lanes + lane) * n;
  const Index end = std::min(s.rows, (static_cast<Index>(blockIdx.y) + 1) * s.strip_rows);
  Index row = static_cast<Index>(blockIdx.y) * s.strip_rows + below;
  double total[n] = {};
  while (column < s.width && row < end) {
    Accumulator<T> some[n] = {};
#pragma unroll 4
    for (int i = 0; i < run_length; ++i) {
      if (row < end) {
        const Pack<T, n> p = load<n>(x + row * s.width + column);
        for (int j = 0; j < n; ++j) some[j] += wide(p.v[j]);
      }
      row += step;
    }
    for (int j = 0; j < n; ++j) total[j] += static_cast<double>(some[j]);
  }
  for (int j = 0; j < n; ++j) shared[j * block + static_cast<int>(threadIdx.x)] = total[j];
  for (int half = step / 2; half > 0; half /= 2) {
    __syncthreads();
    if (below < half)
      for (int j = 0; j < n; ++j) {
        double* mine = shared + j * block + threadIdx.x;
        *mine += mine[half * s.lanes];
      }
  }
  if (below == 0 && column < s.width)
    for (int j = 0; j < n; ++j) parts[blockIdx.y * s.width + column + j] = shared[j * block + lane];
}

/// sum[c] (+)= parts over strips: a warp per column.
template <class S>
__global__ void sum_parts_kernel(S* sum, const double* parts, Index width, int strips, bool accumulate) {
  const Index column = first_item() / warp;
  const int lane = static_cast<int>(threadIdx.x) % warp;
  double total = 0;
  if (column < width)
    for (int i = lane; i < strips; i += warp) total += parts[i * width + column];
  total = warp_combine(total, Plus{});
  if (lane != 0 || column >= width) return;
  if (accumulate) total += static_cast<double>(wide(sum[column]));
  sum[column] = rounded<S>(static_cast<Accumulator<S>>(total));
}

template <class T>
void sum_rows_of(const On& on, const View& sum, const View& x, bool accumulate) {
  const Index width = sum.numel(), rows = row_count(x.shape);
  const bool vector = width % pack<T> == 0 && aligned(x.data);
  const Index packs = vector ? width / pack<T> : width;
  Strips s{rows, width, 0, static_cast<int>(std::min<Index>(std::bit_ceil(static_cast<std::uint64_t>(packs)), warp))};
  const Index tiles = ceil_div(packs, s.lanes);
  // About a thousand blocks fill any card; a strip gives each of its threads one run at least.
  constexpr Index blocks = 1024;
  const Index least = static_cast<Index>(block / s.lanes) * run_length;
  s.strip_rows = std::max(least, ceil_div(rows, std::max<Index>(1, blocks / tiles)));
  const Index strips = ceil_div(rows, s.strip_rows);
  const Scratch parts(on, static_cast<std::size_t>(strips * width) * sizeof(double));
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(strips));
  if (strips > 0 && vector)
    run(on, grid, block, sum_strips<T, pack<T>>, parts.as<double>(), x.as<const T>(), s);
  else if (strips > 0)
    run(on, grid, block, sum_strips<T, 1>, parts.as<double>(), x.as<const T>(), s);
  sum_parts(on, sum, parts.as<double>(), strips, accumulate);
}

}  // namespace

void add_bias(const On& on, const View& y, const View& bias, bool relu) {
  if (y.numel() == 0 || (!bias && !relu)) return;
  dispatch_device_float(y.dtype, on.op(), [&](auto t) {
    using T = decltype(t);
    if (!bias) return add_bias_of<T, T>(on, y, bias, relu);
    dispatch_device_float(bias.dtype, on.op(), [&](auto b) {
      using B = decltype(b);
      if constexpr (std::is_same_v<T, B> || std::is_same_v<T, float> || std::is_same_v<B, float>)
        add_bias_of<T, B>(on, y, bias, relu);
      else
        fail(on.op(), "a bias of {} beside {} is not expected", bias.dtype, y.dtype);
    });
  });
}

void sum_parts(const On& on, const View& sum, const double* parts, Index strips, bool accumulate) {
  if (sum.numel() == 0) return;
  dispatch_device_float(sum.dtype, on.op(), [&](auto t) {
    using S = decltype(t);
    run(on, dim3(static_cast<unsigned>(ceil_div(sum.numel(), block / warp))), block, sum_parts_kernel<S>, sum.as<S>(),
        parts, sum.numel(), static_cast<int>(strips), accumulate);
  });
}

void sum_rows(const On& on, const View& sum, const View& x, bool accumulate) {
  check_sum_rows(sum, x, on.op());
  if (sum.numel() == 0) return;
  dispatch_device_float(x.dtype, on.op(), [&](auto t) { sum_rows_of<decltype(t)>(on, sum, x, accumulate); });
}

}  // namespace trireme::gpu
