// DeviceCommunicator: a communicator for tensors on any device, built on a communicator for host memory. It forwards
// host tensors. Tensors on devices are copied through the host, or go directly between devices if use() finds that the
// devices can reach each other. World wraps every communicator in one.
#pragma once
#include <functional>
#include <memory>

#include "parallel/comm/transport/device_transport.h"

namespace trireme {

class DeviceCommunicator final : public CommunicatorWrapper {
 public:
  using CommunicatorWrapper::CommunicatorWrapper;

  /// Declares that this rank's tensors are on this device; World::use() describes arguments and result.
  const std::string& use(Device);
  /// Whether a named algorithm (use_all_reduce) exists for a collective of this kind on `ranks` ranks and `bytes`
  /// bytes.
  using HasAlgorithm = std::function<bool(CallKind, int ranks, Index bytes)>;
  /// Replaces inner by make(inner), which has separate all-reduce algorithms. Calls for which `has` returns true run on
  /// host copies.
  void set_algorithm(const std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>& make,
                     HasAlgorithm has);

  std::string transport() const override;
  /// Messages always go through the host: they match by tag in any order of posting, and an unmatched message must not
  /// block a device. NCCL supports neither.
  Work start(const Call&, const Tensor& out, const Tensor& in, std::span<const Index> counts) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void abort(const AbortReason& reason) override;

 private:
  bool takes_link(const Call&, const Tensor& out, const Tensor& in) const;
  void find_out(const DeviceTransports*);
  void connect(Communicator& all, const std::string& name, const std::function<std::unique_ptr<DeviceTransport>()>&);

  Device device_;                          // this rank's device, from use()
  std::unique_ptr<DeviceTransport> link_;  // uses inner_
  std::string link_name_, why_;            // why_: why device_ has no link
  HasAlgorithm has_algorithm_ = [](CallKind, int, Index) { return false; };
  std::shared_ptr<char> family_ = std::make_shared<char>();  // shared with all communicators split from this one
};

}  // namespace trireme
