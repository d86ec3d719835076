#include "kernels/core/vendor.h"

#include "kernels/cpu/dnnl.h"
#include "kernels/cpu/levels.h"

namespace trireme {
namespace {
/// The instruction sets that oneDNN uses, after a comma; none for families that it has no names for.
std::string isa() {
  if (!detail::is_x86_64) return "";
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41: return ", SSE4.1";
    case dnnl::cpu_isa::avx: return ", AVX";
    case dnnl::cpu_isa::avx2: return ", AVX2";
    case dnnl::cpu_isa::avx512_core: return ", AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni: return ", AVX-512 with VNNI";
    case dnnl::cpu_isa::avx512_core_bf16: return ", AVX-512 with bf16";
    default: return ", AVX-512 or newer";
  }
}
}  // namespace

VendorClock& vendor_clock() {
  thread_local VendorClock clock;
  return clock;
}

std::string cpu_library() {
  const dnnl::version_t* v = dnnl::version();
  return fmt::format("oneDNN {}.{}.{}, OpenMP{}", v->major, v->minor, v->patch, isa());
}

}  // namespace trireme
