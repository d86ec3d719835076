// The emulated NCCL: for ranks that are threads of one process, each with an emulated device of its own, and for
// communicators that do not block. The rank that comes last does the work for all. Where streams are threads
// (TRIREME_EMULATOR_ASYNC=1), an operation holds its stream up until then, as a kernel of NCCL's holds up the real one;
// elsewhere the call is "in progress" until then.
//
// Of the real one's rules it checks: one device per rank, no call while another is in progress, operands on the device,
// the same call on all ranks (the real one would hang, or worse), messages of the sizes that are expected. A split
// needs a parent without operations, and gives a communicator that may be used after the parent has been asked for its
// state. Communicators that share resources (splitShare) are refused, and so is NCCL_SPLIT_NOCOLOR: the real one
// crashes if such a split is aborted (2.18 to 2.30). TRIREME_EMULATOR_NCCL_REFUSES=R: rank R cannot join anything.
// TRIREME_EMULATOR_NCCL_SPLIT_REFUSES=N: the N-th split of rank 1 of a communicator fails.
// TRIREME_EMULATOR_NCCL_SPLIT_HANGS=N: it does not reach the other ranks.
#include <emulator/device_access.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/comm/reduce.h"
#include "tests/cuda_emulator/settings.h"

namespace {

using trireme::DType;
using trireme::Index;

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast };
struct PendingCall {
  Kind kind{};
  const char* in = nullptr;
  char* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type{};
  ncclRedOp_t op{};
  int root = 0;
  bool same(const PendingCall& o) const {
    return kind == o.kind && count == o.count && type == o.type && op == o.op && root == o.root;
  }
};
struct Message {
  bool send = false;
  char* data = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  bool met = false;
};
/// What a call of a rank waits for: that all ranks made it, or that its messages came.
struct Step {
  bool done = false;
  std::vector<PendingCall> asks;  // by rank
  int arrived = 0;
  std::vector<Message> messages;
  int rank = 0;  // whose they are
};

struct Member;
/// What a rank asks for in a split.
struct SplitCall {
  int color = 0, key = 0;
  std::shared_ptr<Member> parent;
  ncclComm_t* to = nullptr;
};

struct Clique {
  explicit Clique(int n) : ranks(n) {}
  const int ranks;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> devices;  // of those who joined
  int finalized = 0;
  bool broken = false;  // somebody left: nothing completes any more
  ncclResult_t error = ncclSuccess;
  std::string text;
  std::map<std::uint64_t, std::shared_ptr<Step>> steps;
  std::deque<std::shared_ptr<Step>> waiting;  // for messages
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> boxes;
  std::vector<SplitCall> splits;  // of those who came

  void fail(ncclResult_t result, const std::string& why) {
    if (error == ncclSuccess) {
      error = result;
      text = why;
    }
    changed.notify_all();
  }
  void arrive(std::uint64_t number, int rank, const PendingCall&, const std::shared_ptr<Step>&);
  void split();
  void deliver();
};

std::size_t bytes_of(ncclDataType_t t) {
  switch (t) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}
bool type_of(ncclDataType_t t, DType& type) {
  switch (t) {
    case ncclUint8: type = DType::u8; return true;
    case ncclInt32: type = DType::i32; return true;
    case ncclInt64: type = DType::i64; return true;
    case ncclFloat16: type = DType::f16; return true;
    case ncclFloat32: type = DType::f32; return true;
    case ncclFloat64: type = DType::f64; return true;
    case ncclBfloat16: type = DType::bf16; return true;
    default: return false;
  }
}

void reduce(const std::vector<PendingCall>& asks, std::size_t skip, const std::vector<void*>& outs) {
  DType type{};
  (void)type_of(asks[0].type, type);
  const auto op = asks[0].op == ncclSum   ? trireme::ReduceOp::sum
                  : asks[0].op == ncclMax ? trireme::ReduceOp::max
                                          : trireme::ReduceOp::min;
  std::vector<const void*> ins;
  for (const PendingCall& a : asks) ins.push_back(a.in + skip);
  trireme::reduce_all(outs, ins, static_cast<Index>(asks[0].count), type, op);
}

void run(const std::vector<PendingCall>& asks) {
  const emulator::DeviceAccess access;
  const std::size_t bytes = asks[0].count * bytes_of(asks[0].type);
  const std::size_t ranks = asks.size();
  std::vector<void*> outs;
  for (const PendingCall& a : asks) outs.push_back(a.out);
  for (std::size_t r = 0; r < ranks; ++r) switch (asks[0].kind) {
      case Kind::all_reduce:
        if (r == 0) reduce(asks, 0, outs);
        break;
      case Kind::reduce_scatter: reduce(asks, r * bytes, {outs[r]}); break;
      case Kind::all_gather:
        for (const PendingCall& to : asks) std::memmove(to.out + r * bytes, asks[r].in, bytes);
        break;
      case Kind::broadcast: {
        const char* from = asks[static_cast<std::size_t>(asks[0].root)].in;
        if (asks[r].out != from) std::memcpy(asks[r].out, from, bytes);
      }
    }
}

/// With the mutex held.
void Clique::arrive(std::uint64_t number, int rank, const PendingCall& ask, const std::shared_ptr<Step>& step) {
  step->asks.resize(static_cast<std::size_t>(ranks));
  for (int r = 0, seen = 0; seen < step->arrived && r < ranks; ++r)
    if (const PendingCall& other = step->asks[static_cast<std::size_t>(r)]; other.out) {
      ++seen;
      if (!ask.same(other)) fail(ncclInvalidArgument, "the ranks made different calls");
    }
  step->asks[static_cast<std::size_t>(rank)] = ask;
  if (++step->arrived < ranks || broken || error != ncclSuccess) return;
  run(step->asks);
  step->done = true;
  steps.erase(number);
  changed.notify_all();
}

/// Hands out the messages that are there, in the order of the calls that want them. With the mutex held.
void Clique::deliver() {
  const emulator::DeviceAccess access;
  for (auto& step : waiting) {
    bool all = true;
    for (Message& m : step->messages) {
      if (m.send || m.met) continue;
      auto& box = boxes[{m.peer, step->rank}];
      if (!broken && !box.empty()) {
        if (box.front().size() != m.bytes) return fail(ncclInvalidUsage, "a message has another size than expected");
        std::memcpy(m.data, box.front().data(), m.bytes);
        box.pop_front();
        m.met = true;
      }
      all = all && m.met;
    }
    step->done = all;
  }
  std::erase_if(waiting, [](auto& step) { return step->done; });
  changed.notify_all();
}

/// A rank of a clique, as long as its streams may hold on to it.
struct Member {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  std::uint64_t calls = 0;
  bool gone = false, finalizing = false, splitting = false;
  int splits = 0;
  int queued = 0;                                          // operations that its streams have not finished
  std::shared_ptr<Step> last;                              // of a call that may be in progress
  std::shared_ptr<std::atomic<bool>> usable, usable_part;  // this one; the last one split from it
};

/// With the mutex held.
ncclResult_t state(const Member& m) {
  const Clique& c = *m.clique;
  if (c.error != ncclSuccess) return c.error;
  if (static_cast<int>(c.devices.size()) < c.ranks) return ncclInProgress;
  if (m.splitting) return ncclInProgress;
  if (m.finalizing) return c.finalized == c.ranks ? ncclSuccess : ncclInProgress;
  return m.last && !m.last->done ? ncclInProgress : ncclSuccess;
}

struct Grouped {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Message> messages;
};
thread_local Grouped group;

std::shared_ptr<Clique> find(const ncclUniqueId& id, int ranks) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<std::string, std::weak_ptr<Clique>>;
  std::lock_guard lock(mutex);
  auto& known = all[std::string(id.internal, sizeof id.internal)];
  auto clique = known.lock();
  if (!clique) known = clique = std::make_shared<Clique>(ranks);
  return clique;
}

/// begin: with the mutex held; says that a rank came.
template <class Begin>
ncclResult_t start(const std::shared_ptr<Member>& m, cudaStream_t stream, const std::shared_ptr<Step>& step,
                   Begin begin) {
  if (emulator::settings().async) {
    {
      std::lock_guard lock(m->clique->mutex);
      ++m->queued;
    }
    emulator::enqueue(stream, [m, step, begin] {
      std::unique_lock lock(m->clique->mutex);
      if (m->gone) return;
      begin();
      m->clique->changed.wait(lock, [&] { return step->done || m->gone; });
      --m->queued;
    });
    return ncclSuccess;
  }
  std::lock_guard lock(m->clique->mutex);
  begin();
  m->last = step;
  return state(*m);
}

bool on_device(const Member& m, const void* p, std::size_t count, ncclDataType_t type) {
  DType known{};
  return type_of(type, known) && emulator::on_device(p, count * bytes_of(type), m.device);
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Member> member = std::make_shared<Member>();
};

namespace {

std::atomic<int> unique_ids, inits, split_calls;

/// Once all ranks came. With the mutex held.
void Clique::split() {
  std::ranges::stable_sort(splits, {}, [](const SplitCall& c) { return std::tuple(c.color, c.key, c.parent->rank); });
  std::shared_ptr<Clique> part;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    const SplitCall& call = splits[i];
    const auto same = [&](const SplitCall& c) { return c.color == call.color; };
    if (i == 0 || !same(splits[i - 1]))
      part = std::make_shared<Clique>(static_cast<int>(std::ranges::count_if(splits, same)));
    auto* comm = new ncclComm;
    Member& m = *comm->member;
    m.clique = part;
    m.rank = static_cast<int>(part->devices.size());
    m.device = call.parent->device;
    part->devices.push_back(m.device);
    m.usable = call.parent->usable_part = std::make_shared<std::atomic<bool>>(false);
    call.parent->splitting = false;
    *call.to = comm;
  }
  splits.clear();
}

/// Whether an environment variable has this value.
bool is_set(const char* variable, int value) {
  const char* text = std::getenv(variable);
  return text && std::atoi(text) == value;
}

bool good(const ncclConfig_t& c) {
  return c.magic == 0xcafebeef && c.blocking == 0 && (c.splitShare == NCCL_CONFIG_UNDEF_INT || c.splitShare == 0);
}

ncclResult_t collective(ncclComm_t comm, cudaStream_t stream, const PendingCall& ask, std::size_t in, std::size_t out) {
  if (!comm || group.depth > 0 || emulator::device_of(stream) != comm->member->device) return ncclInvalidUsage;
  const auto m = comm->member;
  if (m->usable && !*m->usable) return ncclInvalidUsage;
  if (!on_device(*m, ask.in, in, ask.type) || !on_device(*m, ask.out, out, ask.type)) return ncclInvalidArgument;
  std::shared_ptr<Step> step;
  const std::uint64_t number = m->calls++;
  {
    std::lock_guard lock(m->clique->mutex);
    if (const auto now = state(*m); now != ncclSuccess) return now == ncclInProgress ? ncclInvalidUsage : now;
    auto& slot = m->clique->steps[number];
    if (!slot) slot = std::make_shared<Step>();
    step = slot;
  }
  return start(m, stream, step, [m, number, ask, step] { m->clique->arrive(number, m->rank, ask, step); });
}

ncclResult_t message(const Message& m, std::size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  if (!comm || !on_device(*comm->member, m.data, count, type)) return ncclInvalidArgument;
  if (m.peer < 0 || m.peer >= comm->member->clique->ranks) return ncclInvalidArgument;
  if (comm->member->usable && !*comm->member->usable) return ncclInvalidUsage;
  const bool alone = group.depth == 0;
  if (alone) (void)ncclGroupStart();
  if (group.comm && (group.comm != comm || group.stream != stream)) return ncclInvalidUsage;  // not done here
  group.comm = comm;
  group.stream = stream;
  group.messages.push_back(m);
  return alone ? ncclGroupEnd() : ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const char* processes = std::getenv("PMI_SIZE");
  if (processes && std::atoi(processes) > 1) return ncclSystemError;
  const std::string text = std::to_string(getpid()) + " " + std::to_string(++unique_ids);
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  *comm = nullptr;
  ++inits;
  if (!config || !good(*config)) return ncclInvalidArgument;
  if (ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  if (std::atoi(id.internal) != getpid()) return ncclSystemError;
  if (is_set("TRIREME_EMULATOR_NCCL_REFUSES", rank)) return ncclSystemError;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  *comm = new ncclComm;
  Member& m = *(*comm)->member;
  m.clique = find(id, ranks);
  m.rank = rank;
  m.device = device;
  std::lock_guard lock(m.clique->mutex);
  for (int other : m.clique->devices)
    if (other == device) m.clique->fail(ncclInvalidUsage, "Duplicate GPU detected");
  m.clique->devices.push_back(device);
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  ++split_calls;
  if (!comm || !part || (config && !good(*config)) || color < 0) return ncclInvalidArgument;
  *part = nullptr;
  const auto m = comm->member;
  std::lock_guard lock(m->clique->mutex);
  if (group.depth > 0 || (m->usable && !*m->usable)) return ncclInvalidUsage;
  if (const auto now = state(*m); now != ncclSuccess) return now == ncclInProgress ? ncclInvalidUsage : now;
  if (m->queued > 0) return ncclInvalidUsage;
  ++m->splits;
  if (m->rank == 1 && is_set("TRIREME_EMULATOR_NCCL_SPLIT_REFUSES", m->splits)) return ncclSystemError;
  m->splitting = true;
  if (m->rank == 1 && is_set("TRIREME_EMULATOR_NCCL_SPLIT_HANGS", m->splits)) return ncclSuccess;
  if (m->clique->broken) return ncclSuccess;
  m->clique->splits.push_back({color, key, m, part});
  if (std::ssize(m->clique->splits) == m->clique->ranks) m->clique->split();
  return ncclSuccess;  // as NCCL, although the split is under way
}

void emulated_nccl_calls(int calls[3]) {
  calls[0] = unique_ids;
  calls[1] = inits;
  calls[2] = split_calls;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  Member& m = *comm->member;
  std::lock_guard lock(m.clique->mutex);
  m.finalizing = true;
  ++m.clique->finalized;
  return state(m);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Member& m = *comm->member;
  {
    std::lock_guard lock(m.clique->mutex);
    m.gone = true;
    m.clique->changed.notify_all();
  }
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    std::lock_guard lock(comm->member->clique->mutex);
    comm->member->clique->broken = true;
    comm->member->clique->splits.clear();
  }
  return ncclCommDestroy(comm);
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* texts[] = {"no error",       "unhandled cuda error",      "unhandled system error",
                                   "internal error", "invalid argument",          "invalid usage",
                                   "remote error",   "NCCL operation in progress"};
  return result < ncclNumResults ? texts[result] : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t comm) { return comm ? comm->member->clique->text.c_str() : ""; }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  const Member& m = *comm->member;
  std::lock_guard lock(m.clique->mutex);
  *result = state(m);
  if (*result == ncclSuccess && m.usable_part) *m.usable_part = true;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t s) {
  const PendingCall ask{Kind::all_reduce, static_cast<const char*>(in), static_cast<char*>(out), count, type, op, 0};
  return collective(comm, s, ask, count, count);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t s) {
  const PendingCall ask{
      Kind::reduce_scatter, static_cast<const char*>(in), static_cast<char*>(out), count, type, op, 0};
  return collective(comm, s, ask, count * static_cast<std::size_t>(comm->member->clique->ranks), count);
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t s) {
  const PendingCall ask{
      Kind::all_gather, static_cast<const char*>(in), static_cast<char*>(out), count, type, ncclSum, 0};
  return collective(comm, s, ask, count, count * static_cast<std::size_t>(comm->member->clique->ranks));
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t s) {
  if (root < 0 || root >= comm->member->clique->ranks) return ncclInvalidArgument;
  const PendingCall ask{
      Kind::broadcast, static_cast<const char*>(in), static_cast<char*>(out), count, type, ncclSum, root};
  return collective(comm, s, ask, count, count);
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t s) {
  return message({true, static_cast<char*>(const_cast<void*>(data)), count * bytes_of(type), peer}, count, type, comm,
                 s);
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t s) {
  return message({false, static_cast<char*>(data), count * bytes_of(type), peer}, count, type, comm, s);
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0 || !group.comm) return ncclSuccess;
  const Grouped all = std::exchange(group, {});
  const auto m = all.comm->member;
  {
    std::lock_guard lock(m->clique->mutex);
    if (const auto now = state(*m); now != ncclSuccess) return now == ncclInProgress ? ncclInvalidUsage : now;
  }
  const auto step = std::make_shared<Step>();
  step->messages = all.messages;
  step->rank = m->rank;
  return start(m, all.stream, step, [m, step] {
    {
      const emulator::DeviceAccess access;
      for (const Message& out : step->messages)
        if (out.send) m->clique->boxes[{m->rank, out.peer}].emplace_back(out.data, out.data + out.bytes);
    }
    m->clique->waiting.push_back(step);
    m->clique->deliver();
  });
}
