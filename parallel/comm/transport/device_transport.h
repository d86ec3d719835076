// DeviceTransport: collectives of tensors on devices that do not go through the host (NCCL). The plugin of a backend
// registers it when it is loaded; this file is independent of vendors.
#pragma once
#include "parallel/comm/call.h"

namespace trireme {

/// The device collectives of one communicator. One thread makes the calls, with checked, non-empty operands on its
/// device; any thread may call abort(). An operation starts after all work queued on the device so far. A Work's wait()
/// does not block the host: work queued later runs after the operation.
class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;
  /// all_reduce, reduce_scatter, all_gather, broadcast and all_to_all, of even blocks; operands as
  /// Communicator::start's.
  virtual Work start(const Call&, const Tensor& out, const Tensor& in) = 0;
  /// Connects the ranks of part, which Communicator::split made of this communicator with this color. A collective call
  /// of all ranks of this communicator; waits for its earlier operations. Throws Error on failure, possibly on some
  /// ranks only: all ranks must then abort this DeviceTransport. part must outlive the result.
  virtual std::unique_ptr<DeviceTransport> split(Communicator& part, int color) = 0;
  /// Aborts all operations of this rank, also on the device; later calls throw Error(reason).
  virtual void abort(const AbortReason& reason) = 0;
};

/// The device collectives of a backend: makes a DeviceTransport for each communicator.
class DeviceTransports {
 public:
  virtual ~DeviceTransports() = default;
  virtual std::string name() const = 0;  ///< "nccl"
  /// A number that identifies the device, equal in all processes. Throws Error if ranks cannot use the device.
  virtual std::uint64_t identity(Device) const = 0;
  /// Connects the ranks of host, each of which has a separate device. A collective call; throws Error on failure,
  /// possibly on some ranks only. host must outlive the result.
  virtual std::unique_ptr<DeviceTransport> join(Communicator& host, Device) const = 0;
};

/// A backend calls this once when it is loaded, with an object that lives as long as the program.
bool set_device_transports(DeviceKind kind, const DeviceTransports*);
/// Loads the backend of this kind and returns its transports; null: it has none.
const DeviceTransports* device_transports(DeviceKind kind);

}  // namespace trireme
