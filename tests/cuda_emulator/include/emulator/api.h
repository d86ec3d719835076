// The part of CUDA's runtime API that the backend uses, with CUDA's names and numbers.
#pragma once
#include "emulator/types.h"

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorUnknown = 999,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrUnifiedAddressing = 41,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMemoryPoolsSupported = 115,
};
enum cudaMemPoolAttr {
  cudaMemPoolReuseFollowEventDependencies = 1,
  cudaMemPoolReuseAllowOpportunistic,
  cudaMemPoolReuseAllowInternalDependencies,
  cudaMemPoolAttrReleaseThreshold,
  cudaMemPoolAttrReservedMemCurrent,
  cudaMemPoolAttrReservedMemHigh,
  cudaMemPoolAttrUsedMemCurrent,
  cudaMemPoolAttrUsedMemHigh,
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum : unsigned {
  cudaStreamDefault = 0,
  cudaStreamNonBlocking = 1,
  cudaEventDefault = 0,
  cudaEventBlockingSync = 1,
  cudaEventDisableTiming = 2,
  cudaEventRecordDefault = 0,
  cudaEventWaitDefault = 0,
  cudaHostAllocDefault = 0,
  cudaHostAllocPortable = 1,
  cudaHostAllocMapped = 2,
  cudaHostAllocWriteCombined = 4,
};

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
using cudaMemPool_t = struct CUmemPoolHandle_st*;
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  std::size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize, maxThreadsPerBlock;
  int maxThreadsDim[3], maxGridSize[3];
  int major, minor, multiProcessorCount, integrated, concurrentKernels, ECCEnabled;
  int pciBusID, pciDeviceID, pciDomainID, unifiedAddressing, memoryBusWidth, l2CacheSize, maxThreadsPerMultiProcessor;
  std::size_t sharedMemPerMultiprocessor, sharedMemPerBlockOptin;
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
};

// Errors. The text of cudaErrorLaunchFailure says what the last kernel that failed did.
const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

// Devices
cudaError_t cudaDriverGetVersion(int*);
cudaError_t cudaRuntimeGetVersion(int*);
cudaError_t cudaGetDeviceCount(int*);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDevice(int*);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int device);
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceCanAccessPeer(int*, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDeviceGetPCIBusId(char*, int length, int device);

// Memory
cudaError_t cudaMalloc(void**, std::size_t);
cudaError_t cudaFree(void*);
cudaError_t cudaMallocAsync(void**, std::size_t, cudaStream_t);
cudaError_t cudaFreeAsync(void*, cudaStream_t);
cudaError_t cudaHostAlloc(void**, std::size_t, unsigned flags);
cudaError_t cudaMallocHost(void**, std::size_t);
cudaError_t cudaFreeHost(void*);
cudaError_t cudaHostGetDevicePointer(void**, void* host, unsigned flags);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, const void*);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t, cudaMemcpyKind, cudaStream_t = nullptr);
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t,
                                cudaStream_t = nullptr);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t = nullptr);
cudaError_t cudaMemset(void*, int value, std::size_t);
cudaError_t cudaMemsetAsync(void*, int value, std::size_t, cudaStream_t = nullptr);
template <class T>
cudaError_t cudaMalloc(T** p, std::size_t n) {
  return cudaMalloc(reinterpret_cast<void**>(p), n);
}
template <class T>
cudaError_t cudaMallocAsync(T** p, std::size_t n, cudaStream_t s) {
  return cudaMallocAsync(reinterpret_cast<void**>(p), n, s);
}
template <class T>
cudaError_t cudaHostAlloc(T** p, std::size_t n, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(p), n, flags);
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t keep);

// The driver's own calls (cuda.h), by name.
enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess,
  cudaDriverEntryPointSymbolNotFound,
  cudaDriverEntryPointVersionNotSufficent
};
enum : unsigned long long { cudaEnableDefault = 0 };
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** call, unsigned version, unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* how = nullptr);

// Streams and events
cudaError_t cudaStreamCreate(cudaStream_t*);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t*, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*)(void*), void*);
cudaError_t cudaEventCreate(cudaEvent_t*);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);

// Graphs. What memory is taken and given back, what waits and what is copied from or to pageable memory breaks a
// capture here, although CUDA knows how to note some of it: the backend keeps all that out of its graphs.
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
