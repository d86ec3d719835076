// Pooling and convolution on a CUDA device beside the CPU's f64: every option on small random blocks, aligned or not.
#include <limits>

#include "kernels/backend.h"
#include "tests/device_conv.h"
#include "tests/oracle.h"

using namespace trireme;
using namespace trireme::test;

namespace {

bool no_device() {
  const Backend& gpus = open_backend(DeviceKind::cuda);
  if (gpus.devices > 0) return false;
  WARN("skipped: " << gpus.absent);
  note_missing();
  return true;
}

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
      if (i >= 21)
        c.o = {.window = {17, 16, 1}, .stride = {2, 1, 1}}, c.x = {2, 20, 18, c.channels}, c.y = {2, 2, 3, c.channels};
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
      if (i == 23) c.o = {.window = {7, 9, 1}}, c.x = {3, 7, 9, 64}, c.y = {3, 1, 1, 64};
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

TEST_CASE("the fused tail on a device equals the CPU's", "[pool]") {
  if (no_device()) return;
  for (DType type : device_types)
    for (int i = 0; i < 24; ++i) {
      PoolCase c = device_pool(1 + i % 3, false);
      for (std::size_t d = 0; d < 3; ++d) {
        c.o.stride[d] = c.o.window[d], c.o.pad_begin[d] = c.o.pad_end[d] = 0;
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
