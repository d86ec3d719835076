// The plugin's entry point: looks for devices and, where there are some, gives the library their runtime. The kernels
// have registered themselves by then.
#include "kernels/cuda/plugin.h"

#include <nvtx3/nvToolsExt.h>

#include "kernels/core/backend.h"
#include "kernels/core/named_range.h"
#include "kernels/cuda/device.h"

namespace trireme::gpu {
namespace {

/// Layers and phases show in NVIDIA's profilers.
const NamedRange::Listener profiler{[](const char* name) { nvtxRangePushA(name); }, [] { nvtxRangePop(); }};

/// The oldest cards that the kernels are compiled for.
constexpr int least_major = 8;

std::string version_text(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

std::string why_none(cudaError_t status) {
  int driver = 0, toolkit = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&toolkit);
  if (status == cudaErrorInsufficientDriver && driver == 0) return "no NVIDIA driver is loaded";
  if (status == cudaErrorInsufficientDriver)
    return fmt::format("the driver knows CUDA {}, this build wants {}: update the driver", version_text(driver),
                       version_text(toolkit));
  if (status == cudaErrorNoDevice) return "the driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it)";
  return fmt::format("CUDA says: {}", cudaGetErrorString(status));
}

void open(Backend& backend) {
  int toolkit = 0, count = 0;
  (void)cudaRuntimeGetVersion(&toolkit);
  backend.library = fmt::format("CUDA {}, {}, {}", version_text(toolkit), cudnn_version(), cublas_version());
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    backend.absent = why_none(status);
    return;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp about{};
    ok(cudaGetDeviceProperties(&about, i), "cuda");
    if (about.major < least_major) {
      backend.absent =
          fmt::format("{} (sm_{}{}) is too old: sm_{}0 is needed", about.name, about.major, about.minor, least_major);
      break;  // devices are numbered without gaps: those before it serve
    }
    backend.names.push_back(fmt::format("{}, {:.0f} GB, sm_{}{}", about.name,
                                        static_cast<double>(about.totalGlobalMem) / 1e9, about.major, about.minor));
  }
  backend.devices = static_cast<int>(backend.names.size());
  if (backend.devices == 0) return;
  set_runtime(DeviceKind::cuda, &device_runtime());
  NamedRange::listen(&profiler);
}

}  // namespace
}  // namespace trireme::gpu

/// The one symbol that the library looks up (kernels/core/backend.cpp).
extern "C" [[gnu::visibility("default")]] void trireme_cuda_open(trireme::Backend& backend) {
  try {
    trireme::gpu::open(backend);
  } catch (const std::exception& e) {
    backend.devices = 0;
    backend.absent = e.what();
  }
}
