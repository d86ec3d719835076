// launch<Op>(outputs and inputs..., attributes...): picks the kernel by the first tensor's device and calls it.
#pragma once
#include "framework/tensor.h"
#include "kernels/kernel.h"

namespace trireme {
namespace detail {
inline View lower(const Tensor& t) { return t.view(); }
inline View lower(const View& v) { return v; }
template <class T>
const T& lower(const T& attribute) { return attribute; }
void same_device(const char* op, const View& first, const View& other);
template <class T>
void same_device(const char*, const View&, const T&) {}
}  // namespace detail

/// Throws Error when defined tensors lie on different devices, or when there is no kernel.
template <class Op, class First, class... Rest>
void launch(const First& first, const Rest&... rest) {
  View y = detail::lower(first);
  (detail::same_device(Op::name, y, detail::lower(rest)), ...);
  Kernel<Op>::on(y.device.kind)(y, detail::lower(rest)...);
}

}  // namespace trireme
