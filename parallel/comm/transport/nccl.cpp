// NCCL: collectives between ranks with one GPU each. This file is part of the CUDA plugin, which registers it with the
// library. The operations of a communicator run on a separate stream, in the order of the calls, which is equal on all
// ranks. NCCL does not detect ranks that make different calls.
//
// No call blocks forever. NCCL is configured to return at once (blocking = 0), and is polled until it has accepted a
// call. While operations are in progress, a thread checks whether NCCL reports an error, the job was aborted, or an
// operation has run for longer than TRIREME_TIMEOUT. It then aborts all operations of this rank, also on the device. A
// host that waits for the device continues and throws (set_failure).
#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "kernels/core/thread.h"
#include "kernels/cuda/device.h"
#include "parallel/comm/transport/device_transport.h"

namespace trireme::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

ncclDataType_t nccl_type(DType t) {
  switch (t) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    case DType::i8: return ncclInt8;
    case DType::i16: fail("nccl", "has no type i16: convert to i32 with to(DType)");
    case DType::u8:
    case DType::boolean: break;
  }
  return ncclUint8;
}
ncclRedOp_t nccl_op(ReduceOp op) { return op == ReduceOp::sum ? ncclSum : op == ReduceOp::max ? ncclMax : ncclMin; }

std::string in_words(ncclResult_t result, ncclComm_t comm) {
  const char* more = ncclGetLastError(comm);
  return fmt::format("NCCL says: {}{}{}", ncclGetErrorString(result), more && *more ? ": " : "", more ? more : "");
}

cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "nccl");
  return event;
}
/// "not ready" sets CUDA's last error; this function clears it, so that the next call does not report it.
bool passed(cudaEvent_t event, std::string_view what) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  ok(status, what);
  return true;
}

struct Operation {
  std::string what;
  cudaEvent_t begun = nullptr, over = nullptr;  // lent by the group until `over` has passed
  std::vector<Tensor> keep;
  Seconds collective_timeout{};
  Clock::time_point since{};  // time at which it was first found running
  std::string error;
  bool finished = false;
};

/// This rank in a group that NCCL has connected.
class Group {
 public:
  /// connect starts to connect the ranks of host and gives this rank's ncclComm_t.
  Group(Communicator& host, Device device, const std::function<ncclResult_t(ncclComm_t&)>& connect);
  ~Group() { close(); }

  ncclComm_t split(int color, int key);

  template <class Launch>
  std::shared_ptr<Operation> post(const Call& call, std::vector<Tensor> keep, Launch&& launch);
  void wait(Operation&);
  bool done(Operation&);
  void abort(const AbortReason& reason) {
    std::lock_guard lock(mutex_);
    break_off(reason);
  }
  void close();
  int size() const { return host_.size(); }
  int rank() const { return host_.rank(); }
  Device device() const { return device_; }

 private:
  void settle(std::unique_lock<std::mutex>&, ncclResult_t, const std::string& what, Seconds limit);
  void collect();
  void break_off(const AbortReason& why, const Operation* guilty = nullptr);
  void watch();
  void look();
  bool take_leave();
  std::string no_answer(Seconds) const;
  cudaEvent_t borrow();

  Communicator& host_;
  const Device device_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // null: aborted or closed
  ncclComm_t part_ = nullptr;  // of a split: a thread of NCCL writes it, possibly after an abort
  std::string failure_;
  ErrorKind failure_kind_ = ErrorKind::communicator;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr;
  std::vector<cudaEvent_t> events_;
  std::vector<std::shared_ptr<Operation>> under_way_;  // in the order of their calls
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread watchdog_;
  const int unwinding_ = std::uncaught_exceptions();
};

Group::Group(Communicator& host, Device device, const std::function<ncclResult_t(ncclComm_t&)>& connect)
    : host_(host), device_(device) {
  const On on(device, "nccl");
  int least = 0, greatest = 0;
  ok(cudaDeviceGetStreamPriorityRange(&least, &greatest), on.op());
  // Highest priority: collectives need few multiprocessors, and other ranks wait for them.
  ok(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), on.op());
  ready_ = make_event();
  try {
    std::unique_lock lock(mutex_);
    // Half the timeout, so that ranks are still running when the failure is reported to them.
    const ncclResult_t result = connect(comm_);
    check(comm_ != nullptr, ErrorKind::communicator, "nccl", "{}", [&] { return in_words(result, nullptr); });
    settle(lock, result, "nccl", collective_timeout() / 2);
    watchdog_ = start_thread("nccl", [this] { watch(); });
  } catch (...) {
    close();
    throw;
  }
}

/// Splits the group into ranks of equal colors, ordered by key; returns this rank's part. NCCL connects the parts over
/// the group's connections. They inherit its configuration, also splitShare = 0: communicators that share resources
/// share the abort flag. An abort of one would end the operations of all, and the others would report no error. A rank
/// alone needs a color, too: NCCL 2.18 to 2.30 crashes if a split with NCCL_SPLIT_NOCOLOR is aborted.
ncclComm_t Group::split(int color, int key) {
  const On on(device_, "nccl: split");
  ok(cudaStreamSynchronize(stream_), on.op());  // NCCL may deadlock if operations are outstanding; watch() ends these
  std::unique_lock lock(mutex_);
  collect();
  if (!comm_) fail_ended(on.op(), {failure_, failure_kind_});
  part_ = nullptr;
  try {
    // ncclCommSplit returns ncclSuccess before the split is done.
    const ncclResult_t result = ncclCommSplit(comm_, color, key, &part_, nullptr);
    settle(lock, result == ncclSuccess ? ncclInProgress : result, "nccl: split", collective_timeout() / 2);
  } catch (...) {  // this group is aborted
    if (part_) (void)ncclCommAbort(std::exchange(part_, nullptr));
    throw;
  }
  return std::exchange(part_, nullptr);
}

std::string Group::no_answer(Seconds waited) const {
  return fmt::format(
      "rank {} of {} has had no answer from other ranks for {:g} s: another rank hangs or took another path. "
      "TRIREME_TIMEOUT sets the patience in seconds",
      rank(), size(), waited.count());
}

cudaEvent_t Group::borrow() {
  if (events_.empty()) return make_event();
  const cudaEvent_t event = events_.back();
  events_.pop_back();
  return event;
}

/// Waits until NCCL has accepted a call; only then may its stream be used. The first call has to connect to the other
/// ranks, later calls do not.
void Group::settle(std::unique_lock<std::mutex>& lock, ncclResult_t result, const std::string& what, Seconds limit) {
  const auto give_up = [&](const AbortReason& why) {
    break_off({fmt::format("{}: {}", what, why.text), why.kind});
    throw Error(failure_, std::source_location::current(), failure_kind_);
  };
  const auto taken = [&] {
    if (!lock.owns_lock()) lock.lock();
    if (!comm_) fail_ended(what, {failure_, failure_kind_});
    if (result == ncclInProgress)
      if (const auto asked = ncclCommGetAsyncError(comm_, &result); asked != ncclSuccess) result = asked;
    if (result == ncclSuccess) return true;
    if (result != ncclInProgress) give_up(in_words(result, comm_));
    if (const AbortReason ended = host_.ended(); !ended.empty())
      give_up({"ended because of " + ended.text, ended.kind});
    lock.unlock();
    return false;
  };
  if (poll_until(limit.count(), taken)) return;
  lock.lock();
  give_up(no_answer(limit));
}

template <class Launch>
std::shared_ptr<Operation> Group::post(const Call& call, std::vector<Tensor> keep, Launch&& launch) {
  auto op = std::make_shared<Operation>();
  op->what = fmt::format("{} on rank {} of {}", to_string(call), rank(), size());
  op->keep = std::move(keep);
  op->collective_timeout = collective_timeout();
  const On on(device_, op->what);
  refuse_capture(on);  // its events would belong to the graph and could not be polled
  std::unique_lock lock(mutex_);
  collect();
  if (!comm_) fail_ended(op->what, {failure_, failure_kind_});
  ok(cudaEventRecord(ready_, on.stream()), op->what);
  ok(cudaStreamWaitEvent(stream_, ready_), op->what);
  op->begun = borrow();
  op->over = borrow();
  ok(cudaEventRecord(op->begun, stream_), op->what);
  settle(lock, launch(comm_, stream_), op->what, op->collective_timeout);
  ok(cudaEventRecord(op->over, stream_), op->what);
  under_way_.push_back(op);
  if (under_way_.size() == 1) changed_.notify_one();
  return op;
}

// A tensor that is released after this is safe: its memory is reused in the order of the device's stream, which from
// here on waits for the operation.
void Group::wait(Operation& op) {
  std::lock_guard lock(mutex_);
  if (!op.error.empty()) throw Error(op.error, std::source_location::current(), failure_kind_);
  if (op.finished) return;
  const On on(device_, op.what);
  ok(cudaStreamWaitEvent(on.stream(), op.over), op.what);
  op.keep.clear();
}

bool Group::done(Operation& op) {
  std::lock_guard lock(mutex_);
  if (op.error.empty() && !op.finished) collect();
  return !op.error.empty() || op.finished;
}

/// Releases finished operations. Call with the mutex held, like all functions below.
void Group::collect() {
  if (under_way_.empty()) return;
  const On on(device_, "nccl");
  std::erase_if(under_way_, [&](auto& op) {
    if (!passed(op->over, op->what)) return false;
    op->finished = true;
    op->keep.clear();
    events_.push_back(std::exchange(op->begun, nullptr));
    events_.push_back(std::exchange(op->over, nullptr));
    return true;
  });
}

/// Aborts all operations of this rank. guilty: the operation that caused `why`.
void Group::break_off(const AbortReason& why, const Operation* guilty) {
  if (!comm_) return;
  failure_ = guilty ? fmt::format("{}: {}", guilty->what, why.text) : why.text;
  failure_kind_ = why.kind;
  for (auto& op : under_way_)
    if (op->error.empty())
      op->error = op.get() == guilty ? failure_ : fmt::format("{}: ended because of {}", op->what, failure_);
  set_failure(device_, under_way_.empty() ? failure_ : under_way_.front()->error, failure_kind_);
  (void)ncclCommAbort(std::exchange(comm_, nullptr));
}

void Group::watch() {
  constexpr std::chrono::milliseconds pause{50};
  for (std::unique_lock lock(mutex_); !closing_;) {
    if (under_way_.empty())
      changed_.wait(lock);
    else if (changed_.wait_for(lock, pause) == std::cv_status::timeout)
      look();
  }
}

void Group::look() {
  try {
    collect();
    if (under_way_.empty() || !comm_) return;
    if (const AbortReason ended = host_.ended(); !ended.empty()) return break_off(ended);
    ncclResult_t state = ncclSuccess;
    if (const auto asked = ncclCommGetAsyncError(comm_, &state); asked != ncclSuccess) state = asked;
    Operation& oldest = *under_way_.front();
    if (state != ncclSuccess && state != ncclInProgress) return break_off(in_words(state, comm_), &oldest);
    const auto now = Clock::now();
    if (oldest.since == Clock::time_point{}) {
      if (passed(oldest.begun, oldest.what)) oldest.since = now;
    } else if (now - oldest.since > oldest.collective_timeout) {
      break_off(no_answer(oldest.collective_timeout), &oldest);
    }
  } catch (const Error& e) { break_off({e.what(), e.kind()}); }
}

/// Closes the group. Returns false if the other ranks did not close it, too, within the timeout of current operations
/// or a short time.
bool Group::take_leave() {
  constexpr Seconds most{10};
  const auto in_time = [&](Seconds limit, auto&& over) {
    bool is_over = false;
    return poll_until(limit.count(), [&] { return (is_over = over()) || !host_.ended().empty(); }) && is_over;
  };
  const auto flushed = [&] {
    collect();
    return under_way_.empty();
  };
  if (!in_time(collective_timeout(), flushed)) return false;
  ncclResult_t result = ncclCommFinalize(comm_);
  const auto quiet = [&] {
    if (result == ncclInProgress && ncclCommGetAsyncError(comm_, &result) != ncclSuccess) result = ncclInternalError;
    return result != ncclInProgress;
  };
  return in_time(std::min<Seconds>(most, collective_timeout()), quiet) && result == ncclSuccess;
}

void Group::close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  if (watchdog_.joinable()) watchdog_.join();
  std::lock_guard lock(mutex_);
  try {
    const On on(device_, "nccl");
    if (comm_ && std::uncaught_exceptions() <= unwinding_ && take_leave())
      (void)ncclCommDestroy(std::exchange(comm_, nullptr));
    else if (comm_)
      break_off("its communicator is gone");
    if (!failure_.empty() && stream_) {
      (void)cudaStreamSynchronize(stream_);  // aborted operations then no longer use their tensors
      set_failure(device_, "");
    }
    collect();
    for (const cudaEvent_t event : std::exchange(events_, {})) (void)cudaEventDestroy(event);
    if (ready_) (void)cudaEventDestroy(std::exchange(ready_, nullptr));
    if (stream_) (void)cudaStreamDestroy(std::exchange(stream_, nullptr));
  } catch (...) {  // the device is gone
  }
}

struct NcclWork final : Work::State {
  NcclWork(std::shared_ptr<Group> g, std::shared_ptr<Operation> o) : group(std::move(g)), operation(std::move(o)) {}
  bool wait(double) override {
    group->wait(*operation);
    return true;
  }
  bool done() override { return group->done(*operation); }
  std::string late(double seconds) override { return late_text(operation->what + ":", seconds); }

  std::shared_ptr<Group> group;
  std::shared_ptr<Operation> operation;
};

class Nccl final : public DeviceTransport {
 public:
  explicit Nccl(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  ~Nccl() override { group_->close(); }

  Work start(const Call& c, const Tensor& out, const Tensor& in) override {
    const auto post = [&](ncclComm_t comm, cudaStream_t s) {
      const std::size_t n = count(c.count), share = n / count(group_->size());
      void* const to = out.view().data;
      const void* const from = in.view().data;
      const ncclDataType_t type = nccl_type(c.type);
      switch (c.kind) {
        case CallKind::all_reduce: return ncclAllReduce(from, to, n, type, nccl_op(c.op), comm, s);
        case CallKind::reduce_scatter: return ncclReduceScatter(from, to, share, type, nccl_op(c.op), comm, s);
        case CallKind::all_gather: return ncclAllGather(from, to, share, type, comm, s);
        case CallKind::broadcast: {
          void* const data = in.defined() ? in.view().data : to;
          return ncclBroadcast(data, data, n, type, c.root, comm, s);
        }
        default: return all_to_all(c, to, from, share, comm, s);
      }
    };
    return Work(std::make_shared<NcclWork>(group_, group_->post(c, {out, in}, post)));
  }
  std::unique_ptr<DeviceTransport> split(Communicator& part, int color) override {
    return std::make_unique<Nccl>(std::make_shared<Group>(part, group_->device(), [&](ncclComm_t& comm) {
      comm = group_->split(color, part.rank());
      return ncclInProgress;
    }));
  }
  void abort(const AbortReason& reason) override { group_->abort(reason); }

 private:
  static std::size_t count(Index n) { return static_cast<std::size_t>(n); }
  ncclResult_t all_to_all(const Call& c, void* to, const void* from, std::size_t each, ncclComm_t comm,
                          cudaStream_t s) const {
    const std::size_t bytes = each * static_cast<std::size_t>(size_of(c.type));
    ncclResult_t first = ncclGroupStart();
    const auto keep = [&](ncclResult_t r) {
      if (first == ncclSuccess && r != ncclInProgress) first = r;
    };
    for (int peer = 0; peer < group_->size(); ++peer) {
      const std::size_t at = static_cast<std::size_t>(peer) * bytes;
      keep(ncclSend(static_cast<const char*>(from) + at, each, nccl_type(c.type), peer, comm, s));
      keep(ncclRecv(static_cast<char*>(to) + at, each, nccl_type(c.type), peer, comm, s));
    }
    const ncclResult_t last = ncclGroupEnd();
    return first == ncclSuccess ? last : first;
  }

  std::shared_ptr<Group> group_;
};

class NcclTransports final : public DeviceTransports {
 public:
  std::string name() const override { return "nccl"; }

  std::uint64_t identity(Device device) const override {
    const On on(device, "nccl");
    cudaDeviceProp about{};
    ok(cudaGetDeviceProperties(&about, device.index), on.op());
    return std::hash<std::string_view>()({about.uuid.bytes, sizeof about.uuid.bytes});
  }

  std::unique_ptr<DeviceTransport> join(Communicator& host, Device device) const override {
    const Tensor note = Tensor::zeros({1 + NCCL_UNIQUE_ID_BYTES}, DType::u8);
    auto* bytes = note.data<std::uint8_t>();
    ncclUniqueId id{};
    ncclResult_t result = ncclSuccess;
    if (host.rank() == 0) {
      result = ncclGetUniqueId(&id);
      bytes[0] = result == ncclSuccess;
      std::memcpy(bytes + 1, id.internal, sizeof id.internal);
    }
    host.broadcast(note, 0).wait();
    check(result == ncclSuccess, ErrorKind::communicator, "nccl", "{}", [&] { return in_words(result, nullptr); });
    check(bytes[0] == 1, ErrorKind::communicator, "nccl", "it did not start on rank 0");
    std::memcpy(id.internal, bytes + 1, sizeof id.internal);
    return std::make_unique<Nccl>(std::make_shared<Group>(host, device, [&](ncclComm_t& comm) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      return ncclCommInitRankConfig(&comm, host.size(), id, host.rank(), &config);
    }));
  }
};

const NcclTransports transports;
const bool registered = set_device_transports(DeviceKind::cuda, &transports);

}  // namespace
}  // namespace trireme::gpu
