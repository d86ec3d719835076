// The driver's virtual memory management, as its documentation has it. Memory is a part of a file without a name, which
// is mapped where it is wanted; it is NaN when it is made.
#include "virtual_memory.h"

#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "emulator/api.h"
#include "fence.h"
#include "finish.h"
#include "settings.h"

namespace emulator {
namespace {

constexpr std::size_t granularity = std::size_t{2} << 20;
constexpr int unwritten = 0xff;

struct Allocation {
  int device;
  std::size_t bytes, offset;  // in the file
  int mappings = 0;
  bool released = false;
};
struct Mapping {
  std::size_t bytes;
  CUmemGenericAllocationHandle memory;
  std::set<int> devices = {};  // that have access
};

struct Space {
  std::mutex mutex;
  std::atomic<bool> used = false;
  std::map<std::uintptr_t, std::size_t> ranges;
  std::map<std::uintptr_t, Mapping> mappings;
  std::map<CUmemGenericAllocationHandle, Allocation> allocations;
  std::multimap<std::size_t, std::size_t> free;  // bytes -> offset
  CUmemGenericAllocationHandle next = 1;
  std::size_t end = 0;
  const int file = memfd_create("emulated device memory", MFD_CLOEXEC);

  bool within_range(std::uintptr_t at, std::size_t bytes) const {
    const auto range = ranges.upper_bound(at);
    return range != ranges.begin() && at + bytes <= std::prev(range)->first + std::prev(range)->second;
  }
  /// The mapping that holds `at`.
  std::map<std::uintptr_t, Mapping>::iterator holding(std::uintptr_t at) {
    auto m = mappings.upper_bound(at);
    if (m == mappings.begin()) return mappings.end();
    --m;
    return at < m->first + m->second.bytes ? m : mappings.end();
  }
  /// The first mapping of [at, at + bytes), which consists of whole ones; else end().
  std::map<std::uintptr_t, Mapping>::iterator whole(std::uintptr_t at, std::size_t bytes) {
    const auto first = mappings.find(at);
    std::uintptr_t to = at;
    for (auto m = first; m != mappings.end() && m->first == to && to < at + bytes; ++m) to += m->second.bytes;
    return bytes > 0 && to == at + bytes ? first : mappings.end();
  }
  void end_if_unused(CUmemGenericAllocationHandle memory) {
    const auto at = allocations.find(memory);
    if (!at->second.released || at->second.mappings > 0) return;
    free.emplace(at->second.bytes, at->second.offset);
    uncharge(at->second.device, at->second.bytes);
    allocations.erase(at);
  }
};
Space& space() {
  static Space& s = *new Space;
  return s;
}

bool is_multiple(std::size_t bytes) { return bytes > 0 && bytes % granularity == 0; }
void* pointer(std::uintptr_t at) { return reinterpret_cast<void*>(at); }
bool exists(const CUmemLocation& l) {
  return l.type == CU_MEM_LOCATION_TYPE_DEVICE && l.id >= 0 && l.id < settings().devices;
}

/// Nothing is there, not even for who holds DeviceAccess.
bool fence_off(std::uintptr_t at, std::size_t bytes) {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return mmap(pointer(at), bytes, PROT_NONE, flags, -1, 0) != MAP_FAILED;
}

}  // namespace

std::optional<Block> find_mapped(const void* p) {
  Space& s = space();
  if (!s.used) return {};
  std::lock_guard lock(s.mutex);
  const auto at = s.holding(reinterpret_cast<std::uintptr_t>(p));
  if (at == s.mappings.end()) return {};
  const auto device = [&](const auto& m) { return s.allocations.at(m.second.memory).device; };
  auto first = at, last = at;
  while (first != s.mappings.begin()) {
    const auto before = std::prev(first);
    if (before->first + before->second.bytes != first->first || device(*before) != device(*at)) break;
    first = before;
  }
  for (auto next = std::next(last); next != s.mappings.end(); last = next++)
    if (last->first + last->second.bytes != next->first || device(*next) != device(*at)) break;
  return Block{device(*at), static_cast<char*>(pointer(first->first)), last->first + last->second.bytes - first->first,
               true};
}

bool is_accessible(const void* p, std::size_t bytes, int device) {
  Space& s = space();
  std::lock_guard lock(s.mutex);
  const auto begin = reinterpret_cast<std::uintptr_t>(p), end = begin + std::max<std::size_t>(bytes, 1);
  for (std::uintptr_t at = begin; at < end;) {
    const auto m = s.holding(at);
    if (m == s.mappings.end() || !m->second.devices.contains(device)) return false;
    at = m->first + m->second.bytes;
  }
  return true;
}

bool is_reserved(const void* p) {
  Space& s = space();
  if (!s.used) return false;
  std::lock_guard lock(s.mutex);
  return s.within_range(reinterpret_cast<std::uintptr_t>(p), 1);
}

}  // namespace emulator

using namespace emulator;

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (device < 0 || device >= settings().devices) return CUDA_ERROR_INVALID_DEVICE;
  if (attribute != CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) return CUDA_ERROR_INVALID_VALUE;
  *value = settings().virtual_memory;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* of,
                                       CUmemAllocationGranularity_flags) {
  if (!exists(of->location)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = granularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* at, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  if (!is_multiple(bytes) || (alignment & (alignment - 1)) != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  explain_faults();
  const std::size_t step = std::max(alignment, granularity);
  void* found = mmap(nullptr, bytes + step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<std::uintptr_t>(found), start = (begin + step - 1) / step * step;
  if (start > begin) munmap(found, start - begin);
  munmap(pointer(start + bytes), begin + step - start);
  std::lock_guard lock(space().mutex);
  space().used = true;
  space().ranges[start] = bytes;
  *at = start;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, std::size_t bytes) {
  Space& s = space();
  std::lock_guard lock(s.mutex);
  const auto range = s.ranges.find(at);
  if (range == s.ranges.end() || range->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto inside = s.mappings.lower_bound(at);
  if (inside != s.mappings.end() && inside->first < at + bytes) return CUDA_ERROR_INVALID_VALUE;
  s.ranges.erase(range);
  munmap(pointer(at), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* memory, std::size_t bytes, const CUmemAllocationProp* of,
                     unsigned long long flags) {
  if (!exists(of->location)) return CUDA_ERROR_INVALID_DEVICE;
  if (!is_multiple(bytes) || of->type != CU_MEM_ALLOCATION_TYPE_PINNED || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!charge(of->location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Space& s = space();
  std::lock_guard lock(s.mutex);
  std::size_t offset = s.end;
  if (const auto kept = s.free.find(bytes); kept != s.free.end()) {
    offset = kept->second;
    s.free.erase(kept);
  } else if (ftruncate(s.file, static_cast<off_t>(s.end += bytes)) != 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  void* seen = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s.file, static_cast<off_t>(offset));
  if (seen == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(seen, unwritten, bytes);
  munmap(seen, bytes);
  *memory = s.next++;
  s.allocations[*memory] = {of->location.id, bytes, offset};
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle memory) {
  Space& s = space();
  std::lock_guard lock(s.mutex);
  const auto at = s.allocations.find(memory);
  if (at == s.allocations.end() || at->second.released) return CUDA_ERROR_INVALID_VALUE;
  at->second.released = true;
  s.end_if_unused(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle memory,
                  unsigned long long flags) {
  Space& s = space();
  std::lock_guard lock(s.mutex);
  const auto of = s.allocations.find(memory);
  if (of == s.allocations.end() || of->second.released || offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_multiple(bytes) || at % granularity != 0 || bytes != of->second.bytes || !s.within_range(at, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  const auto next = s.mappings.lower_bound(at);
  if (s.holding(at) != s.mappings.end() || (next != s.mappings.end() && next->first < at + bytes))
    return CUDA_ERROR_INVALID_VALUE;  // something is mapped there
  s.mappings[at] = {bytes, memory};
  ++of->second.mappings;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, std::size_t bytes) {
  Space& s = space();
  std::lock_guard lock(s.mutex);
  auto m = s.whole(at, bytes);
  if (m == s.mappings.end() || !fence_off(at, bytes)) return CUDA_ERROR_INVALID_VALUE;
  while (m != s.mappings.end() && m->first < at + bytes) {
    const auto memory = m->second.memory;
    m = s.mappings.erase(m);
    --s.allocations.at(memory).mappings;
    s.end_if_unused(memory);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* all, std::size_t count) {
  Space& s = space();
  std::lock_guard lock(s.mutex);
  auto m = s.whole(at, bytes);
  if (m == s.mappings.end() || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i)
    if (!exists(all[i].location)) return CUDA_ERROR_INVALID_DEVICE;
  for (; m != s.mappings.end() && m->first < at + bytes; ++m) {
    const Allocation& of = s.allocations.at(m->second.memory);
    if (m->second.devices.empty()) {
      constexpr int flags = MAP_SHARED | MAP_FIXED;
      if (mmap(pointer(m->first), m->second.bytes, PROT_READ | PROT_WRITE, flags, s.file,
               static_cast<off_t>(of.offset)) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
      fence(pointer(m->first), m->second.bytes);
    }
    for (std::size_t i = 0; i < count; ++i)
      if (all[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) m->second.devices.insert(all[i].location.id);
  }
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** call, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* how) {
  const std::pair<std::string_view, void*> calls[] = {
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(cuDeviceGetAttribute)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(cuMemGetAllocationGranularity)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(cuMemAddressReserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(cuMemAddressFree)},
      {"cuMemCreate", reinterpret_cast<void*>(cuMemCreate)},
      {"cuMemRelease", reinterpret_cast<void*>(cuMemRelease)},
      {"cuMemMap", reinterpret_cast<void*>(cuMemMap)},
      {"cuMemUnmap", reinterpret_cast<void*>(cuMemUnmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(cuMemSetAccess)},
  };
  *call = nullptr;
  *how = cudaDriverEntryPointSymbolNotFound;
  for (const auto& [known, at] : calls)
    if (known == name) {
      *call = at;
      *how = cudaDriverEntryPointSuccess;
    }
  constexpr unsigned first = 10020;
  if (*call && version < first) {
    *call = nullptr;
    *how = cudaDriverEntryPointVersionNotSufficent;
  }
  return finish(cudaSuccess);
}
