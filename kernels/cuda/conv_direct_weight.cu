// Our own convolutions: gradient by the filter. Products of the outputs' gradients with the image, summed over places.
// The image is indexed as a matrix [places, filter cells x channels]. Parts of the places are summed separately and
// added in order.
#include "kernels/cuda/conv_direct.cuh"
#include "kernels/cuda/conv_direct.h"
#include "kernels/cuda/numbers.cuh"

namespace trireme::gpu {
namespace {

struct Gradient {
  Reach reach;
  Divisor filter1, filter2;  ///< extents of the filter
  Divisor group_in;          ///< channels of a group of the input: column k is of filter cell k / group_in
  int group_out, c_out;
  int columns;              ///< of one group: filter cells x group_in
  int places, part_places;  ///< part_places: a multiple of fold_every
  Divisor column_tiles, row_tiles;
};

/// One column of the filter: which channel it reads, and how far from where a place begins.
struct Column {
  int offset[3];
  int channel;  ///< of the group
};
__device__ inline Column column_of(const Gradient& g, unsigned column) {
  Column c;
  c.channel = static_cast<int>(g.group_in.split(column));
  c.offset[2] = static_cast<int>(g.filter2.split(column)) * g.reach.step[2];
  c.offset[1] = static_cast<int>(g.filter1.split(column)) * g.reach.step[1];
  c.offset[0] = static_cast<int>(column) * g.reach.step[0];
  return c;
}

/// Begins of the next fold_every places, worked out once for all columns. All threads take part.
__device__ inline void fill(Start (&starts)[fold_every], const Gradient& g, int place0) {
  static_assert(fold_every == block);
  __syncthreads();  // other threads may still read the earlier starts
  const int place = min(place0 + static_cast<int>(threadIdx.x), g.places - 1);
  starts[threadIdx.x] = start_of(g.reach, static_cast<unsigned>(place));
  __syncthreads();
}

/// parts[part, output channel, column] = sum over the places of the part.
template <class T>
__global__ void __launch_bounds__(block) gradient_kernel(Accumulator<T>* parts, const T* x, const T* dy, Gradient g) {
  using A = Accumulator<T>;
  __shared__ Operands<A> operands;
  __shared__ Start starts[fold_every];
  const int thread = static_cast<int>(threadIdx.x), mine = thread % tile, first = thread / tile;
  unsigned rest = blockIdx.x;
  const int column0 = static_cast<int>(g.column_tiles.split(rest)) * tile;
  const int row0 = static_cast<int>(g.row_tiles.split(rest)) * tile;
  const auto group = static_cast<int>(rest);
  const int begin = static_cast<int>(blockIdx.y) * g.part_places, end = min(g.places, begin + g.part_places);

  // This thread fetches row and column `mine` of the places first, first + 4, ... of each 16.
  const bool row_there = row0 + mine < g.group_out, column_there = column0 + mine < g.columns;
  const Column column = column_of(g, static_cast<unsigned>(column0 + mine));
  const T* from_dy = dy + group * g.group_out + row0 + mine;
  const T* from_x = x + group * static_cast<int>(g.group_in.by()) + column.channel;
  A a[each_side], b[each_side];
  const auto fetch = [&](int chunk, int k0) {
#pragma unroll
    for (int q = 0; q < each_side; ++q) {
      const int k = k0 + first + q * (block / tile);
      const bool there = chunk + k < end;
      a[q] = there && row_there ? wide(from_dy[static_cast<Index>(chunk + k) * g.c_out]) : A(0);
      const int at = there && column_there ? offset_at(g.reach, false, starts[k], column.offset) : -1;
      b[q] = at >= 0 ? wide(from_x[starts[k].image + at]) : A(0);
    }
  };
  Sums<A> sums;
  for (int chunk = begin; chunk < end; chunk += fold_every) {
    fill(starts, g, chunk);
    fetch(chunk, 0);
    for (int k0 = 0, turn = 0; k0 < fold_every; k0 += depth, turn ^= 1) {
#pragma unroll
      for (int q = 0; q < each_side; ++q) {
        operands.a[turn][first + q * (block / tile)][mine] = a[q];
        operands.b[turn][first + q * (block / tile)][mine] = b[q];
      }
      __syncthreads();
      if (k0 + depth < fold_every) fetch(chunk, k0 + depth);
      sums.multiply(operands.a[turn], operands.b[turn]);
    }
    sums.fold();
  }
  const Index to = static_cast<Index>(blockIdx.y) * g.c_out * g.columns;
#pragma unroll
  for (int i = 0; i < each_side; ++i)
#pragma unroll
    for (int j = 0; j < each_side; ++j) {
      const int row = row0 + sums.row() + i, k = column0 + sums.column() + j;
      if (row < g.group_out && k < g.columns)
        parts[to + static_cast<Index>(group * g.group_out + row) * g.columns + k] = sums.get(i, j);
    }
}

/// For small groups, which would leave most of a tile empty. A warp computes adjacent output channels of one column;
/// the warps of a block process successive places.
template <class T>
__global__ void __launch_bounds__(block)
    plain_gradient_kernel(Accumulator<T>* parts, const T* x, const T* dy, Gradient g) {
  using A = Accumulator<T>;
  constexpr int warps = block / warp;
  __shared__ Start starts[fold_every];
  __shared__ A shared[warps][warp];
  const int lane = static_cast<int>(threadIdx.x) % warp, below = static_cast<int>(threadIdx.x) / warp;
  const int k = static_cast<int>(blockIdx.x) % g.columns;
  const int output = static_cast<int>(blockIdx.x) / g.columns * warp + lane;
  const int begin = static_cast<int>(blockIdx.y) * g.part_places, end = min(g.places, begin + g.part_places);
  const Column column = column_of(g, static_cast<unsigned>(k));
  const T* from_x = x + output / g.group_out * static_cast<int>(g.group_in.by()) + column.channel;
  A total = 0;
  for (int chunk = begin; chunk < end; chunk += fold_every) {
    fill(starts, g, chunk);
    A sum = 0;
    if (output < g.c_out)
      for (int place = below; place < min(fold_every, end - chunk); place += warps) {
        const int at = offset_at(g.reach, false, starts[place], column.offset);
        if (at >= 0)
          sum +=
              wide(dy[static_cast<Index>(chunk + place) * g.c_out + output]) * wide(from_x[starts[place].image + at]);
      }
    total += sum;
  }
  shared[below][lane] = total;
  __syncthreads();
  if (below != 0 || output >= g.c_out) return;
  for (int i = 1; i < warps; ++i) total += shared[i][lane];
  parts[(static_cast<Index>(blockIdx.y) * g.c_out + output) * g.columns + k] = total;
}

/// dw (+)= the parts, in order.
template <class A>
struct AddParts {
  void* dw;
  DType type;
  const A* parts;
  Index size;
  int count;
  bool accumulate;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    double sum = 0;
#pragma unroll 4
    for (int part = 0; part < count; ++part) sum += static_cast<double>(parts[part * size + i]);
    if (accumulate) sum += number<double>(dw, type, i);
    put_number(dw, type, i, sum);
  }
};

Gradient gradient_of(const ConvShape& s) {
  Gradient g{};
  g.reach = reach_of(s);
  g.filter1 = Divisor(s.filter[1]);
  g.filter2 = Divisor(s.filter[2]);
  g.group_in = Divisor(s.group_in());
  g.group_out = static_cast<int>(s.group_out());
  g.c_out = static_cast<int>(s.c_out);
  g.columns = static_cast<int>(s.filter_cells() * s.group_in());
  g.column_tiles = Divisor(ceil_div(g.columns, tile));
  g.row_tiles = Divisor(ceil_div(g.group_out, tile));
  return g;
}

template <class T>
void add_images(const On& on, const View& dw, const T* x, const T* dy, const ConvShape& s, Index places,
                bool accumulate) {
  using A = Accumulator<T>;
  Gradient g = gradient_of(s);
  const bool plain = s.options.groups > 1 && g.group_out * g.columns <= 256;
  const Index size = static_cast<Index>(g.c_out) * g.columns;
  const Index tiles = plain ? ceil_div(g.c_out, warp) * g.columns
                            : ceil_div(g.columns, tile) * ceil_div(g.group_out, tile) * s.options.groups;
  // About a thousand blocks fill any card.
  constexpr Index blocks = 1024;
  const Index chunks = ceil_div(places, fold_every), wanted = std::clamp<Index>(ceil_div(blocks, tiles), 1, chunks);
  const Index part_chunks = ceil_div(chunks, wanted), parts = ceil_div(chunks, part_chunks);
  g.places = static_cast<int>(places);
  g.part_places = static_cast<int>(part_chunks) * fold_every;
  const Scratch sums(on, static_cast<std::size_t>(parts * size) * sizeof(A));
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(parts));
  run(on, grid, block, plain ? plain_gradient_kernel<T> : gradient_kernel<T>, sums.as<A>(), x, dy, g);
  each<1>(on, size, false,
          AddParts<A>{dw.data, dw.dtype, sums.as<const A>(), size, static_cast<int>(parts), accumulate});
}

template <class T>
void all_images(const On& on, const View& dw, const View& x, const View& dy, const ConvShape& s, bool accumulate) {
  const Index at_once = images_at_once(s, on.op());
  for (Index first = 0; first < s.n; first += at_once)
    add_images(on, dw, x.as<const T>() + first * s.in_cells() * s.c_in,
               dy.as<const T>() + first * s.out_cells() * s.c_out, s, std::min(at_once, s.n - first) * s.out_cells(),
               accumulate || first > 0);
}

}  // namespace

void conv_direct_backward_weight(const On& on, View dw, View x, View dy, const ConvShape& s, bool accumulate) {
  if (dw.numel() == 0) return;
  if (x.numel() == 0) {
    if (!accumulate) ok(cudaMemsetAsync(dw.data, 0, static_cast<std::size_t>(dw.bytes()), on.stream()), on.op());
    return;
  }
  dispatch_device_float(x.dtype, on.op(), [&](auto t) { all_images<decltype(t)>(on, dw, x, dy, s, accumulate); });
}

}  // namespace trireme::gpu
