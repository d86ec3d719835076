#include "parallel/comm/transport/mpi_engine.h"

#include <pthread.h>

#include <chrono>

#include "kernels/core/thread.h"
#include "parallel/comm/call.h"
#include "parallel/comm/transport/launcher.h"

namespace trireme {
namespace {

using std::chrono::microseconds;

template <ReduceOp op, DType type>
void reduce(void* in, void* inout, MPI_Count* count, MPI_Datatype*) {
  reduce_into(inout, in, *count, type, op);
}
template <DType type>
std::array<MPI_Op, 3> own_ops() {
  std::array<MPI_Op, 3> ops;
  ok(MPI_Op_create_c(reduce<ReduceOp::sum, type>, 1, &ops[0]), "world");
  ok(MPI_Op_create_c(reduce<ReduceOp::max, type>, 1, &ops[1]), "world");
  ok(MPI_Op_create_c(reduce<ReduceOp::min, type>, 1, &ops[2]), "world");
  return ops;
}

}  // namespace

void ok(int status, std::string_view what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail(ErrorKind::communicator, what, "MPI says: {}", text);
}

Engine::Engine(AbortFlag& flag, bool shared)
    : abort_flag(flag),
      flag_is_shared(shared),
      own_ops_{own_ops<DType::f32>(), own_ops<DType::f64>(), own_ops<DType::bf16>(), own_ops<DType::f16>()},
      thread_(start_thread("world", [this] { watch(); })) {}

MPI_Op Engine::op(ReduceOp op, DType t) const {
  if (!is_float(t)) return op == ReduceOp::sum ? MPI_SUM : op == ReduceOp::max ? MPI_MAX : MPI_MIN;
  if (op == ReduceOp::sum && !is_half(t)) return MPI_SUM;
  const std::size_t type = t == DType::f32 ? 0 : t == DType::f64 ? 1 : t == DType::bf16 ? 2 : 3;
  return own_ops_[type][static_cast<std::size_t>(op)];
}

std::unique_lock<std::mutex> Engine::lock_at_last() {
  std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock) poll_until(2, [&] { return lock.try_lock(); });
  return lock;
}

// Compares the ranks' calls. Returns whether the comparison is finished; if calls differ, the operation has an error.
bool Engine::compare(Operation& o) {
  if (o.comparison == MPI_REQUEST_NULL) return true;
  int flag = 0;
  const int status = MPI_Test(&o.comparison, &flag, MPI_STATUS_IGNORE);
  if (status == MPI_SUCCESS && !flag) return false;
  for (std::size_t r = 1; r < o.calls.size() && o.error.empty(); ++r)
    if (o.calls[r] != o.calls[0]) o.error = differing_text(o.calls[0], static_cast<int>(r), o.calls[r]);
  return true;
}

// Completes operations. Returns whether any was completed. Call with the mutex held.
bool Engine::test() {
  const auto before = pending_.size();
  std::erase_if(pending_, [&](auto& o) {
    if (!compare(*o)) return false;
    if (!o->error.empty()) {  // the calls of ranks differ, so this operation may never end
      lost_.push_back(o);
      return o->done = true;
    }
    int flag = 0;
    MPI_Status received;
    int status = MPI_Test(&o->request, &flag, &received);
    if (status == MPI_SUCCESS && !flag) return false;
    try {
      ok(status, o->what);
      if (MPI_Count got = 0; o->expected >= 0) {  // MPI accepts shorter messages
        ok(MPI_Get_count_c(&received, o->type, &got), o->what);
        check(
            got == o->expected, ErrorKind::communicator, o->what, "the message that came has {}, expected {}",
            [&] { return got < 0 ? "another type" : fmt::format("{} elements", got); }, o->expected);
      }
    } catch (const Error& e) { o->error = e.what(); }
    o->keep.clear();
    o->shm.reset();
    o->done = true;
    return true;
  });
  return pending_.size() < before;
}

// Background progress. The pauses leave the core to computations; about 1 % of it is used here.
void Engine::watch() {
  ::pthread_setname_np(::pthread_self(), joined_thread);
  constexpr microseconds least{100}, most{500};
  auto pause = least;
  for (std::unique_lock lock(mutex);;) {
    changed_.wait(lock, [&] { return stopped_ || !pending_.empty(); });
    if (stopped_) return;
    if (waiting == 0) pause = test() ? least : std::min(most, pause * 5 / 4);
    lock.unlock();
    std::this_thread::sleep_for(pause);
    lock.lock();
  }
}

std::string Engine::late(const Operation& o, double seconds) {
  std::lock_guard lock(mutex);
  return late_text(o.what + ":", seconds, o.shm ? o.shm->missing(o.number) : "");
}

}  // namespace trireme
