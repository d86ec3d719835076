// Convolution on a CUDA device beside the CPU's f64, whichever kernels are registered for it.
#pragma once
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/heavy_cases.h"

namespace trireme::test {

/// Every option on small random blocks, aligned or not, in all types. whole_sums: a gradient in f32 of narrower
/// operands is not rounded to their type on the way.
inline void check_convolutions(bool whole_sums) {
  for (DType type : device_types)
    for (int i = 0; i < 36; ++i) {
      ConvCase c = random_conv(1 + i % 3);
      if (i % 4 == 3) {  // more channels than one tile has
        const Index in = pick(1, 90), out = pick(1, 90);
        c.c_in = in * c.o.groups;
        c.c_out = out * c.o.groups;
        c.x[-1] = c.c_in;
        c.w[0] = c.c_out;
        c.w[-1] = in;
        c.y[-1] = c.c_out;
      }
      const bool whole = i % 2 == 0, accumulate = pick(0, 1), with_bias = pick(0, 1), with_residual = pick(0, 1);
      const bool own_block = pick(0, 1), narrow = is_half(type);
      c.o.relu = pick(0, 1);
      INFO("x " << to_string(c.x) << " w " << to_string(c.w) << " y " << to_string(c.y) << " groups " << c.o.groups
                << " " << name_of(type));
      const DType bias_type = narrow && pick(0, 1) ? DType::f32 : type,
                  dw_type = narrow && pick(0, 1) ? DType::f32 : type;
      Array x = filled(c.x, type, whole), w = filled(c.w, type, whole), dy = filled(c.y, type, whole);
      Array bias = with_bias ? filled({c.c_out}, bias_type, whole) : Array(), y(c.y, type), dx = filled(c.x, type);
      Array residual = filled(c.y, type, whole), dw = filled(c.w, dw_type),
            db = with_bias ? filled({c.c_out}, dw_type) : Array();
      Array x64 = as_f64(x), w64 = as_f64(w), dy64 = as_f64(dy), bias64 = as_f64(bias), y64(c.y, DType::f64);
      Array residual64 = as_f64(residual), dx64 = as_f64(dx), dw64 = as_f64(dw), db64 = as_f64(db);
      run<kernel::Conv>(y64.view(), x64.view(), w64.view(), bias64.view(), with_residual ? residual64.view() : View{},
                        c.o);
      run<kernel::ConvBackwardInput>(dx64.view(), dy64.view(), w64.view(), c.o, accumulate);
      run<kernel::ConvBackwardWeight>(dw64.view(), db64.view(), x64.view(), dy64.view(), c.o, accumulate);

      const Index shift = pick(0, 1);
      const DeviceArray x_there(x, shift), w_there(w, 0), bias_there(bias, shift), y_there(y, shift),
          residual_there(residual, shift);
      const bool in_place = with_residual && own_block;
      Kernel<kernel::Conv>::on(DeviceKind::cuda)(in_place ? residual_there.view() : y_there.view(), x_there.view(),
                                                 w_there.view(), bias_there.view(),
                                                 with_residual ? residual_there.view() : View{}, c.o);
      (in_place ? residual_there : y_there).fetch();
      run_there<kernel::ConvBackwardInput>(dx, dy, w, c.o, accumulate);
      run_there<kernel::ConvBackwardWeight>(dw, db, x, dy, c.o, accumulate);
      const double taps = static_cast<double>(dw.size() / c.c_out), places = static_cast<double>(y.size() / c.c_out);
      agree(in_place ? residual : y, y64, rounding(type, taps));
      agree(dx, dx64, rounding(type, taps * static_cast<double>(c.c_out)));
      agree(dw, dw64, rounding(whole_sums ? dw_type : type, places));
      if (with_bias) agree(db, db64, rounding(dw_type, places));
    }
}

/// mean and m2 beside those of y as it is stored, in f64. Where sums were gathered in f32 while y was computed, they
/// may be those of y before it was rounded (kernels/contracts/conv.h).
inline void check_moments(Array& y, Array& mean, Array& m2) {
  const Index channels = mean.size(), rows = y.size() / channels;
  const double one = y.type == DType::bf16 ? 0x1p-8 : y.type == DType::f16 ? 0x1p-11 : 0, n = static_cast<double>(rows);
  const double sum = y.type == DType::f64 ? 1e-11 : 1e-5, near = is_half(y.type) ? 1e-2 : sum;
  Index wrong = 0;
  for (Index c = 0; c < channels; ++c) {
    double total = 0, largest = 0, squares = 0;
    for (Index r = 0; r < rows; ++r) {
      total += y.get(r * channels + c);
      largest = std::fmax(largest, std::fabs(y.get(r * channels + c)));
    }
    const double center = total / n;
    for (Index r = 0; r < rows; ++r) squares += std::pow(y.get(r * channels + c) - center, 2);
    const double off = one * largest, lost = is_half(y.type) ? 1e-6 * n * center * center : 0;
    const double m2_off = near * squares + 2 * off * std::sqrt(n * squares) + n * off * off + lost;
    wrong += !(std::fabs(mean.get(c) - center) <= sum * std::fmax(1, std::fabs(center)) + off);
    wrong += !(std::fabs(m2.get(c) - squares) <= m2_off + 1e-9 && m2.get(c) >= 0);
  }
  CHECK(wrong == 0);
}

/// One convolution with its moments.
inline void check_conv_moments(const ConvCase& c, DType type, DType bias_type, double shift) {
  INFO("x " << to_string(c.x) << " w " << to_string(c.w) << " y " << to_string(c.y) << " groups " << c.o.groups << " "
            << name_of(type) << " shift " << shift);
  const DType sums = type == DType::f64 ? DType::f64 : DType::f32;
  Array x = filled(c.x, type, false), w = filled(c.w, type, false), y(c.y, type);
  Array bias = shift != 0 ? filled({c.c_out}, bias_type, false) : Array(), mean({c.c_out}, sums), m2({c.c_out}, sums);
  for (Index i = 0; i < bias.size(); ++i) bias.set(i, bias.get(i) + shift);
  Array x64 = as_f64(x), w64 = as_f64(w), bias64 = as_f64(bias), y64(c.y, DType::f64);
  run<kernel::Conv>(y64.view(), x64.view(), w64.view(), bias64.view(), View{}, c.o);
  run_there<kernel::ConvMoments>(y, x, w, bias, mean, m2, c.o);
  agree(y, y64, rounding(type, static_cast<double>(w.size() / c.c_out)));
  check_moments(y, mean, m2);
}

/// More places than one launch sums in one part.
inline void check_large_convolutions() {
  for (Index groups : {Index{1}, Index{3}, Index{24}}) {
    INFO(groups << " groups");
    const Shape xs{3, 17, 19, 24}, ws{48, 3, 3, 24 / groups}, ys{3, 17, 19, 48};
    ConvOptions o{.pad_begin = {1, 1, 0}, .pad_end = {1, 1, 0}, .groups = groups};
    Array x = filled(xs, DType::f64, false), w = filled(ws, DType::f64, false), dy = filled(ys, DType::f64, false);
    Array y(ys, DType::f64), dx(xs, DType::f64), dw(ws, DType::f64), y_cpu = y, dx_cpu = dx, dw_cpu = dw;
    run<kernel::Conv>(y_cpu.view(), x.view(), w.view(), View{}, View{}, o);
    run<kernel::ConvBackwardInput>(dx_cpu.view(), dy.view(), w.view(), o, false);
    run<kernel::ConvBackwardWeight>(dw_cpu.view(), View{}, x.view(), dy.view(), o, false);
    run_there<kernel::Conv>(y, x, w, View{}, View{}, o);
    run_there<kernel::ConvBackwardInput>(dx, dy, w, o, false);
    run_there<kernel::ConvBackwardWeight>(dw, View{}, x, dy, o, false);
    agree(y, y_cpu, 1e-13);
    agree(dx, dx_cpu, 1e-13);
    agree(dw, dw_cpu, 1e-12);
  }
}

}  // namespace trireme::test
