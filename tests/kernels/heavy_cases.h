// Random poolings and convolutions of few numbers: every option, 1 to 3 axes.
#pragma once
#include "kernels/contracts/pool.h"
#include "tests/kernels/arrays.h"

namespace trireme::test {

struct PoolCase {
  int dims;
  Index n, channels;
  PoolOptions o;
  Extents in{1, 1, 1}, out{1, 1, 1};
  Shape x{0}, y{0};
  Index cells = 1;  // of a window
};

inline PoolCase random_pool(int dims, bool dilated) {
  PoolCase c{dims, pick(1, 3), pick(1, 20), {}};
  c.x = {c.n};
  c.y = {c.n};
  for (int d = 0; d < dims; ++d) {
    auto i = static_cast<std::size_t>(d);
    c.o.window[i] = pick(1, 3);
    c.o.stride[i] = pick(1, 3);
    c.o.dilation[i] = dilated ? pick(1, 2) : 1;
    Index reach = (c.o.window[i] - 1) * c.o.dilation[i] + 1;
    c.o.pad_begin[i] = pick(0, reach - 1);
    c.o.pad_end[i] = pick(0, reach - 1);
    c.in[i] = reach + pick(0, 5);
    c.out[i] = (c.in[i] + c.o.pad_begin[i] + c.o.pad_end[i] - reach) / c.o.stride[i] + 1;
    c.x.push_back(c.in[i]);
    c.y.push_back(c.out[i]);
    c.cells *= c.o.window[i];
  }
  c.x.push_back(c.channels);
  c.y.push_back(c.channels);
  return c;
}

struct ConvCase {
  int dims;
  Index n, c_in, c_out;
  Extents in, filter;
  ConvOptions o;
  Extents out{1, 1, 1};
  Shape x{0}, w{0}, y{0};
};

/// Computes out, x, w and y from the other members.
inline void set_shapes(ConvCase& c) {
  c.x = {c.n};
  c.w = {c.c_out};
  c.y = {c.n};
  for (std::size_t i = 0; i < static_cast<std::size_t>(c.dims); ++i) {
    const Index reach = (c.filter[i] - 1) * c.o.dilation[i] + 1;
    c.out[i] = (c.in[i] + c.o.pad_begin[i] + c.o.pad_end[i] - reach) / c.o.stride[i] + 1;
    c.x.push_back(c.in[i]);
    c.w.push_back(c.filter[i]);
    c.y.push_back(c.out[i]);
  }
  c.x.push_back(c.c_in);
  c.w.push_back(c.c_in / c.o.groups);
  c.y.push_back(c.c_out);
}

inline ConvCase random_conv(int dims) {
  ConvCase c{dims, pick(1, 3), 0, 0, {1, 1, 1}, {1, 1, 1}, {}};
  c.o.groups = pick(1, 3);
  bool depthwise = pick(0, 3) == 0;
  if (depthwise) c.o.groups = 2 * pick(1, 4);
  c.c_in = c.o.groups * (depthwise ? 1 : pick(1, 4));
  c.c_out = c.o.groups * (depthwise ? 1 : pick(1, 4));
  if (pick(0, 4) == 0) {
    c.o.groups = 1;
    c.c_in = 1;
    c.c_out = 16 * pick(1, 2);
  }
  for (int d = 0; d < dims; ++d) {
    auto i = static_cast<std::size_t>(d);
    c.filter[i] = pick(1, 3);
    c.o.stride[i] = pick(1, 2);
    c.o.dilation[i] = pick(1, 2);
    c.o.pad_begin[i] = pick(0, 2);
    c.o.pad_end[i] = pick(0, 2);
    Index reach = (c.filter[i] - 1) * c.o.dilation[i] + 1;
    c.in[i] = std::max<Index>(1, reach + pick(0, 4) - c.o.pad_begin[i] - c.o.pad_end[i]);
  }
  set_shapes(c);
  return c;
}

}  // namespace trireme::test
