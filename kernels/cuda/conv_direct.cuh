// Parts that our own convolutions share: which positions of one image a position of another reads, and tiles of
// products.
#pragma once
#include <limits>

#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/plans/conv_shape.h"

namespace trireme::gpu {

// A block of 16 x 16 threads makes a tile of 64 x 64 sums of products, 16 products of each at a time.
constexpr int tile = 64, depth = 16, side = 16, each_side = tile / side;
constexpr int tile_pitch = tile + 4;  ///< so that threads that store a column use different banks
/// Additions in a row in float before the sum moves on: errors grow with the length of a run.
constexpr int fold_every = 256;

/// How places of one image, written or summed over, read from the other one.
struct Reach {
  Divisor cells, cell1, cell2;          ///< places: of one image, and along axes 1 and 2
  int cell_step[3], shift[3], step[3];  ///< place p and filter cell f read p * cell_step + shift + f * step
  int extent[3];                        ///< of the image read
  Divisor stride[3];                    ///< only multiples of it are places of the image read, at their quotients
  int channels;                         ///< of the image read, all groups
  Index image;                          ///< elements of one image read
};

/// A place: where its reading begins.
struct Start {
  int at[3];
  Index image;  ///< first element of the image read
};

__device__ inline Start start_of(const Reach& r, unsigned place) {
  Start s;
  unsigned cell = r.cells.split(place);
  s.image = place * r.image;
  s.at[2] = static_cast<int>(r.cell2.split(cell)) * r.cell_step[2] + r.shift[2];
  s.at[1] = static_cast<int>(r.cell1.split(cell)) * r.cell_step[1] + r.shift[1];
  s.at[0] = static_cast<int>(cell) * r.cell_step[0] + r.shift[0];
  return s;
}

/// Element of the image read, or -1 outside of it. strided: Reach::stride counts. offset: of the filter cell, along
/// each axis.
__device__ inline int offset_at(const Reach& r, bool strided, const Start& s, const int (&offset)[3]) {
  int at[3];
  bool inside = true;
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    at[d] = s.at[d] + offset[d];
    if (strided) {
      auto q = static_cast<unsigned>(max(at[d], 0));
      inside = inside && at[d] >= 0 && r.stride[d].split(q) == 0;
      at[d] = static_cast<int>(q);
    }
    inside = inside && static_cast<unsigned>(at[d]) < static_cast<unsigned>(r.extent[d]);
  }
  return inside ? ((at[0] * r.extent[1] + at[1]) * r.extent[2] + at[2]) * r.channels : -1;
}

/// Two tiles of operands in turn, so that one is filled while the other is multiplied.
template <class A>
struct Operands {
  alignas(32) A a[2][depth][tile_pitch], b[2][depth][tile_pitch];
};

/// The sums of one thread: rows [4 ty, 4 ty + 4), columns [4 tx, 4 tx + 4) of the tile.
template <class A>
struct Sums {
  static constexpr bool folds = std::is_same_v<A, float>;
  A sum[each_side][each_side] = {}, total[folds ? each_side : 1][each_side] = {};

  __device__ static int row() { return static_cast<int>(threadIdx.x) / side * each_side; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % side * each_side; }

  __device__ void multiply(const A (&a)[depth][tile_pitch], const A (&b)[depth][tile_pitch]) {
#pragma unroll
    for (int k = 0; k < depth; ++k) {
      const auto left = load<each_side>(&a[k][row()]);
      const auto right = load<each_side>(&b[k][column()]);
#pragma unroll
      for (int i = 0; i < each_side; ++i)
#pragma unroll
        for (int j = 0; j < each_side; ++j) sum[i][j] += left.v[i] * right.v[j];
    }
  }
  __device__ void fold() {
    if constexpr (folds)
#pragma unroll
      for (int i = 0; i < each_side; ++i)
#pragma unroll
        for (int j = 0; j < each_side; ++j) {
          total[i][j] += sum[i][j];
          sum[i][j] = 0;
        }
  }
  __device__ A get(int i, int j) const {
    if constexpr (folds) return total[i][j] + sum[i][j];
    return sum[i][j];
  }
};

/// Places and elements of one image are counted in 32 bits, and so are the places of one launch.
constexpr Index most_places = std::numeric_limits<std::int32_t>::max() / 2;

/// For outputs that read the input.
Reach reach_of(const ConvShape&);
/// For input cells that read the gradients of outputs.
Reach reach_back(const ConvShape&);
/// Images that one launch takes. Throws Error when one alone is too large.
Index images_at_once(const ConvShape&, std::string_view op);

}  // namespace trireme::gpu
