// Runtime: memory, copies and synchronization of one kind of device. New ops need nothing new here.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/core/view.h"

namespace trireme {

/// Captured device work in parts, each of which can be launched any number of times (CUDA graphs: CUDA C++ Programming
/// Guide). Every launch reads and writes the same blocks. Arguments of the host keep the values that they had at
/// capture.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Begins to capture the work that this thread submits to the device, without running it, until end(). Throws Error
  /// if the host waits for the device, or the device reads host memory, during the capture; the graph is then unusable.
  /// Blocks that are allocated during the capture belong to the graph until it is destroyed.
  virtual void begin() = 0;
  /// Ends the part that begin() began. Throws Error without a begin(), or if the device cannot make a graph of the
  /// work.
  virtual void end() = 0;
  /// Launches part `part` (0: the work between the first begin() and its end()). Throws Error if it was not captured.
  virtual void start(std::size_t part) = 0;
};

/// Memory, copies and synchronization of the devices of one kind. Each backend derives one class. Thread-safe.
class Runtime {
 public:
  virtual ~Runtime() = default;
  /// Allocates at least `bytes` bytes, aligned to 64, with undefined contents. Never null; throws Error
  /// (out_of_memory).
  virtual void* allocate(std::size_t bytes, Device device) = 0;
  /// As allocate(), for a block of which discard() may release parts: for large blocks that are unused for long
  /// periods.
  virtual void* allocate_discardable(std::size_t bytes, Device device) { return allocate(bytes, device); }
  /// As allocate_discardable(), for a block of zeros without physical memory, if the device can do that. On a GPU
  /// restore() gives a part memory, and comes before its first use; on the host the first write does.
  virtual void* allocate_zeros(std::size_t bytes, Device device) {
    void* block = allocate_discardable(bytes, device);
    zero(block, bytes, device);
    return block;
  }
  /// Releases a block of an allocate function, once all work submitted so far has finished. bytes, device: as at
  /// allocation. Null does nothing.
  virtual void release(void* block, std::size_t bytes, Device device) noexcept = 0;
  /// Copies `bytes` bytes after all work submitted so far on both devices. A copy to the host is complete on return.
  /// After a copy from the host, the host's source may be overwritten on return.
  virtual void copy(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes) = 0;
  /// Starts a copy to the host, after all work submitted so far. The returned function waits for this copy (not for
  /// later work) and writes the bytes. Call it at most once.
  virtual std::function<void(void* to)> fetch_later(const void* from, std::size_t bytes, Device device);
  /// Starts a copy to host memory, after all work submitted so far; the host does not wait. Each call of the returned
  /// function starts a copy back to the device, in the order of its work. The host memory is used until the function
  /// and its copies are destroyed.
  virtual std::function<void(void* to)> offload(const void* from, std::size_t bytes, Device device) {
    return fetch_later(from, bytes, device);  // on the host
  }
  /// Waits for all work submitted to the device (cudaStreamSynchronize). Throws Error for a failure of that work, and
  /// while a graph is captured. Does nothing on the CPU.
  virtual void synchronize(Device device) = 0;
  /// Runs work() after all earlier work has finished, and returns its time on the device in seconds.
  virtual double timed(Device, const std::function<void()>& work);
  /// Runs both functions, one after the other or concurrently (fork and join). Neither may write memory that the other
  /// reads or writes, nor release blocks that the other uses.
  virtual void fork_join(Device, const std::function<void()>& first, const std::function<void()>& second) {
    first();
    second();
  }
  /// A new graph for this device; null if this kind of device has no graphs.
  virtual std::unique_ptr<DeviceGraph> make_graph(Device) { return nullptr; }
  /// The stream for your own kernels: makes the device current on this thread and returns its cudaStream_t (during a
  /// capture on this thread, the captured stream). Call it before each launch; do not keep the result. Null if this
  /// kind of device has no streams. Throws Error for a device that does not exist.
  virtual void* stream(Device) { return nullptr; }
  /// Returns the physical memory of part of a block to the system, in whole pages (2 MiB on GPUs), once all work
  /// submitted so far has finished. The part's contents are undefined until it is written again: NaN on a device, as
  /// far as pages keep their memory. Call restore() before a device uses the part again. Does nothing while a graph is
  /// captured.
  virtual void discard(void* /*from*/, std::size_t /*bytes*/, Device) noexcept {}
  /// Maps physical memory for part of a block again. Call it after discard() and before the first write. Contents that
  /// were discarded are undefined then, those of zero() and allocate_zeros() are 0, others stay. Throws Error if memory
  /// is out, or if memory is missing while a graph is captured.
  virtual void restore(void* /*from*/, std::size_t /*bytes*/, Device) {}
  /// As discard(), but the part is 0: on the host at once, whose pages come on demand, on a device after restore().
  virtual void zero(void* /*from*/, std::size_t /*bytes*/, Device) noexcept {}
  /// Number of bytes of part of a block that have physical memory, as far as the system reports it, once all work
  /// submitted so far has finished. The default is all of them.
  virtual std::size_t resident(const void* /*from*/, std::size_t bytes, Device) const { return bytes; }
  /// Bytes allocated now on all devices of this kind, once all work submitted so far has finished. For discardable
  /// blocks of a GPU only pages with memory count; on the host all bytes count.
  virtual std::size_t in_use() const = 0;
  virtual std::size_t peak() const = 0;  ///< maximum of in_use() since reset_peak()
  virtual void reset_peak() = 0;         ///< sets peak() to in_use()
};

/// The runtime of a kind of device. Throws Error if this build or machine has none (open_backend() returns the reason).
Runtime& runtime(DeviceKind kind);
/// Whether all of a view may be used without restore(); always true on the host, whose pages come on demand.
bool has_memory(const View&);
/// Copies between two blocks of equal size. If either is on a device, that device's runtime copies.
void copy_block(const View& to, const View& from);
/// Registers a backend's runtime, when the backend is loaded. Always true.
bool set_runtime(DeviceKind kind, Runtime* runtime);

/// Number of threads that a kernel called from this thread may use, at most OpenMP's limit. Thread-local: a rank that
/// is a thread has its share of the cores. Also sets OpenMP's thread count, which oneDNN uses.
int threads();
/// Sets threads() of this thread. Throws Error for count < 1.
void set_threads(int count);
/// Number of CPUs that this process could use when it first asked (its affinity mask); bind_threads() does not change
/// it.
int cores();
/// Binds this thread to all these CPUs, and thread k > 0 of its kernels' teams to places[k % places.size()]. Threads
/// that it starts later inherit all CPUs, so helpers are not bound to a core that computes. Throws Error if the system
/// refuses, and for an empty place.
void bind_threads(const std::vector<std::vector<int>>& places);

}  // namespace trireme
