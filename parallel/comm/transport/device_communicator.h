// DeviceCommunicator: a communicator for tensors on any device, built on one for host memory. Host tensors are passed
// through. Tensors of devices are copied by way of the host, or go directly between devices where use() has found that
// they can reach each other. World wraps every communicator in one.
#pragma once
#include <functional>
#include <memory>

#include "parallel/comm/transport/device_transport.h"

namespace trireme {

class DeviceCommunicator final : public CommunicatorWrapper {
 public:
  using CommunicatorWrapper::CommunicatorWrapper;

  /// See World::use.
  const std::string& use(Device);
  using HasAlgorithm = std::function<bool(CallKind, int ranks, Index bytes)>;
  /// inner is replaced by what make makes of it, which has all-reduces of its own: they are done on host copies, where
  /// has says that there is one.
  void set_algorithm(const std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>& make,
                     HasAlgorithm has);

  std::string transport() const override;
  /// Messages always go by the host: which of them meet is decided by tags, in whatever order they were posted, and no
  /// device may be held up by one that nobody has asked for yet. NCCL knows neither.
  Work start(const Call&, const Tensor& out, const Tensor& in, std::span<const Index> counts) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void abort(const AbortReason& reason) override;

 private:
  bool takes_link(const Call&, const Tensor& out, const Tensor& in) const;
  void find_out(const DeviceTransports*);
  void join(const DeviceTransports&);

  Device device_;                          // of the rank, as use() was told
  std::unique_ptr<DeviceTransport> link_;  // stands on inner_
  std::string link_name_, why_;            // why_: device_ is one, and there is no link
  HasAlgorithm has_algorithm_ = [](CallKind, int, Index) { return false; };
  std::shared_ptr<char> family_ = std::make_shared<char>();  // owned by this and all that are split from it
};

}  // namespace trireme
