// Norms, reductions and losses on a CUDA device beside the CPU's f64: all types, aligned or not, rows of any length.
#include <limits>

#include "kernels/contracts/loss.h"
#include "kernels/contracts/move.h"
#include "kernels/contracts/norm.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/cuda/no_device.h"
#include "tests/kernels/reduce_shapes.h"

namespace test_cuda_norm {

using namespace trireme;
using namespace trireme::test;

namespace {

DType wide_type(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }
/// One number's rounding, and that of sums in the accumulator's type.
double accuracy(DType t) { return t == DType::f64 ? 1e-11 : t == DType::f32 ? 2e-5 : t == DType::f16 ? 2e-3 : 1.6e-2; }
double sum_accuracy(DType t) { return accuracy(wide_type(t)); }

Array real(const Shape& s, DType t) { return filled(s, t, false); }
Array positive(const Shape& s, DType t) {
  Array a = real(s, t);
  for (Index i = 0; i < a.size(); ++i) a.set(i, 1 + a.get(i) / 2);
  return a;
}

/// Runs Op on the device and, on copies in f64, on the CPU; the first arguments are what it writes: bounds[i] is for
/// the i-th of them.
template <class Op, class... A>
void beside(std::initializer_list<double> bounds, A&&... arguments) {
  const auto wide = []<class T>(T& v) {
    if constexpr (std::is_same_v<std::remove_const_t<T>, Array>)
      return is_float(v.type) ? as_f64(v) : v;
    else
      return v;
  };
  const auto view = []<class T>(T& v) {
    if constexpr (std::is_same_v<T, Array>)
      return v.view();
    else
      return v;
  };
  auto expected = std::make_tuple(wide(arguments)...);
  std::apply([&](auto&... a) { run<Op>(view(a)...); }, expected);
  run_there<Op>(arguments...);
  auto bound = bounds.begin();
  const auto compare = [&]<class T>(T& got, auto& right) {
    if constexpr (std::is_same_v<T, Array>)
      if (bound != bounds.end()) agree(got, right, *bound++);
  };
  auto got = std::tie(arguments...);
  [&]<std::size_t... i>(std::index_sequence<i...>) { (compare(std::get<i>(got), std::get<i>(expected)), ...); }
  (std::index_sequence_for<A...>{});
}

constexpr Index sizes[][2] = {{1, 1},   {1, 64},   {2, 5},    {40, 3},   {33, 100},
                              {70, 64}, {300, 33}, {500, 64}, {9000, 3}, {2000, 100}};

}  // namespace

TEST_CASE("batch norm on a device equals the CPU's") {
  if (no_device()) return;
  for (DType t : device_types)
    for (auto [rows, c] : sizes)
      for (int kind = 0; kind < 3; ++kind) {
        const bool relu = kind > 0, residual = kind == 2;
        INFO(name_of(t) << " " << rows << " x " << c << " relu " << relu << " residual " << residual);
        const Shape s{rows, 1, c}, channels{c};
        const DType w = wide_type(t);
        // Weights may be of another type; statistics too.
        const DType weights = kind == 1 ? DType::bf16 : w;
        const double near = accuracy(t), sum = sum_accuracy(t);
        Array x = real(s, t), add = residual ? real(s, t) : Array(), gamma = positive(channels, weights),
              beta = real(channels, weights), mean(channels, w), m2(channels, w), rstd(channels, w), y(s, t);
        for (Index i = 0; i < x.size(); ++i) x.set(i, x.get(i) + 3);
        beside<kernel::BatchNormMoments>({sum, sum}, mean, m2, x);
        Array running_mean = real(channels, kind == 1 ? DType::f64 : DType::f32),
              running_var = positive(channels, running_mean.type);
        Array no_mean, no_var;
        const auto count = static_cast<double>(rows);
        beside<kernel::BatchNormFinish>({sum, 1e-5, 1e-5}, rstd, running_mean, running_var, mean, m2, count, 1e-5, 0.1);
        beside<kernel::BatchNormFinish>({sum}, rstd, no_mean, no_var, mean, m2, count, 1e-5, 0.1);
        Array parts({3, 1 + 2 * c}, DType::f64), all({1}, DType::f64), mean_all(channels, w), m2_all(channels, w);
        for (Index r = 0; r < 3; ++r)
          for (Index i = 0; i <= 2 * c; ++i)
            parts.set(r * (1 + 2 * c) + i, i == 0 ? static_cast<double>(r * rows) : 3 + static_cast<double>(i + r) / 7);
        beside<kernel::BatchNormMerge>({1e-6, 1e-6, 0}, mean_all, m2_all, all, parts);
        if (rows < 3) rstd = positive(channels, w);  // else 300 or 0 times what rounding left
        beside<kernel::BatchNormApply>({near}, y, x, mean, rstd, gamma, beta, add, relu);

        Array dy = real(s, t), dz = residual ? Array(s, t) : Array(), dx(s, t), dgamma(channels, w), dbeta(channels, w),
              none, kept = residual ? y : Array();
        Array& found = relu && !residual ? beta : none;
        beside<kernel::BatchNormBackwardReduce>({sum * 5, sum * 5, 0}, dgamma, dbeta, dz, dy, x, mean, rstd, gamma,
                                                found, kept);
        Array& masked = residual ? dz : dy;
        beside<kernel::BatchNormBackwardApply>({near * 3}, dx, masked, x, mean, rstd, gamma, found, dgamma, dbeta,
                                               count);
        beside<kernel::BatchNormBackwardApply>({near * 3}, dx, masked, x, mean, rstd, gamma, found, none, none, 0.0);
      }
}

TEST_CASE("batch norm's sums on a device are safe, the same again, and zero over no rows") {
  if (no_device()) return;
  for (DType t : {DType::f32, DType::f64}) {
    Array x({4000, 5}, t), mean({5}, t), m2({5}, t), again({5}, t);
    for (Index i = 0; i < x.size(); ++i) x.set(i, 3000 + static_cast<double>(i * 7919 % 1000) / 1000);
    beside<kernel::BatchNormMoments>({1e-7, 1e-5}, mean, m2, x);
    x.set(2, 1e6);  // the first number of a column far from the rest
    beside<kernel::BatchNormMoments>({1e-5, 1e-5}, mean, m2, x);
    run_there<kernel::BatchNormMoments>(mean, again, x);
    CHECK(numbers(again) == numbers(m2));
    x.set(7, std::nan(""));
    beside<kernel::BatchNormMoments>({1e-5, 1e-5}, mean, m2, x);
  }
  const DType t = DType::bf16;
  Array none({0, 5}, t), y({0, 5}, t), g = positive({5}, DType::f32), sum({5}, DType::f32), plain = sum, absent;
  beside<kernel::BatchNormMoments>({0, 0}, sum, plain, none);
  beside<kernel::BatchNormApply>({0}, y, none, g, g, g, g, absent, true);
  beside<kernel::BatchNormBackwardReduce>({0, 0, 0}, sum, plain, y, y, none, g, g, g, absent, none);
  beside<kernel::BatchNormBackwardApply>({0}, y, none, none, g, g, g, absent, sum, plain, 0.0);
}

TEST_CASE("dz and dx may be written over dy on a device") {
  if (no_device()) return;
  const Shape s{100, 64};
  for (DType t : device_types) {
    Array x = real(s, t), dy = real(s, t), y = real(s, t), dz(s, t), mean = real({64}, wide_type(t)),
          rstd = positive({64}, wide_type(t)), dgamma({64}, wide_type(t)), dbeta = dgamma, dx(s, t), none;
    run_there<kernel::BatchNormBackwardReduce>(dgamma, dbeta, dz, dy, x, mean, rstd, rstd, none, y);
    run_there<kernel::BatchNormBackwardApply>(dx, dz, x, mean, rstd, rstd, none, dgamma, dbeta, 100.0);
    const DeviceArray block(dy, 0), a(x, 0), b(y, 0), m(mean, 0), r(rstd, 0), g(dgamma, 0), p(dbeta, 0);
    Kernel<kernel::BatchNormBackwardReduce>::on(DeviceKind::cuda)(g.view(), p.view(), block.view(), block.view(),
                                                                  a.view(), m.view(), r.view(), r.view(), {}, b.view());
    block.fetch();
    agree(dy, dz, 0);
    Kernel<kernel::BatchNormBackwardApply>::on(DeviceKind::cuda)(block.view(), block.view(), a.view(), m.view(),
                                                                 r.view(), r.view(), {}, g.view(), p.view(), 100.0);
    block.fetch();
    agree(dy, dx, accuracy(t));  // the sums are other blocks', where these are aligned otherwise
  }
}

TEST_CASE("layer norm on a device equals the CPU's") {
  if (no_device()) return;
  constexpr Index shapes[][2] = {{1, 1},    {3, 7},    {5, 33},    {70, 64}, {4, 1000},
                                 {2, 1032}, {3, 9001}, {2, 12800}, {300, 8}, {0, 8}};
  for (DType t : device_types)
    for (auto [rows, c] : shapes)
      for (bool affine : {false, true}) {
        INFO(name_of(t) << " " << rows << " x " << c << " affine " << affine);
        const Shape s{rows, c};
        const DType w = wide_type(t);
        const double near = accuracy(t), sum = sum_accuracy(t);
        Array x = real(s, t), dy = real(s, t), y(s, t), dx(s, t), mean({rows}, w), rstd({rows}, w),
              gamma = affine ? positive({c}, rows == 3 ? DType::bf16 : w) : Array(),
              beta = affine ? real({c}, gamma.type) : Array();
        beside<kernel::LayerNorm>({near, sum, sum}, y, mean, rstd, x, gamma, beta, 1e-2, true);
        beside<kernel::LayerNormBackwardInput>({near * 3}, dx, dy, x, mean, rstd, gamma, true);
        Array root({rows}, w), zero({rows}, w);
        beside<kernel::LayerNorm>({near, sum, sum}, y, zero, root, x, gamma, View{}, 1e-2, false);
        beside<kernel::LayerNormBackwardInput>({near * 3}, dx, dy, x, zero, root, gamma, false);
        for (bool accumulate : {false, true}) {
          Array dgamma = real({c}, rows == 3 ? DType::bf16 : w), dbeta = real({c}, w), none;
          const double bound = std::max(sum * 3, rows == 3 ? accuracy(DType::bf16) : 0);
          beside<kernel::LayerNormBackwardWeight>({bound, sum * 3}, dgamma, dbeta, dy, x, mean, rstd, accumulate);
          beside<kernel::LayerNormBackwardWeight>({0, sum * 3}, none, dbeta, dy, x, mean, rstd, accumulate);
        }
      }
}

TEST_CASE("group norm on a device equals the CPU's") {
  if (no_device()) return;
  constexpr Index shapes[][4] = {{1, 1, 4, 1},    {2, 9, 6, 3},    {3, 70, 33, 11},
                                 {2, 300, 64, 8}, {4, 25, 40, 40}, {2, 3, 0, 1}};
  for (DType t : device_types)
    for (auto [n, cells, c, groups] : shapes)
      for (bool affine : {false, true}) {
        INFO(name_of(t) << " " << n << " x " << cells << " x " << c << " in " << groups << " affine " << affine);
        const Shape s{n, cells, c};
        const DType w = wide_type(t);
        const double near = accuracy(t), sum = sum_accuracy(t);
        Array x = real(s, t), dy = real(s, t), y(s, t), dx(s, t), mean({n, groups}, w), rstd({n, groups}, w),
              plain({n, c}, w), weighted({n, c}, w), gamma = affine ? positive({c}, w) : Array(),
              beta = affine ? real({c}, w) : Array();
        beside<kernel::GroupNorm>({near, sum, sum}, y, mean, rstd, x, gamma, beta, 1e-2);
        beside<kernel::GroupNormBackward>({sum * 3, sum * 3, near * 3}, plain, weighted, dx, dy, x, mean, rstd, gamma);
        beside<kernel::GroupNormBackward>({sum * 3, sum * 3}, plain, weighted, View{}, dy, x, mean, rstd, gamma);
      }
}

TEST_CASE("reductions on a device equal the CPU's") {
  if (no_device()) return;
  for (DType t : device_types)
    for (auto& [sx, sy] : reduce_shapes)
      for (ReduceKind kind : {ReduceKind::sum, ReduceKind::mean, ReduceKind::max}) {
        INFO(name_of(t) << to_string(sx) << to_string(sy) << " " << static_cast<int>(kind));
        Array x = real(sx, t), y(sy, t);
        beside<kernel::Reduce>({kind == ReduceKind::max ? 0 : accuracy(t)}, y, x, kind);
        if (kind == ReduceKind::max && x.size() > 3) {
          x.set(x.size() / 2, std::nan(""));
          beside<kernel::Reduce>({0}, y, x, kind);
        }
      }
  // Integers: exact.
  Array x({2000, 100}, DType::f32), y({1, 100}, DType::f32), all({1, 1}, DType::f32);
  for (Index i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i % 7) - 3);
  beside<kernel::Reduce>({0}, y, x, ReduceKind::sum);
  beside<kernel::Reduce>({0}, all, x, ReduceKind::sum);
}

TEST_CASE("argmax and the sum of squares on a device equal the CPU's") {
  if (no_device()) return;
  for (DType t : device_types) {
    for (Shape s : {Shape{4, 5}, {1, 1}, {30, 10}, {5, 1000}, {3, 4096}, {2, 3001}, {0, 10}, {7, 3, 8}})
      for (int kind = 0; kind < 3; ++kind) {
        INFO(name_of(t) << to_string(s) << " " << kind);
        Array x = filled(s, t), index(s.without(s.rank() - 1), DType::i64);  // few different numbers: ties
        for (int i = 0; kind == 1 && i < 2 && x.size() > 0; ++i) x.set(pick(0, x.size() - 1), std::nan(""));
        for (Index i = 0; kind == 2 && i < x.size(); ++i) x.set(i, -std::numeric_limits<double>::infinity());
        beside<kernel::ArgMax>({0}, index, x);
      }
    for (Index n : {Index{0}, Index{1}, Index{33}, Index{100003}}) {
      Array x = real({n}, t), sum(Shape{}, DType::f64);
      beside<kernel::SumSquares>({1e-12}, sum, x, View{});
    }
    for (Index n : {Index{1}, Index{90}, Index{100003}, Index{1000003}}) {
      const Index count = pick(1, 200);
      Array x = real({n}, t), sums({count}, DType::f64), slices({count, 2}, DType::i64);
      for (Index i = 0; i < count; ++i) {
        const Index a = pick(0, n), b = i % 3 == 0 ? std::min(n, a + 7) : pick(0, n);
        const Index step = i % 2 == 0 ? 16 : 1;  // of which both ways are taken
        slices.set(2 * i, static_cast<double>(std::min(a, b) / step * step));
        slices.set(2 * i + 1, static_cast<double>(std::max(a, b)));
      }
      beside<kernel::SumSquares>({1e-12}, sums, x, slices);
    }
  }
}

TEST_CASE("softmax and its relatives on a device equal the CPU's") {
  if (no_device()) return;
  for (DType t : device_types)
    for (Shape s : {Shape{1, 1}, {4, 5}, {300, 10}, {3, 1000}, {2, 5, 72}, {2, 9000}, {2, 3001}, {0, 5}})
      for (int kind = 0; kind < 3; ++kind) {
        INFO(name_of(t) << to_string(s) << " " << kind);
        Array x = real(s, t), dy = real(s, t), y(s, t), dx(s, t);
        for (Index i = 0; i < x.size(); ++i) x.set(i, x.get(i) * 20);
        if (kind == 1 && x.size()) x.set(pick(0, x.size() - 1), -std::numeric_limits<double>::infinity());
        if (kind == 2 && x.size()) x.set(pick(0, x.size() - 1), std::nan(""));
        beside<kernel::Softmax>({accuracy(t)}, y, x);
        beside<kernel::SoftmaxBackward>({accuracy(t) * 2}, dx, dy, y);
        beside<kernel::LogSoftmax>({accuracy(t)}, y, x);
        beside<kernel::LogSoftmaxBackward>({accuracy(t) * 2}, dx, dy, y);
      }
}

TEST_CASE("cross entropy on a device equals the CPU's, and names a label that is none") {
  if (no_device()) return;
  for (DType t : device_types)
    for (Shape s : {Shape{1, 1}, {40, 10}, {300, 3}, {3, 1000}, {2, 2, 72}, {2, 9000}, {2, 3001}, {0, 5}})
      for (const auto& [smoothing, z] : {std::pair(0.0, 0.0), {0.1, 0.0}, {0.1, 0.05}}) {
        INFO(name_of(t) << to_string(s) << " " << smoothing << " z " << z);
        const Shape rows = s.without(s.rank() - 1);
        Array x = real(s, t), log_p(s, t), dx(s, t), loss(rows, wide_type(t)), label(rows, DType::i64),
              scale(Shape{}, wide_type(t)), log_z(rows, wide_type(t));
        scale.set(0, 3);
        for (Index i = 0; i < label.size(); ++i)
          label.set(i, static_cast<double>(i % 3 == 1 ? -100 : pick(0, s[-1] - 1)));
        const CrossEntropyOptions o{.label_smoothing = smoothing, .z_loss = z};
        beside<kernel::CrossEntropy>({sum_accuracy(t), accuracy(t), sum_accuracy(t)}, loss, log_p, log_z, x, label, o);
        beside<kernel::CrossEntropyBackward>({accuracy(t) * 3}, dx, log_p, log_z, label, scale, o);
        // In the logits' own block
        Array block = x, losses(loss.shape, loss.type);
        const DeviceArray block_there(block, 0), losses_there(losses, 0), log_z_there(log_z, 0), label_there(label, 0);
        Kernel<kernel::CrossEntropy>::on(DeviceKind::cuda)(losses_there.view(), block_there.view(), log_z_there.view(),
                                                           block_there.view(), label_there.view(), o);
        block_there.fetch();
        losses_there.fetch();
        agree(block, log_p, accuracy(t));
        agree(losses, loss, sum_accuracy(t));
      }
  Array x = real({4, 10}, DType::f32), log_p = x, loss({4}, DType::f32), log_z = loss, label({4}, DType::i64);
  label.set(2, 10);
  CHECK_ERROR(run_there<kernel::CrossEntropy>(loss, log_p, log_z, x, label, CrossEntropyOptions{}), data, 2, 10);
  label.set(2, 9);
  run_there<kernel::CrossEntropy>(loss, log_p, log_z, x, label, CrossEntropyOptions{});
}

}  // namespace test_cuda_norm
