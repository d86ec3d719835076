// The runtime API: devices, memory, copies. Streams and events are in api_stream.cpp.
#include "emulator/api.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "emulator/device_access.h"
#include "finish.h"
#include "memory.h"
#include "settings.h"
#include "stream.h"

using namespace emulator;

namespace {

constexpr int version = 13000, multiprocessors = 4, warp_threads = 32, block_threads = 1024, resident_threads = 2048;
constexpr int l2_bytes = 4 << 20;
constexpr std::size_t shared_bytes = 48 << 10, shared_optin = 227 << 10, shared_all = 228 << 10;

thread_local cudaError_t last = cudaSuccess;

bool exists(int device) { return device >= 0 && device < settings().devices; }

struct Name {
  cudaError_t status;
  const char* name;
  const char* text;
};
constexpr Name names[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", nullptr},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};
const Name& name_of(cudaError_t status) {
  const auto* at = std::find_if(std::begin(names), std::end(names), [&](const Name& n) { return n.status == status; });
  return at == std::end(names) ? names[std::size(names) - 1] : *at;
}

}  // namespace

cudaError_t emulator::finish(cudaError_t status) {
  if (status == cudaSuccess && take_failure()) status = cudaErrorLaunchFailure;
  if (status != cudaSuccess) last = status;
  return status;
}

const char* cudaGetErrorString(cudaError_t status) {
  return status == cudaErrorLaunchFailure ? failure_text() : name_of(status).text;
}
const char* cudaGetErrorName(cudaError_t status) { return name_of(status).name; }
cudaError_t cudaGetLastError() { return std::exchange(last, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last; }

cudaError_t cudaDriverGetVersion(int* v) {
  *v = settings().driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = version;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  const bool old = settings().driver / 1000 < version / 1000;
  *count = old ? 0 : settings().devices;
  if (old) return finish(cudaErrorInsufficientDriver);
  return finish(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return finish(cudaErrorInvalidDevice);
  set_current_device(device);
  return finish(cudaSuccess);
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;  // what a kernel did wrong is for a call that is asked for it
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (!exists(device)) return finish(cudaErrorInvalidDevice);
  *p = {};
  std::snprintf(p->name, sizeof p->name, "Emulated GPU");
  p->uuid.bytes[0] = static_cast<char>(device + 1);
  p->totalGlobalMem = settings().memory;
  p->sharedMemPerBlock = shared_bytes;
  p->sharedMemPerBlockOptin = shared_optin;
  p->sharedMemPerMultiprocessor = shared_all;
  p->regsPerBlock = 65536;
  p->warpSize = warp_threads;
  p->maxThreadsPerBlock = block_threads;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = block_threads;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->major = settings().card / 10;
  p->minor = settings().card % 10;
  p->multiProcessorCount = multiprocessors;
  p->concurrentKernels = 1;
  p->pciDeviceID = device + 1;
  p->unifiedAddressing = 1;
  p->memoryBusWidth = 64;
  p->l2CacheSize = l2_bytes;
  p->maxThreadsPerMultiProcessor = resident_threads;
  return finish(cudaSuccess);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!exists(device)) return finish(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = block_threads; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = shared_bytes; break;
    case cudaDevAttrWarpSize: *value = warp_threads; break;
    case cudaDevAttrMultiProcessorCount: *value = multiprocessors; break;
    case cudaDevAttrL2CacheSize: *value = l2_bytes; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = resident_threads; break;
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    case cudaDevAttrComputeCapabilityMajor: *value = settings().card / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = settings().card % 10; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = shared_all; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_optin; break;
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    default: return finish(cudaErrorInvalidValue);
  }
  return finish(cudaSuccess);
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!exists(device) || !exists(peer)) return finish(cudaErrorInvalidDevice);
  *can = settings().peers && device != peer;
  return finish(cudaSuccess);
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return finish(cudaErrorNotSupported); }
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (!exists(device)) return finish(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return finish(cudaSuccess);
}

cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t s) {
  *p = nullptr;
  if (bytes == 0) return finish(cudaSuccess);
  CUstream_st& stream = stream_of(s);
  if (stream.break_capture()) return finish(cudaErrorStreamCaptureUnsupported);
  *p = allocate(stream.device, bytes);
  if (*p == nullptr) {
    stream.wait();  // for what is being given back
    *p = allocate(stream.device, bytes);
  }
  return finish(*p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  if (p == nullptr) return finish(cudaSuccess);
  const auto block = find(p);
  if (!block || block->data != p || block->is_mapped) return finish(cudaErrorInvalidValue);
  if (stream_of(stream).break_capture()) return finish(cudaErrorStreamCaptureUnsupported);
  enqueue(stream, [p] { give_back(p); });
  return finish(cudaSuccess);
}
cudaError_t cudaMalloc(void** p, std::size_t bytes) { return cudaMallocAsync(p, bytes, nullptr); }
cudaError_t cudaFree(void* p) {
  cudaDeviceSynchronize();
  return cudaFreeAsync(p, nullptr);
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
  *p = allocate_host(bytes);
  return finish(*p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaMallocHost(void** p, std::size_t bytes) { return cudaHostAlloc(p, bytes, 0); }
cudaError_t cudaFreeHost(void* p) {
  return finish(p == nullptr || give_back_host(p) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return finish(find_host(host) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = settings().memory;
  *free = *total - bytes_in_use(current_device());
  return finish(cudaSuccess);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  *a = {cudaMemoryTypeUnregistered, -1, nullptr, const_cast<void*>(p)};
  if (const auto b = find(p)) *a = {cudaMemoryTypeDevice, b->device, const_cast<void*>(p), nullptr};
  if (find_host(p)) *a = {cudaMemoryTypeHost, 0, const_cast<void*>(p), const_cast<void*>(p)};
  return finish(cudaSuccess);
}

namespace {

/// Whether [p, p + bytes) is what this side of a copy asks for.
bool suits(const void* p, std::size_t bytes, bool device_side) {
  const auto b = find(p);
  if (!b) return !device_side || (find_host(p) && on_device(p, bytes, 0));
  return device_side && on_device(p, bytes, b->device);
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, CUstream_st& stream) {
  if (bytes == 0) return cudaSuccess;
  const bool guess = kind == cudaMemcpyDefault;
  const bool to_device =
      guess ? find(to).has_value() : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device =
      guess ? find(from).has_value() : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (!suits(to, bytes, to_device) || !suits(from, bytes, from_device)) return cudaErrorInvalidValue;
  const bool pageable = (!to_device && !find_host(to)) || (!from_device && !find_host(from));
  if (pageable && stream.break_capture()) return cudaErrorStreamCaptureUnsupported;
  if (!from_device && !find_host(from) && settings().async) {  // pageable: CUDA takes it away before it returns
    std::vector<char> taken(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    stream.enqueue([to, taken = std::move(taken)] { std::memcpy(to, taken.data(), taken.size()); });
    return cudaSuccess;
  }
  stream.enqueue([to, from, bytes] { std::memmove(to, from, bytes); });
  if (!to_device && !find_host(to)) stream.wait();
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return finish(copy(to, from, bytes, kind, stream_of(stream)));
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  CUstream_st& stream = stream_of(nullptr);
  const cudaError_t status = copy(to, from, bytes, kind, stream);
  stream.wait();
  return finish(status);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream) {
  const auto a = find(to), b = find(from);
  if (bytes > 0 && (!a || !b || a->device != to_device || b->device != from_device))
    return finish(cudaErrorInvalidValue);
  return finish(copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(stream)));
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return finish(cudaErrorInvalidValue);
  for (std::size_t row = 0; row < height; ++row)
    if (const cudaError_t status =
            copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width,
                 kind, stream_of(stream));
        status != cudaSuccess)
      return finish(status);
  return finish(cudaSuccess);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return finish(cudaSuccess);
  if (!suits(to, bytes, true)) return finish(cudaErrorInvalidValue);
  enqueue(stream, [to, value, bytes] { std::memset(to, value, bytes); });
  return finish(cudaSuccess);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }

struct CUmemPoolHandle_st {
  int device;
  std::uint64_t kept = 0;
};

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (!exists(device)) return finish(cudaErrorInvalidDevice);
  static auto& pools = *new std::vector<CUmemPoolHandle_st>([] {
    std::vector<CUmemPoolHandle_st> all;
    for (int i = 0; i < settings().devices; ++i) all.push_back({i});
    return all;
  }());
  *pool = &pools[static_cast<std::size_t>(device)];
  return finish(cudaSuccess);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (attribute == cudaMemPoolAttrReleaseThreshold) pool->kept = *static_cast<std::uint64_t*>(value);
  return finish(cudaSuccess);
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  auto& number = *static_cast<std::uint64_t*>(value);
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold: number = pool->kept; break;
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent: number = bytes_in_use(pool->device); break;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh: number = most_in_use(pool->device); break;
    default: *static_cast<int*>(value) = 1;
  }
  return finish(cudaSuccess);
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return finish(cudaSuccess); }
