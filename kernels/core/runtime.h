// Runtime: memory and time of one device kind. It never grows with the number of ops.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>

#include "kernels/core/view.h"

namespace trireme {

/// Captured device work in parts, each launched as a whole any number of times (CUDA graphs: CUDA C++ Programming
/// Guide). Every launch reads and writes the same blocks, with the values that the host had at capture.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Captures the work that this thread gives the device, without starting it, up to end(). A wait of the host for the
  /// device, or a read of the host's memory by the device, throws Error; the graph is then of no use. Blocks allocated
  /// during the capture belong to the graph: nobody else gets their memory while it lives.
  virtual void begin() = 0;
  /// Ends the part that begin() began. Throws Error without one, or where the device makes no graph of it.
  virtual void end() = 0;
  /// Starts the part captured between the part-th begin() (from 0) and its end(). Throws Error for a part not captured.
  virtual void start(std::size_t part) = 0;
};

/// Memory, copies and waits of the devices of one kind; each backend derives one. Thread-safe.
class Runtime {
 public:
  virtual ~Runtime() = default;
  /// A block of at least bytes, aligned to 64, contents undefined. Never null; throws Error when memory is out.
  virtual void* allocate(std::size_t bytes, Device device) = 0;
  /// A block of which parts may be given back by discard(): what lives long, is large, and not needed all the time.
  virtual void* allocate_discardable(std::size_t bytes, Device device) { return allocate(bytes, device); }
  /// Gives back a block of either (of so many bytes, on this device), when work started so far is done with it. Null:
  /// nothing.
  virtual void release(void* block, std::size_t bytes, Device device) noexcept = 0;
  /// Copies bytes, after all that was started on either device. What goes to the host has arrived on return; what comes
  /// from the host may be written over.
  virtual void copy(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes) = 0;
  /// Starts to copy to the host, after all that was started so far. The call that is returned waits for that, not for
  /// what came later, and writes the bytes; it is made once, or dropped.
  virtual std::function<void(void* to)> fetch_later(const void* from, std::size_t bytes, Device device);
  /// Waits until all that was started on the device is done (cudaStreamSynchronize). Throws Error for a failure that
  /// the work left, and while a graph is captured. The CPU's does nothing.
  virtual void synchronize(Device device) = 0;
  /// Seconds that the device takes for what work() starts on it, by itself: all that came before is done first.
  virtual double timed(Device, const std::function<void()>& work);
  /// Both, one after the other or concurrently (fork, then join): neither may write memory that the other reads or
  /// writes, nor release blocks that the other uses.
  virtual void fork_join(Device, const std::function<void()>& first, const std::function<void()>& second) {
    first();
    second();
  }
  /// Null: this kind of device has no graphs.
  virtual std::unique_ptr<DeviceGraph> make_graph(Device) { return nullptr; }
  /// For kernels of a program's own: makes the device current on this thread and returns what its work goes to in
  /// order, a cudaStream_t (while this thread captures a graph, the captured one). Asked for at each launch, not kept.
  /// Null: devices of this kind have no streams. Throws Error for a device that is not there.
  virtual void* stream(Device) { return nullptr; }
  /// Gives the memory behind part of a block back, as far as the machine can, in whole pages (a GPU's are of 2 MiB),
  /// when work started so far is done with it. Its contents are lost, whatever their size: the host's become zeros, a
  /// device's NaN or undefined, and nothing may live on by luck. A device touches none of it until restore(). While a
  /// graph is captured nothing may happen.
  virtual void discard(void* /*from*/, std::size_t /*bytes*/, Device) noexcept {}
  /// Puts memory behind part of a block again, before it is written; contents are as discard() left them. On the host,
  /// whose pages come by themselves, and where nothing was discarded, it costs nothing. Throws Error when memory is out
  /// and, where some is missing, while a graph is captured.
  virtual void restore(void* /*from*/, std::size_t /*bytes*/, Device) {}
  /// How many bytes of part of a block have memory behind them, as far as the machine tells, once the work started so
  /// far is done: all.
  virtual std::size_t resident(const void* /*from*/, std::size_t bytes, Device) const { return bytes; }
  /// Bytes handed out now, on all devices of this kind, once the work started so far is done. Of a device's discardable
  /// blocks: of the pages that have memory; of the host's: all, since a write takes them without asking.
  virtual std::size_t in_use() const = 0;
  virtual std::size_t peak() const = 0;  ///< the most of in_use() since reset_peak()
  virtual void reset_peak() = 0;         ///< peak() becomes in_use()
};

/// The runtime of a kind of device. Throws Error where the build or the machine has none (kernels/core/backend.h says
/// why).
Runtime& runtime(DeviceKind kind);
/// Copies between blocks of one size, by the runtime of the device that is not the host, if there is one.
void copy_block(const View& to, const View& from);
/// Called once by each backend when it is loaded. Always true.
bool set_runtime(DeviceKind kind, Runtime* runtime);

/// Threads a kernel may use when called from this thread (thread-local; a rank that is a thread gets its share): no
/// more than OpenMP gives. OpenMP's own number, which oneDNN reads, becomes the same.
int threads();
/// Sets threads() of this thread. Throws Error for count < 1.
void set_threads(int count);
/// Cores this process may run on (its affinity mask).
int cores();

}  // namespace trireme
