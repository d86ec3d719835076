// Ranks as MPI processes.
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include "kernels/core/environment.h"
#include "kernels/core/runtime.h"
#include "parallel/comm/call.h"
#include "parallel/comm/crash_report.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/reduce.h"
#include "parallel/comm/transport/mpi_engine.h"
#include "parallel/comm/transport/mpi_ranks.h"
#include "parallel/comm/transport/shared_memory.h"

namespace trireme {
namespace {

MPI_Datatype mpi_type(DType t) {
  switch (t) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::bf16:
    case DType::f16: return MPI_UINT16_T;
    case DType::i16: return MPI_INT16_T;
    case DType::i8: return MPI_INT8_T;
    case DType::i32: return MPI_INT32_T;
    case DType::i64: return MPI_INT64_T;
    case DType::u8:
    case DType::boolean: break;
  }
  return MPI_UINT8_T;
}

struct MpiWork : Work::State {
  MpiWork(std::shared_ptr<Engine> e, std::shared_ptr<Operation> o) : engine(std::move(e)), operation(std::move(o)) {}
  bool wait(double seconds) override {
    ++engine->waiting;
    const std::unique_ptr<Engine, void (*)(Engine*)> end(engine.get(), [](Engine* e) { --e->waiting; });
    return State::wait(seconds);
  }
  bool done() override { return engine->poll(*operation); }
  void finish() override {
    if (!operation->done) engine->abort_flag.check(operation->what);
    if (!operation->error.empty())
      throw Error(operation->error, std::source_location::current(), ErrorKind::communicator);
  }
  std::string late(double seconds) override { return engine->late(*operation, seconds); }
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Operation> operation;
};

// How ranks of one host reduce, from TRIREME_SHARED_MEMORY.
enum Sharing : int { by_mpi, staged, direct };
Sharing sharing_wanted(bool reachable) {
  const std::string wanted = environment_text("TRIREME_SHARED_MEMORY").value_or("1");
  if (wanted == "1") return reachable ? direct : staged;
  if (wanted == "0") return by_mpi;
  if (wanted == "staged") return staged;
  check(reachable, "world",
        "TRIREME_SHARED_MEMORY is direct, but the system does not let the processes of this host reach each other's "
        "memory (process_vm_readv)");
  return direct;
}

// Waits for a call that MPI has begun, and yields meanwhile. A blocking MPI call spins: with more ranks than cores,
// each of its rounds would take a scheduler time slice.
int let_others_run(int begun, MPI_Request& request) {
  for (int done = 0; begun == MPI_SUCCESS && !done; sched_yield()) begun = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  return begun;
}
int all_reduce_min(int& number, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  return let_others_run(MPI_Iallreduce(MPI_IN_PLACE, &number, 1, MPI_INT, MPI_MIN, comm, &request), request);
}

// Memory shared by all ranks of comm (of one host); empty if the system does not allow it. A collective call.
SharedMemory share(MPI_Comm comm, std::size_t bytes) {
  int rank = 0;
  ok(MPI_Comm_rank(comm, &rank), "world");
  SharedMemory memory = rank == 0 ? SharedMemory(bytes) : SharedMemory();
  SharedMemory::Name name = memory.name();
  MPI_Request request = MPI_REQUEST_NULL;
  ok(let_others_run(MPI_Ibcast(&name, sizeof name, MPI_BYTE, 0, comm, &request), request), "world");
  if (rank != 0) memory = SharedMemory(name, bytes);
  int all = memory.data() != nullptr;
  ok(all_reduce_min(all, comm), "world");
  memory.close_name();
  return all ? std::move(memory) : SharedMemory();
}

class MpiCommunicator : public Communicator {
 public:
  /// Takes ownership of comm. local: its ranks share this host. A collective call.
  MpiCommunicator(MPI_Comm comm, std::shared_ptr<Engine> engine, bool local)
      : comm_(comm), engine_(std::move(engine)), local_(local) {
    ok(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "world");
    ok(MPI_Comm_rank(comm_, &rank_), "world");
    ok(MPI_Comm_size(comm_, &size_), "world");
    if (size_ == 1) return;
    if (share_memory()) return;
    compares_ = environment_text("TRIREME_COMPARE_CALLS").value_or("1") != "0";
  }
  /// Tries to share memory between the ranks, which then compare their calls in it. Returns whether it worked. A
  /// collective call.
  bool share_memory() {
    if (!local_ || !engine_->flag_is_shared) return false;
    int sharing = sharing_wanted(engine_->token.where);
    ok(all_reduce_min(sharing, comm_), "world");
    if (sharing == by_mpi) return false;
    SharedMemory memory = share(comm_, ShmAllReduce::bytes(size_));
    if (memory.data())
      shm_ = std::make_shared<ShmAllReduce>(std::move(memory), engine_->abort_flag, engine_->shm_reduces, rank_, size_,
                                            sharing == direct ? engine_->token : ProcessToken{});
    return shm_ != nullptr;
  }
  ~MpiCommunicator() override {
    if (engine_->stopped() || std::uncaught_exceptions() > unwinding_) return;
    std::lock_guard lock(engine_->mutex);
    MPI_Comm_free(&comm_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string transport() const override {
    return !shm_ ? "mpi" : shm_->direct() ? "mpi, shared memory" : "mpi, staged in shared memory";
  }

  Work start(const Call& call, const Tensor& out, const Tensor& in, std::span<const Index> counts) override {
    if (call.kind == CallKind::all_reduce && call.count == 0 && !compares_) {
      if (shm_) shm_->post_call(call);
      return {};
    }
    const bool shared = shm_ && shm_->takes(call);
    const Index own = rank_ * (call.count / size_) * size_of(call.type);
    if (call.kind == CallKind::reduce_scatter && within(out, in) &&  // MPI forbids overlapping buffers
        !(shared && out.view().as<char>() == in.view().as<char>() + own)) {
      const Tensor apart = Tensor::like(out);
      return when_all({start(call, apart, in, counts)}, [out, apart] { copy_block(out.view(), apart.view()); });
    }
    if (shared) return shm_->post(call, out, in);
    auto operation = std::make_shared<Operation>();
    operation->what = fmt::format("{} on rank {} of {}", to_string(call), rank_, size_);
    operation->keep = {out, in};
    if (call.kind == CallKind::recv) {
      operation->type = mpi_type(call.type);
      operation->expected = call.count;
    }
    if (shm_ && call.kind < CallKind::send) {
      operation->shm = shm_;
      operation->number = shm_->post_call(call);
    }
    const auto offsets = block_offsets(call, counts, size_);
    operation->offsets.assign(offsets.begin(), offsets.end() - 1);
    for (std::size_t i = 1; i < offsets.size(); ++i) operation->counts.push_back(offsets[i] - offsets[i - 1]);
    {
      std::lock_guard lock(engine_->mutex);
      if (compares_ && call.kind < CallKind::send) {
        operation->calls.resize(static_cast<std::size_t>(size_));
        operation->calls[static_cast<std::size_t>(rank_)] = call;
        ok(MPI_Iallgather(MPI_IN_PLACE, sizeof call, MPI_BYTE, operation->calls.data(), sizeof call, MPI_BYTE, comm_,
                          &operation->comparison),
           operation->what);
      }
      ok(post(call, out, in, *operation, counts.empty()), operation->what);
      engine_->add(operation);
    }
    return Work(std::make_shared<MpiWork>(engine_, std::move(operation)));
  }
  // Fair between senders: MPI_ANY_SOURCE alone takes the earliest message.
  int probe(int tag, int first) override {
    engine_->shm_reduces->advance();
    std::lock_guard lock(engine_->mutex);
    const auto is_there = [&](int from) {
      int flag = 0;
      ok(MPI_Iprobe(from, tag, comm_, &flag, MPI_STATUS_IGNORE), "recv_any");
      return flag != 0;
    };
    if (!is_there(MPI_ANY_SOURCE)) return -1;
    for (int i = 0; i < size_; ++i)
      if (const int from = (first + i) % size_; is_there(from)) return from;
    return -1;
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    meet({CallKind::split});  // waits without using a core, unlike MPI_Comm_split
    std::lock_guard lock(engine_->mutex);
    MPI_Comm part = MPI_COMM_NULL;
    ok(MPI_Comm_split(comm_, color, key, &part), "split");
    return std::make_unique<MpiCommunicator>(part, engine_, local_ || on_one_host(part));
  }
  void abort(const AbortReason& reason) override {
    engine_->abort_flag.raise(reason);
    if (local_ && engine_->flag_is_shared) return;
    const auto lock = engine_->lock_at_last();
    MPI_Abort(MPI_COMM_WORLD, exit_status(reason.kind));
  }
  AbortReason ended() const override { return engine_->abort_flag.reason(); }
  static bool on_one_host(MPI_Comm comm) {
    MPI_Comm host = MPI_COMM_NULL;
    int here = 0, all = 0;
    ok(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "world");
    ok(MPI_Comm_size(host, &here), "world");
    ok(MPI_Comm_size(comm, &all), "world");
    ok(MPI_Comm_free(&host), "world");
    int same = here == all;
    ok(all_reduce_min(same, comm), "world");
    return same;
  }

 private:
  static bool within(const Tensor& part, const Tensor& whole) {
    const auto* at = part.view().as<char>();
    const auto* begin = whole.view().as<char>();
    return at >= begin && at < begin + whole.view().bytes();
  }
  int post(const Call& call, const Tensor& out, const Tensor& in, Operation& o, bool even) {
    const bool here = rank_ == call.root;
    const Index block = call.count / size_;
    const MPI_Datatype type = mpi_type(call.type);
    const MPI_Op op = engine_->op(call.op, call.type);
    void* const to = out.view().data;
    const void* const from = in.view().data;
    const auto* counts = o.counts.data();
    const auto* offsets = o.offsets.data();
    MPI_Request* const r = &o.request;
    // MPI requires MPI_IN_PLACE if `in` is this rank's block of `out`, or the reverse.
    const auto is_block = [&](const void* part, const void* whole) {
      return static_cast<const char*>(whole) + offsets[rank_] * size_of(call.type) == part;
    };
    switch (call.kind) {
      case CallKind::all_reduce: return MPI_Iallreduce_c(MPI_IN_PLACE, to, call.count, type, op, comm_, r);
      case CallKind::reduce:
        return MPI_Ireduce_c(here && from == to ? MPI_IN_PLACE : from, to, call.count, type, op, call.root, comm_, r);
      case CallKind::reduce_scatter:
        return even ? MPI_Ireduce_scatter_block_c(from, to, block, type, op, comm_, r)
                    : MPI_Ireduce_scatter_c(from, to, counts, type, op, comm_, r);
      case CallKind::all_gather: {
        const void* mine = is_block(from, to) ? MPI_IN_PLACE : from;
        return even ? MPI_Iallgather_c(mine, block, type, to, block, type, comm_, r)
                    : MPI_Iallgatherv_c(mine, counts[rank_], type, to, counts, offsets, type, comm_, r);
      }
      case CallKind::gather:
        return MPI_Igatherv_c(here && is_block(from, to) ? MPI_IN_PLACE : from, counts[rank_], type, to, counts,
                              offsets, type, call.root, comm_, r);
      case CallKind::scatter:
        return MPI_Iscatterv_c(from, counts, offsets, type, here && is_block(to, from) ? MPI_IN_PLACE : to,
                               counts[rank_], type, call.root, comm_, r);
      case CallKind::broadcast:
        return MPI_Ibcast_c(here ? const_cast<void*>(from) : to, call.count, type, call.root, comm_, r);
      case CallKind::all_to_all: return MPI_Ialltoall_c(from, block, type, to, block, type, comm_, r);
      case CallKind::send: return MPI_Isend_c(from, call.count, type, call.root, call.tag, comm_, r);
      case CallKind::recv: return MPI_Irecv_c(to, call.count, type, call.root, call.tag, comm_, r);
      case CallKind::barrier:
      case CallKind::split: break;
    }
    return MPI_Ibarrier(comm_, r);
  }

  MPI_Comm comm_;
  std::shared_ptr<Engine> engine_;
  bool local_;
  int rank_ = 0, size_ = 1;
  std::shared_ptr<ShmAllReduce> shm_;
  bool compares_ = false;  // compare calls by MPI
  int unwinding_ = std::uncaught_exceptions();
};

class Process : public MpiProcess {
 public:
  Process() {
    ok(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host_), "world");
    ok(MPI_Comm_rank(host_, &local_rank_), "world");
    ok(MPI_Comm_size(host_, &local_size_), "world");
    one_host_ = MpiCommunicator::on_one_host(MPI_COMM_WORLD);
    shared_flag_ = share(host_, sizeof(AbortFlag));
    auto* const flag = static_cast<AbortFlag*>(shared_flag_.data());
    engine_ = std::make_shared<Engine>(flag ? *flag : own_flag_, flag != nullptr);
    if (all_reachable()) engine_->token = token_;
    if (flag_ends_all())
      leave_at_crash([this](const std::string& why) {
        (void)engine_->abort_flag.is_teller();  // this rank has printed the reason
        engine_->abort_flag.raise({why, ErrorKind::communicator});
        meet_leaving(2);
      });
  }
  ~Process() override { leave_at_crash({}); }
  bool leave() override {
    engine_->stop();
    // Custom wait: ranks may arrive late, and MPI's wait would use a core meanwhile.
    MPI_Request request = MPI_REQUEST_NULL;
    int flag = 0;
    ok(MPI_Ibarrier(MPI_COMM_WORLD, &request), "world");
    const auto met = [&] {
      ok(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "world");
      if (!flag) engine_->abort_flag.check("leaving");
      return flag != 0;
    };
    poll_until(std::numeric_limits<double>::infinity(), met);
    if (one_host_) {
      MPI_Finalize();
    } else {
      // MPI_Finalize may hang in UCX's tcp transport. A second, blocking barrier ensures that the first one's messages
      // were sent.
      MPI_Barrier(MPI_COMM_WORLD);
      tell_launcher();
    }
    return one_host_;
  }
  bool first_to_fail(const AbortReason& reason) override {
    engine_->abort_flag.raise(reason);
    const bool first = engine_->abort_flag.is_teller();
    if (!first) pause_ += std::chrono::seconds(1);  // so that the first rank's message is printed before
    return first;
  }
  void abandon(const AbortReason& reason) override {
    engine_->abort_flag.raise(reason);
    if (!flag_ends_all()) std::atexit([] { MPI_Abort(MPI_COMM_WORLD, exit_status(ErrorKind::internal)); });
  }
  void end_job(int status) override {
    // On one host the launcher silently stops the other ranks when this process exits. MPI_Abort would print text after
    // the error message.
    if (!flag_ends_all()) {
      // The launcher reads ranks' output from pipes, and drops unread output at an abort.
      std::this_thread::sleep_for(pause_);
      const auto lock = engine_->lock_at_last();
      if (int nowhere = open("/dev/null", O_WRONLY); nowhere >= 0) {
        dup2(nowhere, STDERR_FILENO);
        dup2(nowhere, STDOUT_FILENO);
      }
      MPI_Abort(MPI_COMM_WORLD, status);
    }
    // The launcher then kills ranks that do not get here within 5 s: stopped ranks, and ranks in a long computation.
    meet_leaving(5);
    _exit(status == 0 ? exit_status(ErrorKind::internal) : status);
  }

  void meet_leaving(double seconds) {
    ++engine_->abort_flag.leaving;
    const FlightRecorder::Wait waiting;
    if (poll_until(seconds, [&] { return engine_->abort_flag.leaving >= static_cast<std::uint32_t>(local_size_); }))
      tell_launcher();
  }
  bool flag_ends_all() const { return one_host_ && engine_->flag_is_shared; }
  // Does the part of MPI_Finalize for which mpiexec (Hydra) waits, in its wire protocol (PMI-1). Without it mpiexec
  // takes the end of this process for a crash, and kills ranks that have not quite ended.
  static void tell_launcher() {
    if (!std::getenv("PMI_FD") || !std::getenv("HYDI_CONTROL_FD")) return;
    const int file = static_cast<int>(environment_number("PMI_FD").value_or(-1));
    constexpr std::string_view text = "cmd=finalize\n";
    char answer[256];
    if (write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size())) [[maybe_unused]]
      auto n = read(file, answer, sizeof answer);
  }
  bool all_reachable() {
    const bool drawn = getrandom(&drawn_, sizeof drawn_, 0) == sizeof drawn_;
    token_ = {getpid(), drawn ? &drawn_ : nullptr, drawn_};
    std::vector<ProcessToken> all(local_size_);
    ok(MPI_Allgather(&token_, sizeof token_, MPI_BYTE, all.data(), sizeof token_, MPI_BYTE, host_), "world");
    int reached = std::all_of(all.begin(), all.end(), [](auto& token) { return token.reachable(); });
    ok(MPI_Allreduce(MPI_IN_PLACE, &reached, 1, MPI_INT, MPI_MIN, host_), "world");
    return reached;
  }
  /// Ranks of this host, from rank `first` to before rank `last`, whose cores overlap this rank's. A collective call.
  int sharing(int first, int last) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    std::vector<cpu_set_t> all(local_size_);
    ok(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, host_), "world");
    return static_cast<int>(std::count_if(all.begin() + first, all.begin() + last, [&](cpu_set_t& other) {
      cpu_set_t both;
      CPU_AND(&both, &mine, &other);
      return CPU_COUNT(&both) > 0;
    }));
  }
  MpiRanks ranks() {
    MPI_Comm world = MPI_COMM_NULL;
    ok(MPI_Comm_dup(MPI_COMM_WORLD, &world), "world");
    return {nullptr,
            std::make_unique<MpiCommunicator>(world, engine_, one_host_),
            local_rank_,
            local_size_,
            sharing(0, local_size_),
            sharing(0, local_rank_)};
  }

 private:
  MPI_Comm host_ = MPI_COMM_NULL;
  int local_rank_ = 0, local_size_ = 1;
  bool one_host_ = true;
  std::chrono::milliseconds pause_{300};  // before MPI_Abort
  SharedMemory shared_flag_;
  AbortFlag own_flag_ = {};  // used if processes cannot share one
  std::shared_ptr<Engine> engine_;
  std::uint64_t drawn_ = 0;  // random number that identifies this process to others
  ProcessToken token_;
};

}  // namespace

MpiRanks join_mpi(int& argc, char**& argv) {
  int was = 0;
  MPI_Initialized(&was);
  check(!was, "world", "MPI is initialised already: a process may join it once, through one World");
  if (const auto file = environment_number("PMI_FD"); file && fcntl(static_cast<int>(*file), F_GETFD) < 0)
    fail("environment", "PMI_FD is {}, expected an open descriptor of mpiexec: unset it, or start with mpiexec", *file);
  int provided = 0;
  ok(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided), "world");
  check(provided >= MPI_THREAD_SERIALIZED, ErrorKind::communicator, "world",
        "this MPI allows calls from one thread only; Trireme needs MPI_THREAD_SERIALIZED");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  auto process = std::make_unique<Process>();
  MpiRanks ranks = process->ranks();
  ranks.process = std::move(process);
  return ranks;
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0, major = 0, minor = 0;
  MPI_Get_library_version(text, &length);
  MPI_Get_version(&major, &minor);
  std::string name(text, std::strcspn(text, "\n"));
  if (name.starts_with("MPICH Version:")) name = "MPICH " + name.substr(name.find_first_not_of(" \t", 14));
  return fmt::format("{} (MPI {}.{})", name, major, minor);
}

}  // namespace trireme
