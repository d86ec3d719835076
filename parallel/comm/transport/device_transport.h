// DeviceTransport: collectives of tensors that lie on devices, without a way through the host. The plugin of a backend
// that has one (NCCL) gives it to the library when it is opened; nothing here names a vendor.
#pragma once
#include "parallel/comm/call.h"

namespace trireme {

/// One communicator's. Calls come from one thread, with operands that were checked, lie on its device and have
/// elements; abort() from any. Every operation begins after what the device has been given so far. A Work's wait()
/// does not hold the host up: what the device is given later comes after the operation.
class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;
  /// all_reduce, reduce_scatter, all_gather, broadcast and all_to_all, of even blocks; operands as
  /// Communicator::start's.
  virtual Work start(const Call&, const Tensor& out, const Tensor& in) = 0;
  /// Ends what is under way on this rank, on the device too; from then on all throws Error(reason).
  virtual void abort(const AbortReason& reason) = 0;
};

class DeviceTransports {
 public:
  virtual ~DeviceTransports() = default;
  virtual std::string name() const = 0;  ///< "nccl"
  /// The same number for the same device, whichever process asks. Throws Error where ranks cannot use it.
  virtual std::uint64_t identity(Device) const = 0;
  /// Joins the ranks of host, each of which has a device to itself. A collective call; throws Error where it did not
  /// work out, perhaps on some ranks only. host outlives what it returns.
  virtual std::unique_ptr<DeviceTransport> join(Communicator& host, Device) const = 0;
};

/// Called once by a backend when it is loaded; it lives on.
bool set_device_transports(DeviceKind kind, const DeviceTransports*);
/// Opens the backend of this kind; null where it has none.
const DeviceTransports* device_transports(DeviceKind kind);

}  // namespace trireme
