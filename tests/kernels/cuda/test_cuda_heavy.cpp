// Pooling and convolution on a CUDA device beside the CPU's f64: every option on small random blocks, aligned or not.
#include <limits>

#include "kernels/contracts/mixed_scale.h"
#include "kernels/core/backend.h"
#include "tests/kernels/cuda/device_conv.h"
#include "tests/kernels/cuda/no_device.h"

namespace test_cuda_heavy {

using namespace trireme;
using namespace trireme::test;

namespace {

/// While it lives, sums may be taken in any order.
struct AnyOrder {
  explicit AnyOrder(bool on) { set_deterministic(!on); }
  ~AnyOrder() { set_deterministic(true); }
};

void wide_channels(Index& channels) {
  if (pick(0, 1)) channels = 8 * pick(1, 5);
}

PoolCase device_pool(int dims, bool dilated) {
  PoolCase c = random_pool(dims, dilated);
  wide_channels(c.channels);
  c.x[-1] = c.y[-1] = c.channels;
  return c;
}

}  // namespace

TEST_CASE("max pooling on a device equals the CPU's", "[pool]") {
  if (no_device()) return;
  for (DType type : device_types)
    for (int i = 0; i < 24; ++i) {
      PoolCase c = device_pool(1 + i % 3, true);
      if (i >= 21) {
        c.o = {.window = {17, 16, 1}, .stride = {2, 1, 1}};
        c.x = {2, 20, 18, c.channels};
        c.y = {2, 2, 3, c.channels};
      }
      INFO("x " << to_string(c.x) << " y " << to_string(c.y) << " " << name_of(type));
      const DType small = i >= 21 ? DType::i32 : DType::u8;
      Array x = filled(c.x, type), dy = filled(c.y, type), y(c.y, type), index(c.y, small), dx = filled(c.x, type);
      if (i % 3 == 0) x.set(pick(0, x.size() - 1), std::nan(""));
      if (i % 4 == 0) x.set(pick(0, x.size() - 1), -std::numeric_limits<double>::infinity());
      Array x64 = as_f64(x), dy64 = as_f64(dy), y64(c.y, DType::f64), index64(c.y, small), dx64(c.x, DType::f64);
      run<kernel::MaxPool>(y64.view(), index64.view(), x64.view(), c.o);
      run<kernel::MaxPoolBackward>(dx64.view(), dy64.view(), index64.view(), c.o);
      run_there<kernel::MaxPool>(y, index, x, c.o);
      agree(y, y64, 0);
      agree(index, index64, 0);
      run_there<kernel::MaxPoolBackward>(dx, dy, index, c.o);
      agree(dx, dx64, 0);
    }
}

TEST_CASE("average pooling on a device equals the CPU's", "[pool]") {
  if (no_device()) return;
  for (DType type : device_types)
    for (int i = 0; i < 24; ++i) {
      PoolCase c = device_pool(1 + i % 3, false);
      if (i == 23) {
        c.o = {.window = {7, 9, 1}};
        c.x = {3, 7, 9, 64};
        c.y = {3, 1, 1, 64};
      }
      c.o.count_padding = pick(0, 1);
      INFO("x " << to_string(c.x) << " y " << to_string(c.y) << " " << name_of(type));
      Array x = filled(c.x, type, false), dy = filled(c.y, type, false), y(c.y, type), dx = filled(c.x, type);
      Array x64 = as_f64(x), dy64 = as_f64(dy), y64(c.y, DType::f64), dx64(c.x, DType::f64);
      run<kernel::AvgPool>(y64.view(), x64.view(), c.o);
      run<kernel::AvgPoolBackward>(dx64.view(), dy64.view(), c.o);
      run_there<kernel::AvgPool>(y, x, c.o);
      run_there<kernel::AvgPoolBackward>(dx, dy, c.o);
      agree(y, y64, rounding(type, 1));
      agree(dx, dx64, rounding(type, 9));
    }
}

TEST_CASE("mixed-scale dense layers of boxes on a device equal the CPU's") {
  if (no_device()) return;
  for (DType type : device_types)
    for (int i = 0; i < 24; ++i) {
      MixedScaleOptions o{
          .channels = pick(0, 3) ? pick(1, 9) : pick(30, 40), .outputs = pick(1, 3), .dilation = pick(1, 4)};
      Shape block{pick(1, 2)}, filter{o.outputs};
      for (std::size_t d = 0; d < static_cast<std::size_t>(2 + i % 2); ++d) {
        const Index extent = i == 0 ? 64 : pick(1, 9);  // the first one is summed in several parts
        block.push_back(extent);
        filter.push_back(3);
        if (i % 3 > 0) {
          o.begin[d] = pick(0, extent - 1);
          o.size[d] = pick(0, extent - o.begin[d]);
        }
      }
      block.push_back(o.channels + o.outputs + pick(0, 2));
      filter.push_back(o.channels);
      INFO(to_string(block) << " filter " << to_string(filter) << " dilation " << o.dilation << " " << name_of(type));
      const DType wide = type == DType::f64 ? DType::f64 : DType::f32, weights = i % 4 ? type : wide;
      const bool accumulate = pick(0, 1);
      Array x = filled(block, type), w = filled(filter, weights), b = filled({o.outputs}, weights),
            g = filled(block, wide), dw = filled(filter, weights), db = filled({o.outputs}, weights);
      Array x64 = as_f64(x), w64 = as_f64(w), b64 = as_f64(b), g64 = as_f64(g), dw64 = as_f64(dw), db64 = as_f64(db);
      run<kernel::MixedScaleBackwardWeight>(dw64.view(), db64.view(), x64.view(), g64.view(), o, accumulate);
      run<kernel::MixedScaleBackwardInput>(g64.view(), w64.view(), o);
      run<kernel::MixedScaleLayer>(x64.view(), w64.view(), b64.view(), o);
      run<kernel::MixedScaleBackwardRelu>(g64.view(), x64.view(), o);
      run_there<kernel::MixedScaleBackwardWeight>(dw, db, x, g, o, accumulate);
      run_there<kernel::MixedScaleBackwardInput>(g, w, o);
      run_there<kernel::MixedScaleLayer>(x, w, b, o);
      run_there<kernel::MixedScaleBackwardRelu>(g, x, o);
      agree(x, x64, rounding(type, 1));
      agree(g, g64, 0);
      agree(dw, dw64, rounding(weights, 1));
      agree(db, db64, rounding(weights, 1));
    }
}

TEST_CASE("the fused tail on a device equals the CPU's", "[pool]") {
  if (no_device()) return;
  for (DType type : device_types)
    for (int i = 0; i < 24; ++i) {
      PoolCase c = device_pool(1 + i % 3, false);
      for (std::size_t d = 0; d < 3; ++d) {
        c.o.stride[d] = c.o.window[d];
        c.o.pad_begin[d] = c.o.pad_end[d] = 0;
        if (static_cast<int>(d) < c.dims) c.y[static_cast<int>(d) + 1] = c.in[d] / c.o.window[d];
      }
      const double p = i % 4 == 0 ? 0 : i % 4 == 1 ? 0.25 : i % 4 == 2 ? 0.7 : 1;
      const std::uint64_t key = engine();
      const bool accumulate = pick(0, 1), with_bias = pick(0, 1), with_sum = pick(0, 3);
      INFO("x " << to_string(c.x) << " y " << to_string(c.y) << " p " << p << " " << name_of(type));
      // The CPU has no f16: whole numbers, which need no rounding but the last, in f64 stand for them.
      const bool whole = type == DType::f16;
      const DType there = whole ? DType::f64 : type;
      Array x = filled(c.x, type, whole), bias = with_bias ? filled({c.channels}, type, whole) : Array();
      Array sample({c.n}, DType::i64), y(c.y, type), index(c.y, DType::u8), y_cpu(c.y, there),
          index_cpu(c.y, DType::u8);
      for (Index n = 0; n < c.n; ++n) sample.set(n, static_cast<double>(pick(0, 100000)));
      if (i % 5 == 0) x.set(pick(0, x.size() - 1), std::nan(""));
      Array x_cpu = whole ? as_f64(x) : x, bias_cpu = whole ? as_f64(bias) : bias;
      run<kernel::BiasReluPoolDropout>(y_cpu.view(), index_cpu.view(), x_cpu.view(), bias_cpu.view(), sample.view(),
                                       c.o, p, key);
      run_there<kernel::BiasReluPoolDropout>(y, index, x, bias, sample, c.o, p, key);
      agree(index, index_cpu, 0);
      agree(y, y_cpu, whole ? 0x1p-10 : 0);

      Array dy = filled(c.y, type, whole), dx = filled(c.x, type), db = with_sum ? filled({c.channels}, type) : Array();
      Array dy_cpu = whole ? as_f64(dy) : dy, dx_cpu(c.x, there), db_cpu = as_f64(db);
      run<kernel::BiasReluPoolDropoutBackward>(dx_cpu.view(), db_cpu.view(), dy_cpu.view(), index.view(), c.o, p,
                                               accumulate);
      run_there<kernel::BiasReluPoolDropoutBackward>(dx, db, dy, index, c.o, p, accumulate);
      agree(dx, dx_cpu, whole ? 0x1p-10 : 0);
      if (with_sum) agree(db, db_cpu, (whole ? 8 : 2) * rounding(type, static_cast<double>(x.size())));
    }
}

TEST_CASE("convolution on a device equals the CPU's", "[conv]") {
  if (no_device()) return;
  check_convolutions(false);
  check_large_convolutions();
}

TEST_CASE("a convolution's operands may lie worse than those that its plan was measured with", "[conv]") {
  if (no_device()) return;
  Array x = filled({2, 5, 5, 8}, DType::bf16), w = filled({8, 3, 3, 8}, DType::bf16), y({2, 3, 3, 8}, DType::bf16);
  Array x64 = as_f64(x), w64 = as_f64(w), y64({2, 3, 3, 8}, DType::f64);
  run<kernel::Conv>(y64.view(), x64.view(), w64.view(), View{}, View{}, ConvOptions{});
  for (Index shift : {4, 2, 1, 2}) {
    INFO(shift);
    const DeviceArray x_there(x, shift), w_there(w, shift), y_there(y, shift);
    Kernel<kernel::Conv>::on(DeviceKind::cuda)(y_there.view(), x_there.view(), w_there.view(), View{}, View{},
                                               ConvOptions{});
    y_there.fetch();
    agree(y, y64, rounding(DType::bf16, 72));
  }
}

TEST_CASE("a convolution's moments on a device are those of its output", "[conv][moments]") {
  if (no_device()) return;
  for (DType type : device_types)
    for (int i = 0; i < 24; ++i) {
      const AnyOrder any(i % 4 > 1);
      ConvCase c = random_conv(1 + i % 3);
      if (i % 2) {  // as networks have them: no groups, channels in eights
        c.o.groups = 1;
        c.c_in = 8 * pick(1, 3);
        c.c_out = 8 * pick(1, 9);
        c.x[-1] = c.w[-1] = c.c_in;
        c.w[0] = c.y[-1] = c.c_out;
      }
      c.o.relu = i % 6 == 5;
      const DType bias_type = is_half(type) && pick(0, 1) ? DType::f32 : type;
      check_conv_moments(c, type, bias_type, i % 3 == 0 ? 0 : i % 3 == 1 ? 0.5 : 20);
    }
}

TEST_CASE("moments on a device: one row, channels that do not vary, many rows far from zero", "[conv][moments]") {
  if (no_device()) return;
  for (auto [type, any] :
       {std::pair{DType::bf16, false}, {DType::bf16, true}, {DType::f16, false}, {DType::f16, true}}) {
    const AnyOrder order(any);
    ConvCase c{2, 1, 16, 24, {1, 1, 1}, {1, 1, 1}, {}};
    c.x = {1, 1, 1, 16};
    c.w = {24, 1, 1, 16};
    c.y = {1, 1, 1, 24};
    check_conv_moments(c, type, type, 0);
    check_conv_moments(c, type, type, 100);
    c.n = 9;
    c.x = {9, 40, 31, 16};
    c.y = {9, 40, 31, 24};
    check_conv_moments(c, type, type, 10);  // some 5 deviations
    check_conv_moments(c, type, DType::f32, 60);

    Array from = filled({3, 9, 8, 16}, type, false), filter = filled({24, 1, 1, 16}, type, false);
    Array to({3, 9, 8, 24}, type), center({24}, DType::f32), left = center;
    const DeviceArray a(from, 0), b(filter, 0), y1(to, 0), mean1(center, 0), m21(left, 0);
    std::vector<std::vector<double>> twice;
    for (int i = 0; i < 2; ++i) {
      Kernel<kernel::ConvMoments>::on(DeviceKind::cuda)(y1.view(), a.view(), b.view(), View{}, mean1.view(), m21.view(),
                                                        ConvOptions{});
      mean1.fetch();
      m21.fetch();
      twice.push_back(numbers(center));
      twice.push_back(numbers(left));
    }
    CHECK((any || (twice[0] == twice[2] && twice[1] == twice[3])));

    Array x({4, 9, 8, 16}, type), w({8, 1, 1, 16}, type), y({4, 9, 8, 8}, type), mean({8}, DType::f32), m2 = mean, none;
    for (Array* a : {&x, &w})
      for (Index i = 0; i < a->size(); ++i) a->set(i, 1.5);  // 36 everywhere
    run_there<kernel::ConvMoments>(y, x, w, none, mean, m2, ConvOptions{});
    CHECK(numbers(mean) == std::vector<double>(8, 36));
    CHECK(numbers(m2) == std::vector<double>(8, 0));
  }
  Array x({0, 4, 4, 8}, DType::bf16), w({8, 1, 1, 8}, DType::bf16), y({0, 4, 4, 8}, DType::bf16), none;
  Array mean = filled({8}, DType::f32), m2 = filled({8}, DType::f32);
  run_there<kernel::ConvMoments>(y, x, w, none, mean, m2, ConvOptions{});
  CHECK(numbers(mean) == std::vector<double>(8, 0));
  CHECK(numbers(m2) == std::vector<double>(8, 0));
}

}  // namespace test_cuda_heavy
