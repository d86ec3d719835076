// The part of CUDA's driver API that the backend uses, with CUDA's names and numbers: virtual memory management.
#pragma once
#include <cstddef>

enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_INVALID_DEVICE = 101,
};
enum CUdevice_attribute { CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102 };
enum CUmemAllocationType { CU_MEM_ALLOCATION_TYPE_INVALID, CU_MEM_ALLOCATION_TYPE_PINNED };
enum CUmemAllocationHandleType { CU_MEM_HANDLE_TYPE_NONE };
enum CUmemLocationType { CU_MEM_LOCATION_TYPE_INVALID, CU_MEM_LOCATION_TYPE_DEVICE };
enum CUmemAllocationGranularity_flags { CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED };
enum CUmemAccess_flags {
  CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
  CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
};

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
struct CUmemLocation {
  CUmemLocationType type;
  int id;
};
struct CUmemAllocationProp {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};
struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};

extern "C" {
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice);
CUresult cuMemGetAllocationGranularity(std::size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags);
CUresult cuMemAddressReserve(CUdeviceptr*, std::size_t bytes, std::size_t alignment, CUdeviceptr wish,
                             unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr, std::size_t bytes);
CUresult cuMemCreate(CUmemGenericAllocationHandle*, std::size_t bytes, const CUmemAllocationProp*,
                     unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemMap(CUdeviceptr, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle,
                  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr, std::size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr, std::size_t bytes, const CUmemAccessDesc*, std::size_t count);
}
