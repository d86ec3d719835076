#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <ranges>
#include <thread>

#include "kernels/core/thread.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/transport/call.h"
#include "parallel/comm/transport/device_communicator.h"

namespace trireme {
namespace {

struct Algorithm {
  std::string_view name;
  collectives::AllReduce* run;  // none: the communicator's own
};
constexpr Algorithm algorithms[] = {{"default", nullptr},
                                    {"ring", collectives::ring},
                                    {"recursive_doubling", collectives::recursive_doubling},
                                    {"rabenseifner", collectives::rabenseifner},
                                    {"tree", collectives::tree}};

// Tasks run one after another, in the order given, by one thread; an empty one ends it.
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
  explicit QueuedWork(std::future<void> f) : result(std::move(f)) {}
  ~QueuedWork() override {
    if (result.valid()) settle();
  }
  void wait() override { result.get(); }
  bool done() override {
    return !result.valid() || result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  std::future<void> result;
};

// All-reduces run on a communicator and a thread of their own: so an algorithm is plain code, yet the caller computes
// on meanwhile, and its messages cannot be mistaken for the caller's.
class AlgorithmCommunicator : public Communicator {
 public:
  AlgorithmCommunicator(std::unique_ptr<Communicator> inner, collectives::AllReduce& algorithm)
      : inner_(std::move(inner)), algorithm_(algorithm), link_(inner_->split(0, inner_->rank())) {}
  ~AlgorithmCommunicator() override {
    if (!thread_.joinable()) return;
    queue_->put({});
    // On the way out of an error the peers of a queued task may never come: the thread ends when the job does.
    if (std::uncaught_exceptions() > unwinding_)
      thread_.detach();
    else
      thread_.join();
  }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string transport() const override { return inner_->transport(); }

  Work all_reduce(const Tensor& x, ReduceOp op) override {
    all_reduce_call(x, op);
    if (size() == 1 || x.numel() == 0) return {};
    if (!thread_.joinable()) thread_ = start_thread("all_reduce", [queue = queue_] { queue->serve(); });
    std::packaged_task<void()> task(
        [link = link_, &run = algorithm_, flat = x.detach().reshape({x.numel()}), op] { run(*link, flat, op); });
    auto work = std::make_shared<QueuedWork>(task.get_future());
    queue_->put(std::move(task));
    return Work(std::move(work));
  }

  Work reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp op) override {
    return inner_->reduce_scatter(out, in, op);
  }
  Work all_gather(const Tensor& out, const Tensor& in) override { return inner_->all_gather(out, in); }
  Work broadcast(const Tensor& x, int root) override { return inner_->broadcast(x, root); }
  Work all_to_all(const Tensor& out, const Tensor& in) override { return inner_->all_to_all(out, in); }
  Work send(const Tensor& x, int to, int tag) override { return inner_->send(x, to, tag); }
  Work recv(const Tensor& x, int from, int tag) override { return inner_->recv(x, from, tag); }
  void barrier() override { inner_->barrier(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<AlgorithmCommunicator>(inner_->split(color, key), algorithm_);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  std::string ended() const override { return inner_->ended(); }

 private:
  std::unique_ptr<Communicator> inner_;
  collectives::AllReduce& algorithm_;
  std::shared_ptr<Communicator> link_;
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::thread thread_;
  int unwinding_ = std::uncaught_exceptions();
};

}  // namespace

std::unique_ptr<Communicator> collectives::with_all_reduce(std::unique_ptr<Communicator>&& inner,
                                                           AllReduce& algorithm) {
  const auto rewired = [&](std::unique_ptr<Communicator> comm) {
    return std::make_unique<AlgorithmCommunicator>(std::move(comm), algorithm);
  };
  // The algorithms compute on host memory.
  if (auto* staged = dynamic_cast<DeviceCommunicator*>(inner.get()))
    return staged->set_algorithm(rewired), std::move(inner);
  return rewired(std::move(inner));
}

std::unique_ptr<Communicator> with_all_reduce(std::unique_ptr<Communicator>&& inner, const std::string& name) {
  check(name != "vendor", "all_reduce", "the algorithm \"vendor\" is called \"default\" now");
  const auto at = std::ranges::find(algorithms, name, &Algorithm::name);
  check(at != std::end(algorithms), "all_reduce", "there is no algorithm \"{}\"; there are {}", name,
        fmt::join(algorithms | std::views::transform(&Algorithm::name), ", "));
  return at->run ? collectives::with_all_reduce(std::move(inner), *at->run) : std::move(inner);
}

}  // namespace trireme
