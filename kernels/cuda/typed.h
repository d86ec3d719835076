// Weights and statistics whose floating type may differ from the type that a kernel needs.
#pragma once
#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cuda/device.h"

namespace trireme::gpu {

/// An operand as numbers of type A: itself, or a converted copy. Null for View{}.
template <class A>
class Typed {
 public:
  enum Use { read, written };
  Typed(const On& on, const View& v, Use use = read)
      : given_(v), copy_(on, v && v.dtype != dtype_of<A>() ? static_cast<std::size_t>(v.numel()) * sizeof(A) : 0) {
    check(!v || is_float(v.dtype), on.op(), "got {}, expected a floating type (f32, f64, bf16, f16)", name_of(v.dtype));
    if (copy_.data() && use == read) cast(copied(), given_);
  }
  A* data() const { return copy_.data() ? copy_.template as<A>() : given_.template as<A>(); }
  /// Call after a kernel has written data(): converts the copy back.
  void store() const {
    if (copy_.data()) cast(given_, copied());
  }

 private:
  View copied() const { return {copy_.data(), given_.shape, dtype_of<A>(), given_.device}; }
  static void cast(const View& to, const View& from) { Kernel<kernel::Cast>::on(DeviceKind::cuda)(to, from); }

  View given_;
  Scratch copy_;
};

}  // namespace trireme::gpu
