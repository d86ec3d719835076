#include <cstring>
#include <utility>

#include "kernels/cpu/conv/conv_dnnl.h"
#include "kernels/cpu/conv/conv_faults.h"
#include "kernels/cpu/packed_product.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector.h"

namespace trireme::onednn {
namespace {

struct BackwardInputPlan {
  Prepared pack, run;
  std::size_t packed = 0;
};

/// to [O, cells, I] = from with its cells in reverse order.
void reverse_cells(std::byte* to, const View& w, Index cells) {
  const Index cell = w.shape[-1] * size_of(w.dtype);
  parallel_for(w.shape[0], cells * w.shape[-1], [=, from = w.as<std::byte>()](Index begin, Index end) {
    for (Index o = begin; o < end; ++o)
      for (Index k = 0; k < cells; ++k)
        std::memcpy(to + (o * cells + k) * cell, from + (o * cells + cells - 1 - k) * cell,
                    static_cast<std::size_t>(cell));
  });
}

/// dx = zeros, with rows of `compact` at the cells that a 1 x 1 filter reads; accumulate: adds them there.
template <class T>
void spread(const View& dx, const T* compact, const ConvShape& s, bool accumulate) {
  using A = Accumulator<T>;
  T* to = dx.as<T>();
  const Extents stride = s.options.stride;
  parallel_for(s.n * s.in[0] * s.in[1], s.in[2] * s.c_in, [=, &s](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Index n = row / (s.in[0] * s.in[1]), i0 = row / s.in[1] % s.in[0], i1 = row % s.in[1];
      T* line = to + row * s.in[2] * s.c_in;
      if (!accumulate) std::fill_n(line, s.in[2] * s.c_in, T{});
      if (i0 % stride[0] != 0 || i1 % stride[1] != 0) continue;
      const T* from = compact + ((n * s.out[0] + i0 / stride[0]) * s.out[1] + i1 / stride[1]) * s.out[2] * s.c_in;
      for (Index o = 0; o < s.out[2]; ++o, from += s.c_in) {
        T* cell = line + o * stride[2] * s.c_in;
        for (Index c = 0; c < s.c_in; ++c)
          cell[c] = accumulate ? static_cast<T>(static_cast<A>(cell[c]) + static_cast<A>(from[c])) : from[c];
      }
    }
  });
}

BackwardInputPlan plan_as_forward(const View& dx, const View& dy, const View& w, const ConvShape& s, bool sum) {
  const ConvShape forward = as_forward_conv(s);
  const Geometry g(forward);
  const auto pd = describe_forward(g, dy.dtype, dx.dtype, View{}, false, sum);
  avoid_faults(pd, forward);
  // Our filter is O, cells, I. The filter of the forward form has output channels I and input channels O.
  Dims dims{s.c_in, s.c_out};
  std::vector<int> order{s.dims + 1, 0};
  for (int d = 0; d < s.dims; ++d) {
    dims.push_back(s.filter[static_cast<std::size_t>(d)]);
    order.push_back(d + 1);
  }
  return {
      reorder(dense(dims, order, w.dtype), pd.weights_desc()),
      Prepared(dnnl::convolution_forward(pd),
               {{DNNL_ARG_SRC, pd.src_desc()}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, pd.dst_desc()}},
               pd.scratchpad_desc()),
      pd.weights_desc().get_size()};
}

BackwardInputPlan plan_backward(const View& dx, const View& dy, const View& w, const ConvShape& s) {
  const Geometry g(s);
  auto hint = describe_forward(g, dx.dtype, dy.dtype, View{}, false);
  auto pd = describe_backward<dnnl::convolution_backward_data>(attributes(), hint, dnnl::algorithm::convolution_direct,
                                                               g.x(dx.dtype), any(g.w_dims, dy.dtype), g.y(dy.dtype),
                                                               g.stride, g.dilation, g.pad_begin, g.pad_end);
  avoid_faults(pd, s);
  std::vector<Prepared::Arg> args{{DNNL_ARG_DIFF_DST, pd.diff_dst_desc()},
                                  {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                                  {DNNL_ARG_DIFF_SRC, pd.diff_src_desc()}};
  return {reorder(g.w(w.dtype), pd.weights_desc()),
          Prepared(dnnl::convolution_backward_data(pd), args, pd.scratchpad_desc()), pd.weights_desc().get_size()};
}
}  // namespace

bool conv_backward_input(const View& dx, const View& dy, const View& w, const ConvShape& s, bool accumulate) {
  // oneDNN's forward code is faster than its backward code.
  const bool as_forward = dgrad_is_forward(s) && !forward_needs_padding(as_forward_conv(s)),
             sparse = as_forward && s.in != s.out && s.filter_cells() == 1;
  // The primitive itself adds. Below AVX-512 oneDNN starts its sums from dx, which rounds differently from adding to
  // it: a gradient's bits would depend on whether two layers that read a tensor are on one device.
  const bool sum =
      accumulate && as_forward && !sparse && vector_level() == VectorLevel::v4 && may_sum(as_forward_conv(s));
  auto& plan = planned<BackwardInputPlan>(1, {&dy, &dx, &w}, s.options, sum, [&] {
    return as_forward ? plan_as_forward(dx, dy, w, s, sum) : plan_backward(dx, dy, w, s);
  });
  if (!plan.run) return false;
  const bool reverse = as_forward && s.filter_cells() > 1, apart = accumulate && !sparse && !sum;
  const Index part_numbers = sparse ? s.n * s.out_cells() * s.c_in : apart ? dx.numel() : 0;
  Scratch packed(plan.pack ? plan.packed : 0), reversed(reverse ? static_cast<std::size_t>(w.bytes()) : 0),
      part(static_cast<std::size_t>(part_numbers * size_of(dx.dtype)));
  const void* filter = w.data;
  if (reverse) {
    reverse_cells(reversed.as<std::byte>(), w, s.filter_cells());
    filter = reversed.data();
  }
  if (plan.pack) {
    plan.pack({filter, packed.data()});
    filter = packed.data();
  }
  plan.run({dy.data, filter, part_numbers > 0 ? part.data() : dx.data});
  if (sparse)
    dispatch_float(dx.dtype, "conv_backward_input", [&]<class T>(T) { spread(dx, part.as<T>(), s, accumulate); });
  if (apart) {
    View added = dx;
    added.data = part.data();
    add_residual(dx, added, false);
  }
  return true;
}

namespace {
struct BackwardWeightPlan {
  Prepared run, unpack;
  std::size_t packed = 0, bias = 0;
};

}  // namespace

namespace {
/// A filter's gradient is dy^T columns, over the rows of all samples; for a 1 x 1 filter, x itself is the columns. With
/// few rows and many channels, oneDNN's matrix product is faster than its convolution, even including the time to make
/// the columns.
bool is_product(const View& dw, const View& x, const ConvShape& s) {
  constexpr Index most_rows = 8192, most_columns = Index{1} << 23, least_filter = Index{1} << 17;
  const Index rows = s.n * s.out_cells(), columns = s.filter_cells() * s.c_in;
  return dw.dtype == DType::f32 && x.dtype == DType::f32 && s.options.groups == 1 && rows <= most_rows &&
         columns * s.c_out >= least_filter && (s.filter_cells() == 1 || rows * columns <= most_columns);
}

}  // namespace

void make_columns(std::byte* to, const View& x, const ConvShape& s) {
  const Index rows = s.n * s.out_cells(), bytes = s.c_in * size_of(x.dtype), width = s.filter_cells() * bytes;
  parallel_for(rows, s.filter_cells() * s.c_in, [&, from = x.as<std::byte>()](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Index n = row / s.out_cells(), o0 = row / (s.out[1] * s.out[2]) % s.out[0], o1 = row / s.out[2] % s.out[1],
                  o2 = row % s.out[2];
      std::byte* cell = to + row * width;
      for (Index f0 = 0; f0 < s.filter[0]; ++f0)
        for (Index f1 = 0; f1 < s.filter[1]; ++f1)
          for (Index f2 = 0; f2 < s.filter[2]; ++f2, cell += bytes) {
            const Index i0 = s.at(0, o0, f0), i1 = s.at(1, o1, f1), i2 = s.at(2, o2, f2);
            const bool inside = i0 >= 0 && i0 < s.in[0] && i1 >= 0 && i1 < s.in[1] && i2 >= 0 && i2 < s.in[2];
            if (inside)
              std::copy_n(from + (((n * s.in[0] + i0) * s.in[1] + i1) * s.in[2] + i2) * bytes, bytes, cell);
            else
              std::fill_n(cell, bytes, std::byte{});
          }
    }
  });
}

namespace {
/// to [cols, rows] (+)= from [rows, cols] transposed, in tiles that stay in cache.
void transpose(float* to, const float* from, Index rows, Index cols, bool accumulate) {
  constexpr Index tile = 16;
  parallel_for((cols + tile - 1) / tile, tile * rows, [=](Index begin, Index end) {
    for (Index c0 = begin * tile; c0 < std::min(end * tile, cols); c0 += tile)
      for (Index r0 = 0; r0 < rows; r0 += tile)
        for (Index c = c0; c < std::min(c0 + tile, cols); ++c)
          for (Index r = r0; r < std::min(r0 + tile, rows); ++r)
            to[c * rows + r] = from[r * cols + c] + (accumulate ? to[c * rows + r] : 0.f);
  });
}

void product_backward_weight(const View& dw, const View& x, const View& dy, const ConvShape& s, bool accumulate) {
  const Index rows = s.n * s.out_cells(), width = s.filter_cells() * s.c_in;
  const bool as_is = s.filter_cells() == 1 && s.in == s.out;  // a padded or strided one is not
  Scratch columns(as_is ? 0 : static_cast<std::size_t>(rows * width) * sizeof(float));
  if (!as_is) make_columns(columns.as<std::byte>(), x, s);
  const float *from = as_is ? x.as<float>() : columns.as<float>(), *seed = dy.as<float>();
  if (vector_level() < VectorLevel::v4) {
    View right = x;
    if (!as_is) right.data = columns.data();
    const MatMulJob job{.m = s.c_out, .n = width, .k = rows, .transpose_a = true, .accumulate = accumulate};
    return packed_product(dw, dy, right, View{}, job);
  }
  if (width >= s.c_out) return sgemm(dw.as<float>(), true, seed, from, s.c_out, width, rows, accumulate ? 1.f : 0.f);
  Scratch transposed(static_cast<std::size_t>(dw.bytes()));  // [I, O]: the product is faster when its result is wide
  sgemm(transposed.as<float>(), true, from, seed, width, s.c_out, rows, 0.f);
  transpose(dw.as<float>(), transposed.as<float>(), width, s.c_out, accumulate);
}
}  // namespace

namespace {
/// s with the padding of its outer two axes as real cells of the input.
ConvShape with_outer_padding(const ConvShape& s) {
  ConvShape wide = s;
  for (std::size_t d = 0; d < 2; ++d) {
    wide.in[d] += std::exchange(wide.options.pad_begin[d], 0);
    wide.in[d] += std::exchange(wide.options.pad_end[d], 0);
  }
  return wide;
}
}  // namespace

bool conv_backward_weight(const View& dw, const View& dbias, const View& x, const View& dy, const ConvShape& s,
                          bool accumulate) {
  if (gradient_needs_padding(s)) {
    const ConvShape wide = with_outer_padding(s);
    const Padded amid(x, s, wide);
    return conv_backward_weight(dw, dbias, amid.view, dy, wide, accumulate);
  }
  if (gradient_needs_dense(s)) {
    ConvShape dense = s;
    dense.in = s.out;
    dense.options.stride = {1, 1, 1};
    dense.options.pad_begin = dense.options.pad_end = {0, 0, 0};
    View read = x;
    for (int d = 0; d < s.dims; ++d) read.shape[d + 1] = s.out[static_cast<std::size_t>(d)];
    Scratch block(static_cast<std::size_t>(read.bytes()));
    read.data = block.data();
    make_columns(block.as<std::byte>(), x, s);
    return conv_backward_weight(dw, dbias, read, dy, dense, accumulate);
  }
  if (!dbias && is_product(dw, x, s)) {
    product_backward_weight(dw, x, dy, s, accumulate);
    return true;
  }
  if (gradient_needs_f32(s, x.dtype)) return false;
  int flags = accumulate + 2 * bool(dbias);
  auto& plan = planned<BackwardWeightPlan>(2, {&x, &dy, &dw}, s.options, flags, [&] {
    Geometry g(s);
    auto hint = describe_forward(g, x.dtype, dy.dtype, View{}, false);
    auto algorithm = dnnl::algorithm::convolution_direct;
    Desc like = any(g.w_dims, DType::f32);
    auto pd = dbias ? describe_backward<dnnl::convolution_backward_weights>(
                          attributes(), hint, algorithm, g.x(x.dtype), like, g.bias(DType::f32), g.y(dy.dtype),
                          g.stride, g.dilation, g.pad_begin, g.pad_end)
                    : describe_backward<dnnl::convolution_backward_weights>(attributes(), hint, algorithm, g.x(x.dtype),
                                                                            like, g.y(dy.dtype), g.stride, g.dilation,
                                                                            g.pad_begin, g.pad_end);
    std::vector<Prepared::Arg> args{{DNNL_ARG_SRC, pd.src_desc()},
                                    {DNNL_ARG_DIFF_DST, pd.diff_dst_desc()},
                                    {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}};
    if (dbias) args.push_back({DNNL_ARG_DIFF_BIAS, pd.diff_bias_desc()});
    // oneDNN (2.6 and 3.2) in bf16 expects zeros in scratch memory if a filter cell only reads padding.
    bool clear = x.dtype == DType::bf16;
    return BackwardWeightPlan{Prepared(dnnl::convolution_backward_weights(pd), args, pd.scratchpad_desc(), clear),
                              reorder(pd.diff_weights_desc(), g.w(DType::f32), accumulate),
                              pd.diff_weights_desc().get_size(), static_cast<std::size_t>(s.c_out) * sizeof(float)};
  });
  if (!plan.run) return false;
  Scratch packed(plan.unpack ? plan.packed : 0), bias(dbias && accumulate ? plan.bias : 0);
  const void* filter = plan.unpack ? packed.data() : dw.data;
  const void* bias_to = dbias && accumulate ? bias.data() : dbias.data;
  if (dbias)
    plan.run({x.data, dy.data, filter, bias_to});
  else
    plan.run({x.data, dy.data, filter});
  if (plan.unpack) plan.unpack({packed.data(), dw.data});
  for (Index c = 0; dbias && accumulate && c < s.c_out; ++c) dbias.as<float>()[c] += bias.as<float>()[c];
  return true;
}

}  // namespace trireme::onednn
