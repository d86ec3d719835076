// A CUDA device for kernels: its stream, the check of CUDA's status, memory for the length of a call.
#pragma once
#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "kernels/core/view.h"

namespace trireme::gpu {

/// Throws Error("op: CUDA's message") unless status is success.
void ok(cudaError_t status, std::string_view op);

/// An error in its data that a kernel found. Kernels cannot throw: they write it here, in memory that the host can
/// read. The host throws it when it next waits for the device.
struct Fault {
  int set;                    ///< 0: no error; 1: a label that is no class; 2: an id that is no row (kernel::Take)
  Index row, label, classes;  ///< for an id: its index, the id, and the number of rows
};

/// Makes a device current on this thread, as CUDA's calls need it, and gives the stream for its work. Cheap: every
/// kernel begins with one. Throws Error for a device that does not exist.
class On {
 public:
  On(Device device, std::string_view op);
  std::string_view op() const { return op_; }
  Device device() const { return {DeviceKind::cuda, index_}; }
  int multiprocessors() const;
  /// All kernels and copies of a device go to one stream, in the order of calls. During a capture on this thread they
  /// go to the captured stream.
  cudaStream_t stream() const;
  cudaStream_t main_stream() const;  ///< the device's stream, even during a capture
  Fault* fault() const;              ///< address for kernels and for the host

 private:
  int index_;
  std::string_view op_;
};

/// A capture of a graph by this thread.
struct Capture {
  Device device;
  cudaStream_t stream, side;  ///< the captured stream, and the stream of a concurrent branch
  int graph;
  /// Blocks (with sizes) that do not belong to the graph and were released during the capture: the graph may use them.
  std::vector<std::pair<void*, std::size_t>> released = {};
  bool forked = false;  ///< both branches are being captured: blocks are released after they join
  std::vector<std::pair<void*, std::size_t>> held = {};
};
/// The capture of this device on this thread; null if there is none.
Capture* capture(Device);
void set_capture(Capture*);  ///< sets this thread's capture; null: the capture has ended
/// Throws Error during a capture on the device: host and device cannot wait for each other then.
void refuse_capture(const On&);

/// Throws the error that kernels wrote to fault(), or the failure that was set. Call it after the host has waited for
/// the device.
void check_fault(const On&);
/// Marks the device's results as invalid, because ranks that it waited for were given up. Every later wait for the
/// device throws an Error of this text and kind, until a call with an empty text. From any thread.
void set_failure(Device, const std::string& text, ErrorKind = ErrorKind::communicator);

/// Device memory for the length of a call. Kernels that were started before its end may still use it: it is released in
/// stream order.
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
