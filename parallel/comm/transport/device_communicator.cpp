#include "parallel/comm/transport/device_communicator.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <utility>

#include "framework/autograd/tape.h"
#include "kernels/core/backend.h"
#include "kernels/core/environment.h"
#include "kernels/core/runtime.h"
#include "parallel/comm/transport/call_capture.h"

namespace trireme {
namespace {

std::atomic<const DeviceTransports*>& slot(DeviceKind kind) {
  static std::array<std::atomic<const DeviceTransports*>, device_kinds> slots{};
  return slots[static_cast<std::size_t>(kind)];
}

bool on_host(const Tensor& x) { return !x.defined() || x.device().kind == DeviceKind::cpu; }

/// Host memory of x's size; x itself if it is on the host.
Tensor room_for(const Tensor& x) {
  if (on_host(x)) return x;
  const MemoryScope packed(MemoryKind::packed);
  return Tensor::empty(x.shape(), x.dtype());
}
Tensor copied_out(const Tensor& x) {
  const Tensor host = room_for(x);
  if (!on_host(x)) host.copy_from(x);
  return host;
}

/// Identity of the host as NCCL sees it: NCCL_HOSTID if set, else the host's own. Ranks with two such names may share a
/// device.
std::uint64_t host_identity() {
  if (const auto named = environment_text("NCCL_HOSTID")) return std::hash<std::string>()(*named);
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return std::hash<std::string_view>()(name);
}

}  // namespace

bool set_device_transports(DeviceKind kind, const DeviceTransports* transports) {
  slot(kind) = transports;
  return true;
}
const DeviceTransports* device_transports(DeviceKind kind) {
  return open_backend(kind).devices > 0 ? slot(kind).load() : nullptr;
}

std::string DeviceCommunicator::transport() const {
  const std::string inner = inner_->transport();
  const std::size_t end = std::min(inner.find(','), inner.size());
  if (link_) return inner.substr(0, end) + "+" + link_name_ + inner.substr(end);
  return why_.empty() ? inner : inner + ", staged through the host";
}

/// NCCL does not specify NaN in max and min, so these go through the host (reduce.h).
bool DeviceCommunicator::takes_link(const Call& call, const Tensor& out, const Tensor& in) const {
  const auto there = [&](const Tensor& x) { return !x.defined() || x.device() == device_; };
  if (!link_ || !there(out) || !there(in) || call.counts_digest) return false;
  switch (call.kind) {
    case CallKind::all_reduce:
    case CallKind::reduce_scatter:
      if (call.kind == CallKind::all_reduce && has_algorithm_(call.kind, size(), call.count * size_of(call.type)))
        return false;
      return call.op == ReduceOp::sum || !is_float(call.type);
    case CallKind::all_gather:
    case CallKind::broadcast:
    case CallKind::all_to_all: return true;
    default: return false;
  }
}

Work DeviceCommunicator::start(const Call& call, const Tensor& out, const Tensor& in, std::span<const Index> counts) {
  if (const CallCapture* capture = CallCapture::current()) [[unlikely]] {
    const bool host = on_host(out) && on_host(in), message = call.kind == CallKind::send || call.kind == CallKind::recv;
    if (host || message)
      fail(
          to_string(call), "capturing a CUDA graph: {} cannot be replayed",
          host ? "what the host computes of other ranks' numbers" : "a message, which another may have to meet first,");
    capture->take([this, call, out, in, all = std::vector<Index>(counts.begin(), counts.end())] {
      start(call, out, in, all).wait();
    });
    return {};
  }
  if (on_host(out) && on_host(in)) [[likely]]
    return inner_->start(call, out, in, counts);
  if (takes_link(call, out, in)) return call.count == 0 ? Work{} : link_->start(call, out, in);
  const Tensor host_in = copied_out(in);
  const Tensor host_out = call.kind == CallKind::all_reduce ? host_in : room_for(out);
  Work work = inner_->start(call, host_out, host_in, counts);
  if (on_host(out)) return work;
  return when_all({std::move(work)}, [out, host_out] { copy_unnoted(out, host_out); });
}

void DeviceCommunicator::abort(const AbortReason& reason) {
  inner_->abort(reason);
  if (link_) link_->abort(reason);
}

void DeviceCommunicator::set_algorithm(
    const std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>& make, HasAlgorithm has) {
  inner_ = make(std::move(inner_));
  has_algorithm_ = std::move(has);
}

std::unique_ptr<Communicator> DeviceCommunicator::split(int color, int key) {
  check(color >= 0, "split", "got color {}, expected 0 or more", color);
  auto part = std::make_unique<DeviceCommunicator>(inner_->split(color, key));
  part->has_algorithm_ = has_algorithm_;
  part->device_ = device_;
  part->family_ = family_;
  if (part->size() > 1) part->why_ = why_;
  if (!link_) return part;
  const std::array<std::int64_t, 1> members{part->size()};
  if (std::ranges::max(gather_numbers(*inner_, members)) == 1) return part;
  part->connect(*inner_, link_name_, [&] { return link_->split(*part->inner_, color); });
  if (!part->why_.empty()) {  // on all ranks; the link is unusable now
    why_ = part->why_;
    link_->abort(why_);
    link_.reset();
    fail(ErrorKind::communicator, "split", "{}", why_);
  }
  if (part->size() == 1) part->link_.reset();  // took part for the other ranks
  return part;
}

const std::string& DeviceCommunicator::use(Device device) {
  check(
      size() == 1 || device == device_ || family_.use_count() == 1, "use",
      "{} communicators were split from this one while its tensors lay on {}, and would not follow to {}: call use() "
      "before a Mesh or a Step is made",
      family_.use_count() - 1, [&] { return to_string(device_); }, [&] { return to_string(device); });
  link_.reset();
  why_.clear();
  device_ = device;
  if (size() == 1) return why_;
  const auto* transports = device.kind == DeviceKind::cpu ? nullptr : device_transports(device.kind);
  find_out(transports);
  if (why_.empty() && device.kind != DeviceKind::cpu)
    connect(*inner_, transports->name(), [&] { return transports->join(*inner_, device_); });
  return why_;
}

/// Sets why_ unless every rank has a separate device, or every rank is on the host.
void DeviceCommunicator::find_out(const DeviceTransports* transports) {
  enum Has : std::int64_t { host, device, nothing };
  std::array<std::int64_t, 3> mine{nothing, static_cast<std::int64_t>(host_identity()), 0};
  std::string missing;
  if (device_.kind == DeviceKind::cpu) {
    mine[0] = host;
  } else if (!transports) {
    const std::string& absent = open_backend(device_.kind).absent;
    missing = absent.empty() ? fmt::format("the {} backend was built without one", name_of(device_.kind)) : absent;
  } else {
    try {
      mine = {device, mine[1], static_cast<std::int64_t>(transports->identity(device_))};
    } catch (const Error& e) { missing = e.what(); }
  }
  const auto all = gather_numbers(*inner_, mine);
  const auto ranks = static_cast<std::size_t>(size());
  const auto of = [&](std::size_t r) { return std::span(all).subspan(r * mine.size(), mine.size()); };
  std::size_t on_host = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> rank_of;  // by host and device
  for (std::size_t r = 0; r < ranks && why_.empty(); ++r) {
    on_host += of(r)[0] == host;
    if (of(r)[0] == nothing)
      why_ = fmt::format("rank {} has no way from its device to others'{}{}", r, missing.empty() ? "" : ": ", missing);
    if (of(r)[0] != device || !why_.empty()) continue;
    const auto [other, first] = rank_of.try_emplace({of(r)[1], of(r)[2]}, r);
    if (!first) why_ = fmt::format("ranks {} and {} share a device", other->second, r);
  }
  if (why_.empty() && on_host > 0 && on_host < ranks)
    why_ = fmt::format("{} of {} ranks are on the host", on_host, ranks);
}

/// Either all ranks of `all` get a link, by make(), or all set why_.
void DeviceCommunicator::connect(Communicator& all, const std::string& name,
                                 const std::function<std::unique_ptr<DeviceTransport>()>& make) {
  std::unique_ptr<DeviceTransport> link;
  std::string mine;
  try {
    link = make();
  } catch (const Error& e) { mine = e.what(); }
  const std::array<std::int64_t, 1> joined{link != nullptr};
  const auto made = gather_numbers(all, joined);
  const auto failed = std::ranges::find(made, 0);
  if (failed == made.end()) {
    link_ = std::move(link);
    link_name_ = name;
    return;
  }
  why_ = mine.empty() ? fmt::format("{} did not connect rank {} of {}", name, failed - made.begin(), all.size()) : mine;
  if (link) link->abort(why_);  // a normal close would wait for ranks that never joined
}

}  // namespace trireme
