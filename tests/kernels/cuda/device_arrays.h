// Kernels of a CUDA device beside the CPU's f64: arrays that travel there and back.
#pragma once
#include <tuple>

#include "framework/tensor/tensor.h"
#include "kernels/core/runtime.h"
#include "tests/kernels/arrays.h"

namespace trireme::test {

inline constexpr DType device_types[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

/// A host array's copy on the device, some elements behind the start of its block.
class DeviceArray {
 public:
  DeviceArray(Array& host, Index shift)
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
      return DeviceArray(v, shift);
    else
      return v;
  };
  const auto view = []<class T>(const T& v) {
    if constexpr (std::is_same_v<T, DeviceArray>)
      return v.view();
    else
      return v;
  };
  const auto fetch = []<class T>(const T& v) {
    if constexpr (std::is_same_v<T, DeviceArray>) v.fetch();
  };
  const auto all = std::make_tuple(there(arguments)...);
  std::apply(
      [&](const auto&... a) {
        Kernel<Op>::on(DeviceKind::cuda)(view(a)...);
        (fetch(a), ...);
      },
      all);
}

inline Array as_f64(Array& a) {
  if (a.bytes.empty() && a.shape.rank() == 0) return {};
  Array wide(a.shape, DType::f64);
  for (Index i = 0; i < a.size(); ++i) wide.set(i, a.get(i));
  return wide;
}

inline double rounding(DType type, double products) {
  const double eps = type == DType::f64   ? 0x1p-52
                     : type == DType::f32 ? 0x1p-23
                     : type == DType::f16 ? 0x1p-11
                                          : 0x1p-8;
  return 8 * eps * std::sqrt(products);
}

/// A NaN is where a NaN is expected, and the rest agrees.
inline void agree(Array& got, Array& expected, double within) {
  REQUIRE(got.size() == expected.size());
  Index wrong = 0;
  for (Index i = 0; i < got.size(); ++i) {
    const double a = got.get(i), b = expected.get(i);
    wrong += !(a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= within * std::fmax(1, std::fabs(b)));
  }
  CHECK(wrong == 0);
}

}  // namespace trireme::test
