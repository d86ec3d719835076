// Pooling and convolution on a CUDA device beside the CPU's f64: every option on small random blocks, aligned or not.
#include <limits>
#include <tuple>

#include "framework/tensor.h"
#include "kernels/backend.h"
#include "kernels/runtime.h"
#include "tests/heavy_cases.h"
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

constexpr DType device_types[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

/// A host array's copy on the device, some elements behind the start of its block.
class There {
 public:
  There(Array& host, Index shift)
      : host_(&host),
        start_(static_cast<std::size_t>(shift * size_of(host.type))),
        block_(Tensor::empty({static_cast<Index>(start_ + host.bytes.size() + 1)}, DType::u8, cuda())) {
    if (!host.bytes.empty()) runtime(DeviceKind::cuda).copy(view().data, cuda(), host.data(), cpu(), host.bytes.size());
  }
  View view() const {
    if (host_->bytes.empty() && host_->shape.rank() == 0) return {};
    return {block_.data<char>() + start_, host_->shape, host_->type, cuda()};
  }
  /// The host's array becomes what the device has.
  void fetch() const { runtime(DeviceKind::cuda).copy(host_->data(), cpu(), view().data, cuda(), host_->bytes.size()); }

 private:
  Array* host_;
  std::size_t start_;
  Tensor block_;
};

/// The contract on the device with arrays, some elements behind their blocks' starts, and options. What it wrote comes
/// back.
template <class Op, class... A>
void run_there(A&&... arguments) {
  const Index shift = pick(0, 1);
  const auto there = [&]<class T>(T& v) {
    if constexpr (std::is_same_v<T, Array>)
      return There(v, shift);
    else
      return v;
  };
  const auto view = []<class T>(const T& v) {
    if constexpr (std::is_same_v<T, There>)
      return v.view();
    else
      return v;
  };
  const auto fetch = []<class T>(const T& v) {
    if constexpr (std::is_same_v<T, There>) v.fetch();
  };
  const auto all = std::make_tuple(there(arguments)...);
  std::apply(
      [&](const auto&... a) {
        Kernel<Op>::on(DeviceKind::cuda)(view(a)...);
        (fetch(a), ...);
      },
      all);
}

Array as_f64(Array& a) {
  if (a.bytes.empty() && a.shape.rank() == 0) return {};
  Array wide(a.shape, DType::f64);
  for (Index i = 0; i < a.size(); ++i) wide.set(i, a.get(i));
  return wide;
}

void wide_channels(Index& channels) {
  if (pick(0, 1)) channels = 8 * pick(1, 5);
}

double rounding(DType type, double products) {
  const double eps = type == DType::f64   ? 0x1p-52
                     : type == DType::f32 ? 0x1p-23
                     : type == DType::f16 ? 0x1p-11
                                          : 0x1p-8;
  return 8 * eps * std::sqrt(products);
}

/// A NaN is where a NaN is expected, and the rest agrees.
void agree(Array& got, Array& expected, double within) {
  REQUIRE(got.size() == expected.size());
  Index wrong = 0;
  for (Index i = 0; i < got.size(); ++i) {
    const double a = got.get(i), b = expected.get(i);
    wrong += !(a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= within * std::fmax(1, std::fabs(b)));
  }
  CHECK(wrong == 0);
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
  for (DType type : device_types)
    for (int i = 0; i < 36; ++i) {
      ConvCase c = random_conv(1 + i % 3);
      if (i % 4 == 3) {  // more channels than one tile has
        const Index in = pick(1, 90), out = pick(1, 90);
        c.c_in = in * c.o.groups, c.c_out = out * c.o.groups;
        c.x[-1] = c.c_in, c.w[0] = c.c_out, c.w[-1] = in, c.y[-1] = c.c_out;
      }
      const bool whole = i % 2 == 0, accumulate = pick(0, 1), with_bias = pick(0, 1), with_residual = pick(0, 1);
      const bool own_block = pick(0, 1), narrow = is_narrow(type);
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
      const There x_there(x, shift), w_there(w, 0), bias_there(bias, shift), y_there(y, shift),
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
      agree(dw, dw64, rounding(dw_type, places));
      if (with_bias) agree(db, db64, rounding(dw_type, places));
    }
}

TEST_CASE("convolutions over many places on a device equal the CPU's", "[conv]") {
  if (no_device()) return;
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
