// A CUDA device as kernels see it: its stream, the check of CUDA's answers, memory for the length of a call.
#pragma once
#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "kernels/core/view.h"

namespace trireme::gpu {

/// Throws Error("op: what CUDA says") unless status is success.
void ok(cudaError_t status, std::string_view op);

/// Something that a kernel found wrong with its data. Kernels cannot throw: they write it here, in memory that the host
/// sees, and the next time that the host waits for the device it throws.
struct Fault {
  int set;                    ///< 0: nothing; 1: a label that is no class; 2: an id that is no row (kernel::Take)
  Index row, label, classes;  ///< of an id: its number, it, and the rows
};

/// Makes a device current on this thread, as CUDA's calls want it, and names where its work goes. Cheap; one stands at
/// the head of every kernel. Throws Error for a device that is not there.
class On {
 public:
  On(Device device, std::string_view op);
  std::string_view op() const { return op_; }
  Device device() const { return {DeviceKind::cuda, index_}; }
  int multiprocessors() const;
  /// All kernels and copies of a device go to one stream, in the order of their calls; those of a graph that this
  /// thread captures, to its stream.
  cudaStream_t stream() const;
  cudaStream_t main_stream() const;  ///< not the graph's
  Fault* fault() const;              ///< address for kernels and for the host

 private:
  int index_;
  std::string_view op_;
};

/// A graph that this thread captures.
struct Capture {
  Device device;
  cudaStream_t stream, side;  ///< the captured stream, and the one of a concurrent branch
  int graph;
  /// Blocks that are not the graph's and were released during the capture, with their sizes: the graph may use them.
  std::vector<std::pair<void*, std::size_t>> released = {};
  bool forked = false;  ///< both branches are being captured: nothing is released until they have joined
  std::vector<std::pair<void*, std::size_t>> held = {};
};
/// Of this device and thread; null: there is none.
Capture* capture(Device);
void set_capture(Capture*);  ///< of this thread; null: the capture has ended
/// Throws Error during a capture on the device: the host cannot wait for it, nor it for the host.
void refuse_capture(const On&);

/// Throws what kernels left in fault(), or the failure that was set, after the host has waited for the device.
void check_fault(const On&);
/// What the device computed is not to be believed, since ranks that it waited for were given up: until this is called
/// with an empty text, whoever waits for the device is told so by an Error of this text and kind. From any thread.
void set_failure(Device, const std::string& text, ErrorKind = ErrorKind::communicator);

/// Device memory that kernels started before its end may still use after it: it is given back in stream order.
class Scratch {
 public:
  Scratch(const On&, std::size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }  ///< null for 0 bytes; aligned to 256
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Device device_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

}  // namespace trireme::gpu
