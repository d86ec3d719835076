// Memory of CUDA devices: the driver's stream-ordered pool, virtual memory for blocks that are released in parts, and
// copies through pinned host memory.
#include "kernels/core/runtime.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/core/named_range.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/plugin.h"
#include "kernels/cuda/virtual_memory.h"

namespace trireme::gpu {
namespace {

/// Pinned host memory for copies between host and devices. Outgoing copies need no wait, and incoming ones wait for an
/// event. With pageable memory the driver itself would wait, and nothing could interrupt it.
class Staging {
 public:
  /// Copies from `from` and returns; the device receives it in the order of its stream.
  void send(const On& on, void* to, const void* from, std::size_t bytes) {
    refuse_capture(on);
    each_part(on, bytes, [&](const Slot& slot, std::size_t at, std::size_t n) {
      std::memcpy(slot.memory, static_cast<const char*>(from) + at, n);
      start(on, slot, static_cast<char*>(to) + at, slot.memory, n);
    });
  }
  /// Waits for all work of the device, then copies from `from`.
  void fetch(const On& on, void* to, const void* from, std::size_t bytes) {
    refuse_capture(on);
    each_part(on, bytes, [&](const Slot& slot, std::size_t at, std::size_t n) {
      start(on, slot, slot.memory, static_cast<const char*>(from) + at, n);
      ok(cudaEventSynchronize(slot.done), on.op());
      std::memcpy(static_cast<char*>(to) + at, slot.memory, n);
    });
  }

  /// As fetch() in two halves. Data that do not fit a slot are fetched at once.
  std::function<void(void*)> fetch_later(const On& on, const void* from, std::size_t bytes) {
    refuse_capture(on);
    if (bytes > most) {
      auto kept = std::make_shared<std::vector<std::byte>>(bytes);
      fetch(on, kept->data(), from, bytes);
      return [kept](void* to) { std::memcpy(to, kept->data(), kept->size()); };
    }
    const auto slots = lent();
    const Slot& slot = slots->emplace_back(take(on, bytes));
    start(on, slot, slot.memory, from, bytes);
    return [slots, bytes, device = on.device()](void* to) {
      const On here(device, "fetch");
      ok(cudaEventSynchronize(slots->front().done), here.op());
      std::memcpy(to, slots->front().memory, bytes);
      check_fault(here);
    };
  }

  /// Copies to slots, without a wait. The returned function copies from them to the device.
  std::function<void(void*)> offload(const On& on, const void* from, std::size_t bytes) {
    refuse_capture(on);
    const auto slots = lent();
    for (std::size_t at = 0; at < bytes; at += slots->back().bytes) {
      std::size_t size = most;  // the largest slot that gets full
      while (size > least && size > bytes - at) size /= step;
      const Slot& slot = slots->emplace_back(take(on, size, true));
      start(on, slot, slot.memory, static_cast<const char*>(from) + at, std::min(size, bytes - at));
    }
    return [slots, bytes, device = on.device()](void* to) {
      const On here(device, "offload");
      refuse_capture(here);
      std::size_t at = 0;
      for (const Slot& slot : *slots) {
        start(here, slot, static_cast<char*>(to) + at, slot.memory, std::min(slot.bytes, bytes - at));
        at += slot.bytes;
      }
    };
  }

 private:
  // Slots are of four sizes, and of each there are a few, half a gigabyte at most for a device; more of them only if
  // tensors are offloaded.
  static constexpr std::size_t least = std::size_t{4} << 10, step = 16, most = std::size_t{16} << 20, few = 32;
  struct Slot {
    int device;
    std::size_t bytes;
    void* memory;
    cudaEvent_t done;
  };

  /// Starts a copy between the slot and the device.
  static void start(const On& on, const Slot& slot, void* to, const void* from, std::size_t bytes) {
    const cudaMemcpyKind way = to == slot.memory ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    ok(cudaMemcpyAsync(to, from, bytes, way, on.stream()), on.op());
    ok(cudaEventRecord(slot.done, on.stream()), on.op());
  }

  /// Room for slots that come back with the last copy of the pointer.
  std::shared_ptr<std::vector<Slot>> lent() {
    return {new std::vector<Slot>, [this](std::vector<Slot>* used) {
              const std::unique_ptr<std::vector<Slot>> owner(used);
              std::lock_guard lock(mutex_);
              slots_.insert(slots_.end(), used->begin(), used->end());
            }};
  }

  template <class Use>
  void each_part(const On& on, std::size_t bytes, Use&& use) {
    for (std::size_t at = 0; at < bytes; at += most) {
      const std::size_t n = std::min(most, bytes - at);
      const Slot slot = take(on, n);
      use(slot, at, n);
      std::lock_guard lock(mutex_);
      slots_.push_back(slot);
    }
  }

  /// A slot that no copy uses: the first whose copy is done, else a new slot. If there are too many, waits for the
  /// oldest slot without the mutex, since its copy may wait for a copy of another rank's thread. in_order: the device
  /// writes the slot, after its earlier copies; the oldest slot will do.
  Slot take(const On& on, std::size_t bytes, bool in_order = false) {
    std::size_t size = least;
    while (size < bytes) size *= step;
    std::unique_lock lock(mutex_);
    const auto fits = [&](const Slot& s) { return s.device == on.device().index && s.bytes == size; };
    auto at = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) {
      return fits(s) && (in_order || cudaEventQuery(s.done) == cudaSuccess);
    });
    (void)cudaGetLastError();  // "not ready" counts as an error
    const bool full =
        at == slots_.end() && std::count_if(slots_.begin(), slots_.end(), fits) >= static_cast<std::ptrdiff_t>(few);
    if (full) at = std::find_if(slots_.begin(), slots_.end(), fits);
    if (at != slots_.end()) {
      const Slot found = *at;
      slots_.erase(at);
      lock.unlock();
      if (full) ok(cudaEventSynchronize(found.done), on.op());
      return found;
    }
    lock.unlock();
    Slot made{on.device().index, size, nullptr, nullptr};
    ok(cudaHostAlloc(&made.memory, made.bytes, cudaHostAllocDefault), on.op());
    ok(cudaEventCreateWithFlags(&made.done, cudaEventDisableTiming), on.op());
    return made;
  }

  std::mutex mutex_;
  std::deque<Slot> slots_;  // in the order of their use
};

std::string in_words(std::size_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

class CudaRuntime final : public Runtime {
 public:
  void* allocate(std::size_t bytes, Device device) override {
    const On on(device, "allocate");
    if (const Capture* capturing = capture(device))
      return graphs_.take(capturing->graph, bytes, [&](std::size_t more) { return take(on, more); });
    return take(on, bytes);
  }

  void* allocate_discardable(std::size_t bytes, Device device) override {
    void* block = virtual_.allocate(On(device, "allocate"), bytes);
    return block ? block : allocate(bytes, device);
  }

  void* allocate_zeros(std::size_t bytes, Device device) override {
    const On on(device, "allocate");
    void* block = virtual_.allocate(on, bytes, false);
    if (block) return block;
    block = allocate(bytes, device);
    ok(cudaMemsetAsync(block, 0, bytes, on.stream()), on.op());
    return block;
  }

  void release(void* block, std::size_t bytes, Device device) noexcept override {
    if (block == nullptr) return;
    try {
      const On on(device, "release");
      if (Capture* capturing = capture(device); capturing && capturing->forked)
        capturing->held.emplace_back(block, bytes);
      else if (std::vector<GraphMemory::Segment> unused; graphs_.give(block, bytes, unused))
        for (const auto& segment : unused) give_back(on, segment.memory, segment.bytes);
      else if (Capture* capturing = capture(device))
        capturing->released.emplace_back(block, bytes);
      else
        give_back(on, block, bytes);
    } catch (...) {  // the device is gone, and its memory with it
    }
  }

  /// At once within a graph, where that costs nothing; kernel by kernel the host would have to do more.
  void fork_join(Device device, const std::function<void()>& first, const std::function<void()>& second) override {
    Capture* capturing = capture(device);
    if (!capturing || capturing->forked) return Runtime::fork_join(device, first, second);
    for (const auto& [block, bytes] : capture_fork_join(*capturing, first, second)) release(block, bytes, device);
  }

  std::unique_ptr<DeviceGraph> make_graph(Device device) override { return trireme::gpu::make_graph(device, graphs_); }
  void* stream(Device device) override { return On(device, "stream").stream(); }

  void copy(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes) override {
    if (bytes == 0) return;
    if (from_device.kind == DeviceKind::cpu) return staging_.send(On(to_device, "copy"), to, from, bytes);
    const On source(from_device, "copy");
    if (to_device.kind == DeviceKind::cpu) {
      staging_.fetch(source, to, from, bytes);
      return check_fault(source);
    }
    if (!(to_device == from_device)) {
      await(to_device, from_device);  // the target's block may still be in use there
      const On again(from_device, "copy");
      ok(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, bytes, again.stream()), "copy");
      return await(from_device, to_device);
    }
    ok(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, source.stream()), "copy");
  }

  std::function<void(void* to)> fetch_later(const void* from, std::size_t bytes, Device device) override {
    return staging_.fetch_later(On(device, "fetch"), from, bytes);
  }
  std::function<void(void* to)> offload(const void* from, std::size_t bytes, Device device) override {
    return staging_.offload(On(device, "offload"), from, bytes);
  }

  void synchronize(Device device) override {
    const On on(device, "synchronize");
    refuse_capture(on);
    ok(cudaStreamSynchronize(on.stream()), on.op());
    check_fault(on);
  }

  double timed(Device device, const std::function<void()>& work) override {
    const On on(device, "timed");
    refuse_capture(on);
    // The device first fills a block, so that the host can submit work() before the device reaches it. Otherwise the
    // time would include the launches.
    const Scratch busy(on, std::size_t{64} << 20);
    cudaEvent_t begin = nullptr, end = nullptr;
    ok(cudaEventCreate(&begin), on.op());
    ok(cudaEventCreate(&end), on.op());
    ok(cudaMemsetAsync(busy.data(), 0, std::size_t{64} << 20, on.stream()), on.op());
    ok(cudaEventRecord(begin, on.stream()), on.op());
    work();
    ok(cudaEventRecord(end, on.stream()), on.op());
    ok(cudaEventSynchronize(end), on.op());
    float milliseconds = 0;
    ok(cudaEventElapsedTime(&milliseconds, begin, end), on.op());
    ok(cudaEventDestroy(begin), on.op());
    ok(cudaEventDestroy(end), on.op());
    return static_cast<double>(milliseconds) / 1e3;
  }

  /// The pool's memory stays: discarding its blocks only loses their contents, as the contract requires.
  void discard(void* from, std::size_t bytes, Device device) noexcept override { discard(from, bytes, device, false); }
  void zero(void* from, std::size_t bytes, Device device) noexcept override { discard(from, bytes, device, true); }
  void restore(void* from, std::size_t bytes, Device device) override {
    if (virtual_.whole()) [[likely]]
      return;
    const On on(device, "restore");
    if (!virtual_.restore(on, from, bytes)) refuse(on, bytes);
  }
  std::size_t resident(const void* from, std::size_t bytes, Device) const override {
    return virtual_.whole() ? bytes : virtual_.resident(from, bytes);
  }

  std::size_t in_use() const override { return in_use_.load(std::memory_order_relaxed); }
  std::size_t peak() const override { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() override { peak_.store(in_use(), std::memory_order_relaxed); }

 private:
  void discard(void* from, std::size_t bytes, Device device, bool zero) noexcept {
    try {
      const On on(device, "discard");
      if (!virtual_.discard(on, from, bytes, zero)) (void)cudaMemsetAsync(from, zero ? 0 : 0xff, bytes, on.stream());
    } catch (...) {  // the device is gone, and its memory with it
    }
  }
  void* take(const On& on, std::size_t bytes) {
    void* block = nullptr;
    const auto ask = [&] { return cudaMallocAsync(&block, std::max<std::size_t>(bytes, 1), on.main_stream()); };
    if (virtual_.leaving()) (void)virtual_.reclaim(on, false);
    cudaError_t status = ask();
    if (status == cudaErrorMemoryAllocation && virtual_.leaving() && !capture(on.device())) {
      (void)cudaGetLastError();
      if (virtual_.reclaim(on, true)) status = ask();
    }
    if (status == cudaErrorMemoryAllocation) refuse(on, bytes);
    ok(status, on.op());
    count(static_cast<std::ptrdiff_t>(bytes));
    return block;
  }
  void count(std::ptrdiff_t bytes) {
    const auto more = static_cast<std::size_t>(bytes), now = in_use_.fetch_add(more, std::memory_order_relaxed) + more;
    for (std::size_t top = peak();
         bytes > 0 && now > top && !peak_.compare_exchange_weak(top, now, std::memory_order_relaxed);) {}
  }
  void give_back(const On& on, void* block, std::size_t bytes) {
    if (virtual_.release(on, block, bytes)) return;
    in_use_.fetch_sub(bytes, std::memory_order_relaxed);
    (void)cudaFreeAsync(block, on.main_stream());
  }
  /// Orders devices: work of `later` from now on runs after all work of `first` so far.
  static void await(Device first, Device later) {
    const On before(first, "copy");
    cudaEvent_t event = nullptr;
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "copy");
    ok(cudaEventRecord(event, before.stream()), "copy");
    const On after(later, "copy");
    ok(cudaStreamWaitEvent(after.stream(), event), "copy");
    ok(cudaEventDestroy(event), "copy");
  }

  [[noreturn]] void refuse(const On& on, std::size_t bytes) const {
    (void)cudaGetLastError();
    std::size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    fail(ErrorKind::out_of_memory, "allocate",
         "out of memory on {}{}: {} asked for, {} free of {}, {} in use by tensors; try a smaller batch, "
         "recomputation (--recompute true), or bf16",
         on.device(), NamedRange::place(), in_words(bytes), in_words(free), in_words(total), in_words(in_use()));
  }

  Staging staging_;
  GraphMemory graphs_;
  std::atomic<std::size_t> in_use_{0}, peak_{0};
  mutable VirtualMemory virtual_{[this](std::ptrdiff_t bytes) { count(bytes); }};
};

}  // namespace

// Never destroyed: tensors with static storage may release their blocks after main.
Runtime& device_runtime() {
  static CudaRuntime& r = *new CudaRuntime;
  return r;
}

}  // namespace trireme::gpu
