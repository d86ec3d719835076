#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "kernels/core/thread.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/transport/device_communicator.h"
#include "parallel/comm/virtual_clock.h"

namespace trireme {
namespace collectives {
namespace {

// Runs tasks in order in one thread. An empty task ends the thread.
struct Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::packaged_task<void()>> tasks;

  void put(std::packaged_task<void()> task) {
    {
      std::lock_guard lock(mutex);
      tasks.push_back(std::move(task));
    }
    changed.notify_one();
  }
  void serve() {
    for (std::unique_lock lock(mutex);;) {
      changed.wait(lock, [&] { return !tasks.empty(); });
      auto task = std::move(tasks.front());
      tasks.pop_front();
      if (!task.valid()) return;
      lock.unlock();
      task();
      task = {};
      lock.lock();
    }
  }
};

struct QueuedWork : Work::State {
  QueuedWork(std::future<void> f, const Call& c) : result(std::move(f)), call(c) {}
  bool wait(double seconds) override {
    if (!is_over(seconds)) return false;
    if (result.valid()) result.get();
    return true;
  }
  bool done() override { return is_over(0); }
  std::string late(double seconds) override { return late_text(to_string(call), seconds); }
  bool is_over(double seconds) const {
    return !result.valid() || result.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
  }
  std::future<void> result;
  Call call;
};

// Runs algorithms on a separate communicator and thread: the caller can compute meanwhile, and their messages cannot be
// confused with the caller's.
class AlgorithmCommunicator final : public CommunicatorWrapper {
 public:
  AlgorithmCommunicator(std::unique_ptr<Communicator> inner, Choice choose, std::shared_ptr<std::atomic<Index>> sent)
      : CommunicatorWrapper(std::move(inner)),
        choose_(std::move(choose)),
        sent_(std::move(sent)),
        link_(inner_->clock() ? nullptr : inner_->split(0, inner_->rank())) {}
  ~AlgorithmCommunicator() override {
    if (!thread_.joinable()) return;
    queue_->put({});
    // During stack unwinding the peers of a queued task may never arrive. The thread then ends with the job.
    if (std::uncaught_exceptions() > unwinding_)
      thread_.detach();
    else
      thread_.join();
  }

  Work start(const Call& call, const Tensor& out, const Tensor& in, std::span<const Index> counts) override {
    const auto algorithm =
        is_scheduled(call.kind) ? choose_(call.kind, size(), call.count * size_of(call.type)) : nullptr;
    if (VirtualClock* clock = algorithm ? inner_->clock() : nullptr) clock->set_price(price(algorithm, call));
    if (!algorithm || inner_->clock()) return inner_->start(call, out, in, counts);
    if (call.count == 0) return {};
    Blocks blocks = block_offsets(call, counts, size());
    if (blocks.size() == 2) blocks = even_blocks(call.count, size());
    const Slice own = block(blocks, rank());
    // The rounds work in place on `out` if it holds the whole vector, else on `in`, or on a copy if they write.
    const bool in_out = out.defined() && out.numel() == call.count;
    Tensor x = (in_out ? out : in).detach().reshape({call.count});
    if (!in_out && call.kind != CallKind::broadcast) x = x.clone();
    const Tensor mine = x.view_rows(own.begin, own.end);
    if (in_out && in.defined()) copy(in.numel() == call.count ? x : mine, in);
    if (!thread_.joinable()) thread_ = start_thread(name_of(call.kind), [queue = queue_] { queue->serve(); });
    std::packaged_task<void()> task([link = link_, sent = sent_, x, op = call.op, mine,
                                     result = in_out ? Tensor() : out, scale = scale_of_timeouts(),
                                     rounds = schedule(*algorithm, call.kind, rank(), blocks, call.root)] {
      scale_timeouts(scale);  // this thread waits for the caller's
      const Index bytes = collectives::run(*link, rounds, x, op);
      if (sent) *sent += bytes;
      if (result.defined()) copy(result, mine);
    });
    auto work = std::make_shared<QueuedWork>(task.get_future(), call);
    queue_->put(std::move(task));
    return Work(std::move(work));
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<AlgorithmCommunicator>(inner_->split(color, key), choose_, sent_);
  }

 private:
  std::function<Nanoseconds(const Link&)> price(const std::shared_ptr<const Algorithm>& algorithm,
                                                const Call& call) const {
    return [=, p = size(), bytes = call.count * size_of(call.type), kind = call.kind](const Link& link) {
      return nanoseconds(cost(*algorithm, kind, p, bytes, {link.latency, link.per_byte()}));
    };
  }
  static void copy(const Tensor& to, const Tensor& from) {
    if (to.numel() > 0 && to.view().data != from.view().data)
      std::memcpy(to.view().data, from.view().data, static_cast<std::size_t>(to.view().bytes()));
  }

  const Choice choose_;
  const std::shared_ptr<std::atomic<Index>> sent_;
  std::shared_ptr<Communicator> link_;  // null in virtual time, which only uses the algorithms' durations
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::thread thread_;
  int unwinding_ = std::uncaught_exceptions();
};

}  // namespace

std::unique_ptr<Communicator> with_algorithm(std::unique_ptr<Communicator>&& inner, Choice choose,
                                             std::shared_ptr<std::atomic<Index>> sent) {
  const auto wrapped = [&](std::unique_ptr<Communicator> comm) {
    return std::make_unique<AlgorithmCommunicator>(std::move(comm), choose, sent);
  };
  // Algorithms compute on host memory.
  if (auto* staged = dynamic_cast<DeviceCommunicator*>(inner.get())) {
    staged->set_algorithm(
        wrapped, [choose](CallKind kind, int ranks, Index bytes) { return choose(kind, ranks, bytes) != nullptr; });
    return std::move(inner);
  }
  return wrapped(std::move(inner));
}

std::unique_ptr<Communicator> with_algorithm(std::unique_ptr<Communicator>&& inner, const Algorithm& algorithm,
                                             std::shared_ptr<std::atomic<Index>> sent) {
  const auto always = std::make_shared<const Algorithm>(algorithm);
  return with_algorithm(
      std::move(inner), [always](CallKind, int, Index) { return always; }, std::move(sent));
}

}  // namespace collectives

std::unique_ptr<Communicator> with_all_reduce(std::unique_ptr<Communicator>&& inner, const std::string& name) {
  using namespace collectives;
  check(name != "vendor", "all_reduce", "the algorithm \"vendor\" was renamed to \"default\"; use the new name");
  if (name == "default") return std::move(inner);
  AlgorithmTable table{{{CallKind::all_reduce, 1, 1, name}}};
  if (name == "auto") table = measure_algorithms(*inner, {.kinds = {CallKind::all_reduce}});
  return with_algorithm(std::move(inner), table.choice());
}

}  // namespace trireme
