// launch<Op>(outputs, inputs, attributes...): calls the kernel of a contract on the device of the first tensor.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "framework/tensor/tensor.h"
#include "kernels/core/kernel.h"

namespace trireme {

class SavedTensor;  // framework/autograd/saved_tensor.h

/// Observes every kernel call of its thread while it lives: for profiles and dry runs. Watches can be nested, unless
/// one of them is dry: each sees the calls.
class LaunchWatch {
 public:
  /// One kernel call; valid only during the callback.
  struct Call {
    const char* op;                       ///< name of the contract: "conv"
    std::span<const View> operands;       ///< outputs and inputs, in the contract's order
    double operations,                    ///< multiplications and additions by Op::operations(); 0: it has none
        bytes;                            ///< read and written, by Op::bytes(); without it the operands' sizes
    double seconds,                       ///< duration of the kernel on its device
        vendor_seconds;                   ///< seconds in the vendor's library, without changes of layout
    const std::function<void()>& kernel;  ///< runs the kernel again, on the same operands
  };
  /// What happens to the kernels. timed: they run and are measured, which takes long on a device, whose cache is
  /// emptied before each. untimed: they run, and seconds are 0 unless another watch is timed. dry: they run only if the
  /// callback calls them, and seconds are 0.
  enum class Mode : std::uint8_t { timed, untimed, dry };
  /// The callback runs after each kernel call of this thread. Throws Error if the thread already has a LaunchWatch,
  /// and one of the two is dry.
  explicit LaunchWatch(std::function<void(const Call&)>, Mode = Mode::timed);
  ~LaunchWatch();
  LaunchWatch(const LaunchWatch&) = delete;
  LaunchWatch& operator=(const LaunchWatch&) = delete;
  /// For launch(): runs the kernel, which is run(call), waits for it and calls the callback. operands: null for
  /// attributes. bytes: -1: of all operands.
  void watch(const char* op, std::span<const View* const> operands, double operations, double bytes,
             void (*run)(const void* call), const void* call);
  bool is_dry() const { return mode_ == Mode::dry; }

 private:
  std::function<void(const Call&)> see_;
  Mode mode_;
  LaunchWatch* outer_;
  bool is_timed_;  // this watch or one around it
};

/// Whether kernels of this thread do not run, for a LaunchWatch: then no values may be read.
bool is_dry_run();

namespace detail {
inline View lower(const Tensor& t) { return t.view(); }
inline View lower(const View& v) { return v; }
View lower(const SavedTensor& t);
template <class T>
const T& lower(const T& attribute) {
  return attribute;
}
/// The kind of device that all operands are on; cpu if there are none. Null pointers are attributes. Throws Error
/// naming op for operands on several devices.
DeviceKind device_of(const char* op, std::span<const View* const> operands);
/// The LaunchWatch of this thread, or null.
inline constinit thread_local LaunchWatch* launch_watch = nullptr;

inline const View* operand(const View& v) { return &v; }
template <class T>
const View* operand(const T&) {
  return nullptr;
}
template <class Op, class... A>
void launch_lowered(const A&... lowered) {
  const View* const operands[] = {operand(lowered)...};
  auto* kernel = Kernel<Op>::on(device_of(Op::name, operands));
  if (launch_watch == nullptr) [[likely]]
    return kernel(lowered...);
  double operations = 0, bytes = -1;
  if constexpr (requires { &Op::operations; }) operations = Op::operations(lowered...);
  if constexpr (requires { &Op::bytes; }) bytes = Op::bytes(lowered...);
  const auto call = [&] { kernel(lowered...); };
  launch_watch->watch(
      Op::name, operands, operations, bytes, [](const void* c) { (*static_cast<const decltype(call)*>(c))(); }, &call);
}
}  // namespace detail

/// Calls the kernel of contract Op on the device of the first defined tensor (cpu() if there is none). Throws Error if
/// defined tensors are on different devices, or if that backend has no kernel. Does nothing if the output (the first
/// operand) is defined and has no elements.
template <class Op, class First, class... Rest>
void launch(const First& first, const Rest&... rest) {
  const View y = detail::lower(first);
  if (y.data != nullptr && y.numel() == 0) return;
  detail::launch_lowered<Op>(y, detail::lower(rest)...);
}

}  // namespace trireme
