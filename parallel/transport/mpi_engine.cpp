#include "parallel/transport/mpi_engine.h"

#include <chrono>
#include <cstring>

#include "parallel/transport/call.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

template <ReduceOp op, DType type>
void reduce_narrow(void* in, void* inout, MPI_Count* count, MPI_Datatype*) {
  reduce_into(inout, in, *count, type, op);
}
template <DType type>
std::array<MPI_Op, 3> narrow_ops() {
  std::array<MPI_Op, 3> ops;
  ok(MPI_Op_create_c(reduce_narrow<ReduceOp::sum, type>, 1, &ops[0]), "world");
  ok(MPI_Op_create_c(reduce_narrow<ReduceOp::max, type>, 1, &ops[1]), "world");
  ok(MPI_Op_create_c(reduce_narrow<ReduceOp::min, type>, 1, &ops[2]), "world");
  return ops;
}

}  // namespace

void ok(int status, std::string_view what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail(what, "MPI says: {}", text);
}

Engine::Engine(HostAlarm* alarm)
    : alarm_(alarm), narrow_ops_{narrow_ops<DType::bf16>(), narrow_ops<DType::f16>()}, thread_([this] { watch(); }) {}

// Completes what can be completed; true if anything was. With the mutex held.
bool Engine::test() {
  const auto before = pending_.size();
  std::erase_if(pending_, [](auto& o) {
    int flag = 0;
    int status = MPI_Testall(static_cast<int>(o->requests.size()), o->requests.data(), &flag, MPI_STATUSES_IGNORE);
    if (status == MPI_SUCCESS && !flag) return false;
    try {
      ok(status, o->what);
      if (o->target.defined()) std::memcpy(o->target.view().data, o->result.view().data, o->target.view().bytes());
    } catch (const Error& e) { o->error = e.what(); }
    o->keep.clear();
    o->result = o->target = {};
    o->done = true;
    return true;
  });
  return pending_.size() < before;
}

// Background progress. The pauses leave the core to whoever computes: some 1 % of it is lost here.
void Engine::watch() {
  constexpr microseconds least{100}, most{500};
  auto pause = least;
  for (std::unique_lock lock(mutex);;) {
    changed_.wait(lock, [&] { return stopped_ || !pending_.empty(); });
    if (stopped_) return;
    if (waiting_ == 0) pause = test() ? least : std::min(most, pause * 5 / 4);
    lock.unlock();
    std::this_thread::sleep_for(pause);
    lock.lock();
  }
}

void Engine::wait(const Operation& o) {
  if (o.done) return;
  waiting_.fetch_add(1);
  const auto start = Clock::now();
  auto pause = microseconds(20);
  for (int round = 0; !poll(o); ++round) {
    // Yielding lets the ranks that share this core run; a long wait sleeps, so as not to take turns with somebody's
    // computation.
    if (round < 200) {
      std::this_thread::yield();
      continue;
    }
    if (alarm_ && alarm_->state == 2) break;
    if (Clock::now() - start > patience()) {
      waiting_.fetch_sub(1);
      fail(o.what, "waited {} s: another rank hangs or took another path. TRIREME_TIMEOUT sets the patience in seconds",
           patience().count());
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(microseconds(200), pause * 5 / 4);
  }
  waiting_.fetch_sub(1);
  if (!o.done) alarm_->check(o.what);
  if (!o.error.empty()) throw Error(o.error, std::source_location::current());
}

}  // namespace trireme
