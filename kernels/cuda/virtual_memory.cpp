#include "kernels/cuda/virtual_memory.h"

#include <cuda.h>

#include <algorithm>

#include "kernels/core/environment.h"

namespace trireme::gpu {
namespace {

constexpr int nan_byte = 0xff;
constexpr unsigned since = 10020;  // the CUDA that these calls came with

/// The driver's functions, looked up by name, since the plugin is also opened on machines without libcuda.
struct Driver {
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  bool there = look_up("cuDeviceGetAttribute", attribute) && look_up("cuMemGetAllocationGranularity", granularity) &&
               look_up("cuMemAddressReserve", reserve) && look_up("cuMemAddressFree", free) &&
               look_up("cuMemCreate", create) && look_up("cuMemRelease", release) && look_up("cuMemMap", map) &&
               look_up("cuMemUnmap", unmap) && look_up("cuMemSetAccess", set_access);

 private:
  template <class Call>
  static bool look_up(const char* name, Call& call) {
    void* found = nullptr;
    auto how = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &found, since, cudaEnableDefault, &how);
    if (status != cudaSuccess) (void)cudaGetLastError();
    call = reinterpret_cast<Call>(found);
    return status == cudaSuccess && how == cudaDriverEntryPointSuccess && call != nullptr;
  }
};
const Driver& driver() {
  static const Driver d;
  return d;
}

CUmemAllocationProp memory_of(int device) {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = device;
  return p;
}
bool set_access(std::uintptr_t at, std::size_t bytes, const std::vector<int>& devices) {
  std::vector<CUmemAccessDesc> all;
  for (const int d : devices) {
    CUmemAccessDesc& access = all.emplace_back();
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = d;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return driver().set_access(at, bytes, all.data(), all.size()) == CUDA_SUCCESS;
}
void set_bytes(const On& on, std::uintptr_t begin, std::uintptr_t end, int byte) {
  ok(cudaMemsetAsync(reinterpret_cast<void*>(begin), byte, end - begin, on.main_stream()), on.op());
}
bool reaches(int device, int other) {
  int can = 0;
  return device == other || (cudaDeviceCanAccessPeer(&can, device, other) == cudaSuccess && can != 0);
}

/// Bytes of a chunk; 0: not supported by the device or driver, or disabled by the environment.
std::size_t chunk_of(int device) {
  if (environment_text("TRIREME_CUDA_VIRTUAL_MEMORY") == "off" || !driver().there) return 0;
  int can = 0;
  const auto able = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
  if (driver().attribute(&can, able, device) != CUDA_SUCCESS || can == 0) return 0;
  std::size_t bytes = 0;
  const CUmemAllocationProp kind = memory_of(device);
  const CUresult status = driver().granularity(&bytes, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  return status == CUDA_SUCCESS ? bytes : 0;
}

}  // namespace

VirtualMemory::Card& VirtualMemory::card(int device) {
  const auto [at, first] = cards_.try_emplace(device);
  if (!first) return at->second;
  at->second.chunk = chunk_of(device);
  if (at->second.chunk > 0) grant(device);
  return at->second;
}

/// Gives a new device access to the memory that others have mapped.
void VirtualMemory::grant(int device) {
  for (const auto& [begin, b] : blocks_)
    for (std::size_t i = 0; i < b.chunks.size(); ++i)
      if (b.chunks[i].state != State::gone && reaches(device, b.device))
        (void)set_access(b.at(i), b.chunk, {b.device, device});
}

VirtualMemory::Block* VirtualMemory::block_of(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return nullptr;
  Block& b = std::prev(next)->second;
  return at < b.begin + b.bytes ? &b : nullptr;
}

/// Chunks [first, last), which are gone. False: there is no memory, and they still are.
bool VirtualMemory::map(Block& b, std::size_t first, std::size_t last) {
  const CUmemAllocationProp kind = memory_of(b.device);
  std::size_t end = first;
  for (; end < last; ++end) {
    CUmemGenericAllocationHandle memory{};
    if (driver().create(&memory, b.chunk, &kind, 0) != CUDA_SUCCESS) break;
    const bool mapped = driver().map(b.at(end), b.chunk, 0, memory, 0) == CUDA_SUCCESS;
    (void)driver().release(memory);  // it lives as long as it is mapped
    if (!mapped) break;
  }
  std::vector<int> devices{b.device};
  for (const auto& [device, card] : cards_)
    if (device != b.device && card.chunk > 0 && reaches(device, b.device)) devices.push_back(device);
  const bool done = end == last && set_access(b.at(first), (last - first) * b.chunk, devices);
  for (std::size_t i = first; i < end; ++i)
    done ? void(b.chunks[i] = {State::mapped}) : void(driver().unmap(b.at(i), b.chunk));
  return done;
}

void* VirtualMemory::allocate(const On& on, std::size_t bytes, bool mapped) {
  for (bool again = false;; again = true) {
    std::unique_lock lock(mutex_);
    const std::size_t chunk = card(on.device().index).chunk;
    if (chunk == 0 || bytes < chunk || capture(on.device())) return nullptr;
    const std::size_t chunks = (bytes + chunk - 1) / chunk;
    CUdeviceptr begin = 0;
    if (driver().reserve(&begin, chunks * chunk, chunk, 0, 0) != CUDA_SUCCESS) return nullptr;
    Block b{begin, bytes, chunk, on.device().index, std::vector<Chunk>(chunks, Chunk{.zero = !mapped})};
    if (!mapped || map(b, 0, chunks)) {
      if (mapped)
        count_(static_cast<std::ptrdiff_t>(chunks * chunk));
      else
        missing_.fetch_add(chunks, std::memory_order_relaxed);
      least_ = std::min<std::size_t>(least_, chunk);
      blocks_.emplace(begin, std::move(b));
      return reinterpret_cast<void*>(begin);
    }
    (void)driver().free(begin, chunks * chunk);
    lock.unlock();
    if (again) return nullptr;
    make_room(on);
  }
}

/// Marks chunks [first, last) as unused, once the device has finished the work submitted so far.
void VirtualMemory::leave(const On& on, Card& card, Block& b, std::size_t first, std::size_t last, bool ends) {
  std::size_t left = 0;
  for (std::size_t i = first; i < last; ++i)
    if (b.chunks[i].state == State::mapped) {
      b.chunks[i] = {State::leaving, next_};
      ++left;
    }
  missing_.fetch_add(left, std::memory_order_relaxed);
  count_(-static_cast<std::ptrdiff_t>(left * b.chunk));
  if (left == 0 && !ends) return;
  if (card.events.empty()) {
    cudaEvent_t made = nullptr;
    ok(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), on.op());
    card.events.push_back(made);
  }
  card.leaving.push_back({card.events.back(), next_++, &b, first, last, ends});
  card.events.pop_back();
  leaving_.fetch_add(1, std::memory_order_relaxed);
  ok(cudaEventRecord(card.leaving.back().passed, on.main_stream()), on.op());
}

bool VirtualMemory::release(const On& on, void* block, std::size_t bytes) {
  if (bytes < least_.load(std::memory_order_relaxed)) return false;
  std::unique_lock lock(mutex_);
  Block* b = block_of(block);
  if (b == nullptr) return false;
  leave(on, card(b->device), *b, 0, b->chunks.size(), true);
  reclaim_passed(lock, on, false);
  return true;
}

bool VirtualMemory::discard(const On& on, void* from, std::size_t bytes, bool zero) {
  std::unique_lock lock(mutex_);
  Block* b = block_of(from);
  if (b == nullptr) return false;
  if (zero) refuse_capture(on);
  if (capture(on.device())) return true;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(from), end = begin + bytes;
  const std::size_t first = (begin - b->begin + b->chunk - 1) / b->chunk;
  // The last chunk of a block contains nothing else.
  const std::size_t last = end == b->begin + b->bytes ? b->chunks.size() : (end - b->begin) / b->chunk;
  const auto spoil = [&](std::uintptr_t at, std::uintptr_t stop) {
    if (at >= stop) return;
    Chunk& edge = b->chunks[(at - b->begin) / b->chunk];
    if (edge.state == State::mapped) return set_bytes(on, at, stop, zero ? 0 : nan_byte);
    edge.zero = edge.zero || zero;  // restore() fills the whole chunk, whose other contents are undefined or 0
  };
  const std::uintptr_t edge = std::min(end, b->at(first));
  spoil(begin, edge);
  spoil(std::max(edge, std::min(end, b->at(last))), end);
  if (first < last) leave(on, card(b->device), *b, first, last, false);
  for (std::size_t i = first; i < last; ++i) b->chunks[i].zero = zero;
  reclaim_passed(lock, on, false);
  return true;
}

bool VirtualMemory::restore(const On& on, void* from, std::size_t bytes) {
  if (bytes == 0) return true;
  for (bool again = false;; again = true) {
    std::unique_lock lock(mutex_);
    Block* b = block_of(from);
    if (b == nullptr) return true;
    reclaim_passed(lock, on, false);
    const std::size_t begin = reinterpret_cast<std::uintptr_t>(from) - b->begin;
    const std::size_t first = begin / b->chunk, last = (begin + bytes + b->chunk - 1) / b->chunk;
    bool there = true;
    for (std::size_t i = first; i < last && there; ++i) {
      if (b->chunks[i].state == State::mapped) continue;
      refuse_capture(on);
      const Chunk before = b->chunks[i];
      const bool leaving = before.state == State::leaving;
      std::size_t end = i + 1;
      if (leaving) {
        b->chunks[i] = {State::mapped};
      } else {
        while (end < last && b->chunks[end].state == State::gone && b->chunks[end].zero == before.zero) ++end;
        if (!(there = map(*b, i, end))) break;
      }
      if (leaving || before.zero)
        set_bytes(on, b->at(i), std::min(b->at(end), b->begin + b->bytes), before.zero ? 0 : nan_byte);
      missing_.fetch_sub(end - i, std::memory_order_relaxed);
      count_(static_cast<std::ptrdiff_t>((end - i) * b->chunk));
    }
    if (there || again) return there;
    lock.unlock();
    make_room(on);
  }
}

std::size_t VirtualMemory::resident(const void* from, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  const Block* b = block_of(from);
  if (b == nullptr) return bytes;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(from), end = begin + bytes;
  std::size_t sum = 0;
  for (std::size_t i = (begin - b->begin) / b->chunk; i < b->chunks.size() && b->at(i) < end; ++i)
    if (b->chunks[i].state == State::mapped) sum += std::min(end, b->at(i + 1)) - std::max(begin, b->at(i));
  return sum;
}

/// Chunks that came into use again meanwhile are skipped.
void VirtualMemory::unmap(const Batch& batch) {
  Block& b = *batch.block;
  for (std::size_t i = batch.first; i < batch.last; ++i) {
    if (b.chunks[i].state != State::leaving || (b.chunks[i].batch != batch.number && !batch.ends)) continue;
    (void)driver().unmap(b.at(i), b.chunk);
    b.chunks[i].state = State::gone;
  }
  if (!batch.ends) return;
  missing_.fetch_sub(b.chunks.size(), std::memory_order_relaxed);
  (void)driver().free(b.begin, b.chunks.size() * b.chunk);
  blocks_.erase(b.begin);
}

// An event may wait for another rank, which is a thread that calls this function: the mutex is not held meanwhile.
bool VirtualMemory::reclaim_passed(std::unique_lock<std::mutex>& lock, const On& on, bool wait) {
  const auto found = cards_.find(on.device().index);
  if (found == cards_.end() || capture(on.device())) return false;
  Card& card = found->second;
  bool any = false;
  while (!card.leaving.empty()) {
    const Batch batch = card.leaving.front();
    const cudaError_t status = cudaEventQuery(batch.passed);
    if (status != cudaSuccess) {
      (void)cudaGetLastError();  // "not ready" counts as an error
      if (!wait || status != cudaErrorNotReady) break;
      lock.unlock();
      const cudaError_t over = cudaEventSynchronize(batch.passed);
      lock.lock();
      ok(over, on.op());
      continue;
    }
    card.leaving.pop_front();
    leaving_.fetch_sub(1, std::memory_order_relaxed);
    card.events.push_back(batch.passed);
    unmap(batch);
    any = true;
  }
  return any;
}

bool VirtualMemory::reclaim(const On& on, bool wait) {
  std::unique_lock lock(mutex_);
  return reclaim_passed(lock, on, wait);
}

/// Returns chunks that are leaving, and released blocks that the pool keeps, to the driver.
void VirtualMemory::make_room(const On& on) {
  refuse_capture(on);
  (void)reclaim(on, true);
  ok(cudaStreamSynchronize(on.main_stream()), on.op());
  cudaMemPool_t pool = nullptr;
  ok(cudaDeviceGetDefaultMemPool(&pool, on.device().index), on.op());
  ok(cudaMemPoolTrimTo(pool, 0), on.op());
}

}  // namespace trireme::gpu
