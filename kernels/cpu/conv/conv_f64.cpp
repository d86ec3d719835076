// Convolutions in f64 as products of matrices: the input patches of one sample and group become rows of a
// matrix (im2col), whose product with the filter is the output. Serves gradient checks; samples are divided
// among threads.
#include <cstring>

#include "kernels/cpu/conv/conv_impl.h"
#include "kernels/cpu/dnnl.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/product.h"

namespace trireme {
namespace {

/// Calls f(patch, cell) for each filter cell of each output position: patch = its place in the im2col matrix,
/// cell = its input position (-1 in the padding).
template <class F>
void for_patches(const ConvShape& s, F&& f) {
  Index patch = 0;
  for (Index o0 = 0; o0 < s.out[0]; ++o0)
    for (Index o1 = 0; o1 < s.out[1]; ++o1)
      for (Index o2 = 0; o2 < s.out[2]; ++o2)
        for (Index f0 = 0; f0 < s.filter[0]; ++f0)
          for (Index f1 = 0; f1 < s.filter[1]; ++f1)
            for (Index f2 = 0; f2 < s.filter[2]; ++f2) {
              Index i0 = s.at(0, o0, f0), i1 = s.at(1, o1, f1), i2 = s.at(2, o2, f2);
              bool inside = i0 >= 0 && i0 < s.in[0] && i1 >= 0 && i1 < s.in[1] && i2 >= 0 && i2 < s.in[2];
              f(patch++, inside ? (i0 * s.in[1] + i1) * s.in[2] + i2 : -1);
            }
}

/// columns [out_cells, filter_cells * group_in] = patches of group g of sample x.
void gather(double* columns, const double* x, Index g, const ConvShape& s) {
  Index c = s.group_in();
  for_patches(s, [&](Index patch, Index cell) {
    double* to = columns + patch * c;
    if (cell < 0)
      std::fill_n(to, c, 0.0);
    else
      std::copy_n(x + cell * s.c_in + g * c, c, to);
  });
}

/// dx += columns, the inverse of gather.
void scatter(double* dx, const double* columns, Index g, const ConvShape& s) {
  Index c = s.group_in();
  for_patches(s, [&](Index patch, Index cell) {
    if (cell < 0) return;
    double* to = dx + cell * s.c_in + g * c;
    for (Index i = 0; i < c; ++i) to[i] += columns[patch * c + i];
  });
}

struct Sizes {
  Index patch, columns, work;  // numbers per patch, per im2col matrix; operations per sample
  explicit Sizes(const ConvShape& s)
      : patch(s.filter_cells() * s.group_in()), columns(s.out_cells() * patch), work(columns * s.c_out) {}
  std::size_t bytes() const { return static_cast<std::size_t>(columns) * sizeof(double); }
};

}  // namespace

void conv_f64(View y, View x, View w, View bias, const ConvShape& s) {
  Sizes size(s);
  Index co = s.group_out();
  parallel_for(s.n, size.work, [&](Index begin, Index end) {
    onednn::Scratch columns(size.bytes());
    for (Index n = begin; n < end; ++n) {
      double* to = y.as<double>() + n * s.out_cells() * s.c_out;
      for (Index g = 0; g < s.options.groups; ++g) {
        gather(columns.as<double>(), x.as<double>() + n * s.in_cells() * s.c_in, g, s);
        product(to + g * co, s.c_out, {columns.as<double>(), size.patch},
                {w.as<double>() + g * co * size.patch, size.patch, true}, s.out_cells(), co, size.patch, false);
      }
      for (Index i = 0; i < s.out_cells() * s.c_out; ++i) {
        if (bias) to[i] += bias.as<double>()[i % s.c_out];
        if (s.options.relu && to[i] < 0) to[i] = 0;
      }
    }
  });
}

void conv_backward_input_f64(View dx, View dy, View w, const ConvShape& s) {
  Sizes size(s);
  Index co = s.group_out();
  parallel_for(s.n, size.work, [&](Index begin, Index end) {
    onednn::Scratch columns(size.bytes());
    for (Index n = begin; n < end; ++n) {
      double* to = dx.as<double>() + n * s.in_cells() * s.c_in;
      std::fill_n(to, s.in_cells() * s.c_in, 0.0);
      for (Index g = 0; g < s.options.groups; ++g) {
        product(columns.as<double>(), size.patch, {dy.as<double>() + n * s.out_cells() * s.c_out + g * co, s.c_out},
                {w.as<double>() + g * co * size.patch, size.patch}, s.out_cells(), size.patch, co, false);
        scatter(to, columns.as<double>(), g, s);
      }
    }
  });
}

void conv_backward_weight_f64(View dw, View x, View dy, const ConvShape& s, bool accumulate) {
  Sizes size(s);
  Index co = s.group_out(), count = dw.numel();
  // One partial gradient per chunk of samples, added in order: repeatable for a given number of threads.
  std::vector<std::vector<double>> partial(static_cast<std::size_t>(threads()));
  parallel_for(s.n, size.work, [&](Index begin, Index end, int chunk) {
    std::vector<double> total(static_cast<std::size_t>(count), 0.0);
    onednn::Scratch columns(size.bytes());
    for (Index n = begin; n < end; ++n)
      for (Index g = 0; g < s.options.groups; ++g) {
        gather(columns.as<double>(), x.as<double>() + n * s.in_cells() * s.c_in, g, s);
        product(total.data() + g * co * size.patch, size.patch,
                {dy.as<double>() + n * s.out_cells() * s.c_out + g * co, s.c_out, true},
                {columns.as<double>(), size.patch}, co, size.patch, s.out_cells(), true);
      }
    partial[static_cast<std::size_t>(chunk)] = std::move(total);
  });
  double* out = dw.as<double>();
  if (!accumulate) std::fill_n(out, count, 0.0);
  for (const auto& p : partial)
    for (std::size_t i = 0; i < p.size(); ++i) out[i] += p[i];
}

}  // namespace trireme
