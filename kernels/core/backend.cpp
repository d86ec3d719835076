#include "kernels/core/backend.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

#include "kernels/core/runtime.h"
#include "kernels/core/vendor.h"

namespace trireme {
namespace {

constexpr const char* plugin_name = "libtrireme_cuda.so";

/// The plugin is next to the file that contains this function, wherever that was installed.
std::string plugin_path() {
  if (const char* given = ::secure_getenv("TRIREME_CUDA_PLUGIN")) return given;
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&plugin_path), &self) == 0 || self.dli_fname == nullptr) return plugin_name;
  const std::string file = self.dli_fname;
  const auto slash = file.rfind('/');
  return (slash == std::string::npos ? "" : file.substr(0, slash + 1)) + plugin_name;
}

/// Without the driver's library CUDA cannot work. Looking for it is cheaper than opening the plugin, which loads a
/// gigabyte of libraries.
bool driver_missing() {
  return ::secure_getenv("TRIREME_CUDA_PLUGIN") == nullptr && dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr;
}

Backend open_cuda() {
  Backend backend;
  if (driver_missing()) {
    backend.absent = "no NVIDIA driver is installed (libcuda.so.1 is not found)";
    return backend;
  }
  const std::string path = plugin_path();
  void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // its kernels register themselves
  if (plugin == nullptr) {
    const char* why = dlerror();
    backend.absent = why != nullptr ? why : path + " cannot be opened";
    return backend;
  }
  using Open = void(Backend&);
  auto* open = reinterpret_cast<Open*>(dlsym(plugin, "trireme_cuda_open"));
  if (open == nullptr)
    backend.absent = path + " is not Trireme's CUDA plugin";
  else
    open(backend);
  return backend;
}

std::atomic<MatmulPrecision> product = MatmulPrecision::highest;
std::atomic<bool> same_bits = true;

}  // namespace

const Backend& open_backend(DeviceKind kind) {
  if (kind == DeviceKind::cuda) {
    static const Backend& cuda = *new Backend(open_cuda());
    return cuda;
  }
  static const Backend& host = *new Backend{1, {}, cpu_library(), {"CPU"}};
  return host;
}

void set_f32_product(MatmulPrecision p) { product = p; }
MatmulPrecision f32_product() { return product; }
void set_deterministic(bool on) { same_bits = on; }
bool deterministic() { return same_bits; }

}  // namespace trireme
