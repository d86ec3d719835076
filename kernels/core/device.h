// Device: where memory is and kernels run: cpu(0), cuda(1). cpu(1) is a second logical CPU, for tests.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// A kind of device. Each has one Runtime (kernels/core/runtime.h) and its own kernels.
enum class DeviceKind : std::uint8_t { cpu, cuda };
constexpr int device_kinds = 2;  ///< number of enumerators of DeviceKind

/// A device, as torch.device; the default is cpu:0. The device need not exist on this machine.
struct Device {
  DeviceKind kind = DeviceKind::cpu;               ///< cpu or cuda
  int index = 0;                                   ///< from 0; CUDA's device ordinal
  bool operator==(const Device&) const = default;  ///< same kind and index
};

constexpr Device cpu(int index = 0) { return {DeviceKind::cpu, index}; }    ///< "cpu:index"
constexpr Device cuda(int index = 0) { return {DeviceKind::cuda, index}; }  ///< "cuda:index"

/// "cpu" or "cuda".
constexpr std::string_view name_of(DeviceKind kind) { return kind == DeviceKind::cpu ? "cpu" : "cuda"; }
/// "cuda:1", as in PyTorch.
inline std::string to_string(Device d) { return std::string(name_of(d.kind)) + ":" + std::to_string(d.index); }

}  // namespace trireme
