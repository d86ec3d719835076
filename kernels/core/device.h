// A Device names where memory lies and kernels run: cpu(0), cuda(1). cpu(1) is a second logical CPU, for tests.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

enum class DeviceKind : std::uint8_t { cpu, cuda };
constexpr int device_kinds = 2;

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

constexpr Device cpu(int index = 0) { return {DeviceKind::cpu, index}; }
constexpr Device cuda(int index = 0) { return {DeviceKind::cuda, index}; }

constexpr std::string_view name_of(DeviceKind kind) { return kind == DeviceKind::cpu ? "cpu" : "cuda"; }
inline std::string to_string(Device d) { return std::string(name_of(d.kind)) + ":" + std::to_string(d.index); }

}  // namespace trireme
