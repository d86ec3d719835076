// launch<Op>(outputs and inputs..., attributes...): picks the kernel by the first tensor's device and calls it.
#pragma once
#include "framework/tensor.h"
#include "kernels/kernel.h"

namespace trireme {
namespace detail {
inline View lower(const Tensor& t) { return t.view(); }
inline View lower(const View& v) { return v; }
template <class T>
const T& lower(const T& attribute) {
  return attribute;
}
/// The device of the first defined view, which the others must share.
struct Placement {
  const char* op;
  const View* first = nullptr;
  void operator()(const View& v) {
    if (v.data == nullptr) return;
    if (first == nullptr) first = &v;
    if (!(v.device == first->device)) [[unlikely]]
      refuse(v);
  }
  template <class T>
  void operator()(const T&) {}
  [[noreturn]] void refuse(const View& v) const;
};
template <class Op, class... A>
void launch_lowered(const A&... lowered) {
  Placement place{Op::name};
  (place(lowered), ...);
  Kernel<Op>::on(place.first ? place.first->device.kind : DeviceKind::cpu)(lowered...);
}
}  // namespace detail

/// Throws Error when defined tensors lie on different devices, or when there is no kernel. An output (the first
/// operand) without elements is nothing to do.
template <class Op, class First, class... Rest>
void launch(const First& first, const Rest&... rest) {
  const View y = detail::lower(first);
  if (y.data != nullptr && y.numel() == 0) return;
  detail::launch_lowered<Op>(y, detail::lower(rest)...);
}

}  // namespace trireme
