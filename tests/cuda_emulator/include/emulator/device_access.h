// The fence between the host and device memory, and the queue of a stream: what emulated libraries need.
#pragma once
#include <functional>

struct CUstream_st;

namespace emulator {

/// While one lives, this thread may touch device memory; elsewhere doing so ends the process. They may nest. Threads
/// started meanwhile would keep the right, and those of a pool (OpenMP) do not have it: work inside it on one thread.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;

 private:
  int before_;
};

/// Does work in the order of the stream, with DeviceAccess: at once, or (TRIREME_EMULATOR_ASYNC=1) on the stream's
/// thread after this has returned. So it holds what it needs by value: scalars at host addresses are read by the
/// caller. Exceptions it throws become the error of a later CUDA call, with their text.
void enqueue(CUstream_st* stream, std::function<void()> work);

/// True when [p, p + bytes) lies within a live block of this device, or within memory of cudaHostAlloc.
bool on_device(const void* p, std::size_t bytes, int device);
/// The device that a stream belongs to; of the null stream: the current one.
int device_of(CUstream_st* stream);
/// False once the stream was destroyed; whether another one lies at its address cannot be told.
bool is_live(CUstream_st* stream);
/// Whether this thread captures a stream.
bool captures();

}  // namespace emulator
