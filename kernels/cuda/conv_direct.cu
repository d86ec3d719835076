// Our own convolutions: output, and gradient by the input. They are products of an image and the filter. The image is
// indexed as a matrix [places, filter cells x channels], which is never stored.
#include "kernels/cuda/conv_direct.h"

#include "kernels/cuda/conv_direct.cuh"

namespace trireme::gpu {

namespace {

int limited(Index v) { return static_cast<int>(std::clamp<Index>(v, -most_places, most_places)); }

Reach reach_from(const Extents& places, const Extents& extent, Index channels) {
  Reach r{};
  r.cells = Divisor(places[0] * places[1] * places[2]);
  r.cell1 = Divisor(places[1]);
  r.cell2 = Divisor(places[2]);
  for (std::size_t d = 0; d < 3; ++d) {
    r.extent[d] = limited(extent[d]);
    r.cell_step[d] = 1;
  }
  r.channels = limited(channels);
  r.image = extent[0] * extent[1] * extent[2] * channels;
  return r;
}

}  // namespace

Reach reach_of(const ConvShape& s) {
  Reach r = reach_from(s.out, s.in, s.c_in);
  for (std::size_t d = 0; d < 3; ++d) {
    r.cell_step[d] = limited(s.options.stride[d]);
    r.shift[d] = -limited(s.options.pad_begin[d]);
    r.step[d] = limited(s.options.dilation[d]);
  }
  return r;
}

Reach reach_back(const ConvShape& s) {
  Reach r = reach_from(s.in, s.out, s.c_out);
  for (std::size_t d = 0; d < 3; ++d) {
    r.shift[d] = limited(s.options.pad_begin[d]);
    r.step[d] = -limited(s.options.dilation[d]);
    r.stride[d] = Divisor(limited(s.options.stride[d]));
  }
  return r;
}

Index images_at_once(const ConvShape& s, std::string_view op) {
  const Index elements = std::max(
      {s.in_cells() * std::max<Index>(1, s.c_in), s.out_cells() * s.c_out, s.c_out * s.filter_cells() * s.group_in()});
  check(elements <= most_places, op, "an image or filter of {} elements; at most {} are possible", elements,
        Index{most_places});
  return std::max<Index>(1, most_places / std::max<Index>(1, std::max(s.in_cells(), s.out_cells())));
}

namespace {

/// A product of the places that `reach` reads with the filter, group by group.
struct Product {
  Reach reach;
  Divisor filter1, filter2;  ///< extents of the filter
  Divisor group_channels;    ///< of the image read: product k is of filter cell k / channels, channel k % channels
  int products;              ///< of one sum
  Divisor columns;           ///< channels of a group of the image written
  int channels;              ///< all of them
  int places;
  /// Elements of the filter from one group, column, filter cell, channel to the next.
  int w_group, w_column, w_cell, w_channel;
  Divisor column_tiles, groups;
  bool strided;  ///< back: Reach::stride counts
};

/// What follows a sum.
template <class T>
struct Finish {
  T* y;
  const void* bias;  ///< T or float; null: none
  bool bias_f32;
  const T* residual;  ///< may be y
  bool relu;

  __device__ void operator()(Accumulator<T> v, Index at, int channel) const {
    using A = Accumulator<T>;
    if (bias)
      v += bias_f32 ? static_cast<A>(static_cast<const float*>(bias)[channel])
                    : wide(static_cast<const T*>(bias)[channel]);
    if (residual) v += wide(residual[at]);
    if (relu && v < A(0)) v = 0;
    y[at] = rounded<T>(v);
  }
};

/// Offset of filter cell f in the image that is read.
__device__ inline void cell_offset(const Product& p, unsigned f, int (&offset)[3]) {
  offset[2] = static_cast<int>(p.filter2.split(f)) * p.reach.step[2];
  offset[1] = static_cast<int>(p.filter1.split(f)) * p.reach.step[1];
  offset[0] = static_cast<int>(f) * p.reach.step[0];
}

/// back: columns of the filter are adjacent, products of one column are not.
template <class T, bool back>
__global__ void __launch_bounds__(block) product_kernel(Finish<T> finish, const T* x, const T* w, Product p) {
  using A = Accumulator<T>;
  __shared__ Operands<A> operands;
  const int thread = static_cast<int>(threadIdx.x);
  unsigned part = blockIdx.x;
  const int column0 = static_cast<int>(p.column_tiles.split(part)) * tile;
  const int group = static_cast<int>(p.groups.split(part));
  const int place0 = static_cast<int>(part) * tile, columns = static_cast<int>(p.columns.by());
  const auto group_channels = static_cast<int>(p.group_channels.by());

  // This thread fetches product `mine` of each 16 of the rows [first, first + 16, ...).
  const int mine = thread % depth, first = thread / depth;
  Start start[each_side];
#pragma unroll
  for (int q = 0; q < each_side; ++q) {
    const int place = place0 + first + q * side;
    start[q] = start_of(p.reach, static_cast<unsigned>(min(place, p.places - 1)));
    start[q].image += group * group_channels;
    if (place >= p.places) start[q].at[0] = -most_places;
  }
  A a[each_side], b[each_side];
  const auto fetch = [&](int k0) {
    auto cell = static_cast<unsigned>(k0 + mine);
    const bool there = k0 + mine < p.products;
    const int channel = static_cast<int>(p.group_channels.split(cell));
    int offset[3];
    cell_offset(p, cell, offset);
#pragma unroll
    for (int q = 0; q < each_side; ++q) {
      const int at = there ? offset_at(p.reach, back && p.strided, start[q], offset) : -1;
      a[q] = at >= 0 ? wide(x[start[q].image + at + channel]) : A(0);
    }
#pragma unroll
    for (int q = 0; q < each_side; ++q) {
      const int column = column0 + (back ? thread % tile : first + q * side);
      const int k = k0 + (back ? thread / tile + q * (block / tile) : mine);
      auto w_cell = static_cast<unsigned>(k);
      const int w_channel = static_cast<int>(p.group_channels.split(w_cell));
      const int at =
          group * p.w_group + column * p.w_column + static_cast<int>(w_cell) * p.w_cell + w_channel * p.w_channel;
      b[q] = k < p.products && column < columns ? wide(w[at]) : A(0);
    }
  };
  Sums<A> sums;
  fetch(0);
  for (int k0 = 0, turn = 0; k0 < p.products; k0 += depth, turn ^= 1) {
#pragma unroll
    for (int q = 0; q < each_side; ++q) {
      operands.a[turn][mine][first + q * side] = a[q];
      if (back)
        operands.b[turn][thread / tile + q * (block / tile)][thread % tile] = b[q];
      else
        operands.b[turn][mine][first + q * side] = b[q];
    }
    __syncthreads();
    if (k0 + depth < p.products) fetch(k0 + depth);
    sums.multiply(operands.a[turn], operands.b[turn]);
    if ((k0 + depth) % fold_every == 0) sums.fold();
  }
  // Through shared memory, in which a warp then finds columns side by side.
  static_assert(sizeof operands == sizeof(A) * tile * tile_pitch);
  auto* results = reinterpret_cast<A(*)[tile_pitch]>(&operands);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < each_side; ++i)
#pragma unroll
    for (int j = 0; j < each_side; ++j) results[sums.row() + i][sums.column() + j] = sums.get(i, j);
  __syncthreads();
#pragma unroll 1
  for (int at = thread; at < tile * tile; at += block) {
    const int place = place0 + at / tile, column = column0 + at % tile, channel = group * columns + column;
    if (place < p.places && column < columns)
      finish(results[at / tile][at % tile], static_cast<Index>(place) * p.channels + channel, channel);
  }
}

/// For groups of few channels, which would leave most of a tile empty: one thread per result.
template <class T>
__global__ void plain_kernel(Finish<T> finish, const T* x, const T* w, Product p, int cells) {
  using A = Accumulator<T>;
  const int group_channels = static_cast<int>(p.group_channels.by());
  for (Index i = first_item(); i < static_cast<Index>(p.places) * p.channels; i += item_step()) {
    const Index place = i / p.channels;
    const auto channel = static_cast<unsigned>(i - place * p.channels);
    unsigned group = channel;
    const int column = static_cast<int>(p.columns.split(group));
    const Start start = start_of(p.reach, static_cast<unsigned>(place));
    const T* from = x + start.image + static_cast<int>(group) * group_channels;
    const T* filter = w + static_cast<int>(group) * p.w_group + column * p.w_column;
    A total = 0;
    for (int f = 0; f < cells; ++f) {
      int offset[3];
      cell_offset(p, static_cast<unsigned>(f), offset);
      const int at = offset_at(p.reach, p.strided, start, offset);
      A sum = 0;
      if (at >= 0)
        for (int c = 0; c < group_channels; ++c)
          sum += wide(from[at + c]) * wide(filter[f * p.w_cell + c * p.w_channel]);
      total += sum;
    }
    finish(total, i, static_cast<int>(channel));
  }
}

Product product_of(const ConvShape& s, bool back) {
  Product p{};
  const int filter = static_cast<int>(s.filter_cells() * s.group_in());
  p.reach = back ? reach_back(s) : reach_of(s);
  p.filter1 = Divisor(s.filter[1]);
  p.filter2 = Divisor(s.filter[2]);
  p.group_channels = Divisor(back ? s.group_out() : s.group_in());
  p.products = static_cast<int>(s.filter_cells() * (back ? s.group_out() : s.group_in()));
  const Index columns = back ? s.group_in() : s.group_out();
  p.columns = Divisor(columns);
  p.column_tiles = Divisor(ceil_div(columns, tile));
  p.groups = Divisor(s.options.groups);
  p.channels = static_cast<int>(back ? s.c_in : s.c_out);
  p.w_group = static_cast<int>(s.group_out()) * filter;
  p.w_cell = static_cast<int>(s.group_in());
  p.w_column = back ? 1 : filter;
  p.w_channel = back ? filter : 1;
  p.strided = back && s.options.stride != Extents{1, 1, 1};
  return p;
}

template <class T, bool back>
void multiply(const On& on, Finish<T> finish, const T* x, const T* w, const ConvShape& s) {
  Product p = product_of(s, back);
  const Index columns = p.columns.by(), cells = back ? s.in_cells() : s.out_cells();
  const Index at_once = images_at_once(s, on.op());
  for (Index first = 0; first < s.n; first += at_once) {
    const Index places = std::min(at_once, s.n - first) * cells, skip = first * cells * p.channels;
    p.places = static_cast<int>(places);
    Finish<T> to = finish;
    to.y += skip;
    to.residual = finish.residual ? finish.residual + skip : nullptr;
    const T* from = x + first * p.reach.image;
    if (s.options.groups > 1 && columns <= 8) {
      run(on, blocks_for(on, places * p.channels), block, plain_kernel<T>, to, from, w, p,
          static_cast<int>(s.filter_cells()));
    } else {
      const Index tiles = ceil_div(places, tile) * ceil_div(columns, tile) * s.options.groups;
      check(tiles <= std::numeric_limits<std::int32_t>::max(), on.op(), "{} tiles are too many", tiles);
      run(on, dim3(static_cast<unsigned>(tiles)), block, product_kernel<T, back>, to, from, w, p);
    }
  }
}

}  // namespace

void conv_direct(const On& on, View y, View x, View w, View bias, View residual, const ConvShape& s, bool relu) {
  if (y.numel() == 0) return;
  dispatch_device_float(y.dtype, on.op(), [&](auto t) {
    using T = decltype(t);
    const Finish<T> finish{y.as<T>(), bias.data, bias.dtype == DType::f32, residual.as<const T>(), relu};
    multiply<T, false>(on, finish, x.as<const T>(), w.as<const T>(), s);
  });
}

void conv_direct_backward_input(const On& on, View dx, View dy, View w, const ConvShape& s, bool accumulate) {
  if (dx.numel() == 0) return;
  dispatch_device_float(dx.dtype, on.op(), [&](auto t) {
    using T = decltype(t);
    const Finish<T> finish{dx.as<T>(), nullptr, false, accumulate ? dx.as<const T>() : nullptr, false};
    multiply<T, true>(on, finish, dy.as<const T>(), w.as<const T>(), s);
  });
}

}  // namespace trireme::gpu
