#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "kernels/core/thread.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/transport/call.h"
#include "parallel/comm/transport/device_communicator.h"

namespace trireme {
namespace collectives {
namespace {

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

// Algorithms run on a communicator and a thread of their own: so the caller computes on meanwhile, and their messages
// cannot be mistaken for the caller's.
class AlgorithmCommunicator : public Communicator {
 public:
  AlgorithmCommunicator(std::unique_ptr<Communicator> inner, Choice choose, std::shared_ptr<std::atomic<Index>> sent)
      : inner_(std::move(inner)),
        choose_(std::move(choose)),
        sent_(std::move(sent)),
        link_(inner_->split(0, inner_->rank())) {}
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
    const auto algorithm = chosen(Kind::all_reduce, x);
    return algorithm ? start(*algorithm, Kind::all_reduce, flat(x), op) : inner_->all_reduce(x, op);
  }
  Work reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp op) override {
    reduce_scatter_call(out, in, op, size());
    const auto algorithm = chosen(Kind::reduce_scatter, in);
    if (!algorithm) return inner_->reduce_scatter(out, in, op);
    const Tensor sums = flat(in).clone();
    return start(*algorithm, Kind::reduce_scatter, sums, op, 0,
                 [to = out.detach(), own = own_block(sums)] { copy(to, own); });
  }
  Work all_gather(const Tensor& out, const Tensor& in) override {
    all_gather_call(out, in, size());
    const auto algorithm = chosen(Kind::all_gather, out);
    if (!algorithm) return inner_->all_gather(out, in);
    copy(own_block(flat(out)), in);
    return start(*algorithm, Kind::all_gather, flat(out));
  }
  Work broadcast(const Tensor& x, int root) override {
    broadcast_call(x, root, size());
    const auto algorithm = chosen(Kind::broadcast, x);
    return algorithm ? start(*algorithm, Kind::broadcast, flat(x), ReduceOp::sum, root) : inner_->broadcast(x, root);
  }
  Work all_to_all(const Tensor& out, const Tensor& in) override { return inner_->all_to_all(out, in); }
  Work send(const Tensor& x, int to, int tag) override { return inner_->send(x, to, tag); }
  Work recv(const Tensor& x, int from, int tag) override { return inner_->recv(x, from, tag); }
  void barrier() override { inner_->barrier(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<AlgorithmCommunicator>(inner_->split(color, key), choose_, sent_);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  std::string ended() const override { return inner_->ended(); }

 private:
  static Tensor flat(const Tensor& x) { return x.detach().reshape({x.numel()}); }
  static void copy(const Tensor& to, const Tensor& from) {
    if (to.numel() > 0 && to.view().data != from.view().data)
      std::memcpy(to.view().data, from.view().data, static_cast<std::size_t>(to.view().bytes()));
  }
  Tensor own_block(const Tensor& x) const {
    const Index n = x.numel() / size();
    return x.view_rows(n * rank(), n * (rank() + 1));
  }
  std::shared_ptr<const Algorithm> chosen(Kind kind, const Tensor& x) const {
    return size() > 1 ? choose_(kind, size(), x.view().bytes()) : nullptr;
  }
  Work start(const Algorithm& algorithm, Kind kind, const Tensor& x, ReduceOp op = ReduceOp::sum, int root = 0,
             std::function<void()> after = {}) {
    if (x.numel() == 0) return {};
    if (!thread_.joinable()) thread_ = start_thread(name_of(kind), [queue = queue_] { queue->serve(); });
    std::packaged_task<void()> task([link = link_, sent = sent_, x, op, after = std::move(after),
                                     rounds = schedule(algorithm, kind, rank(), even_blocks(x.numel(), size()), root)] {
      const Index bytes = run(*link, rounds, x, op);
      if (sent) *sent += bytes;
      if (after) after();
    });
    auto work = std::make_shared<QueuedWork>(task.get_future());
    queue_->put(std::move(task));
    return Work(std::move(work));
  }

  std::unique_ptr<Communicator> inner_;
  const Choice choose_;
  const std::shared_ptr<std::atomic<Index>> sent_;
  std::shared_ptr<Communicator> link_;
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
  // The algorithms compute on host memory.
  if (auto* staged = dynamic_cast<DeviceCommunicator*>(inner.get()))
    return staged->set_algorithm(wrapped), std::move(inner);
  return wrapped(std::move(inner));
}

std::unique_ptr<Communicator> with_algorithm(std::unique_ptr<Communicator>&& inner, const Algorithm& algorithm,
                                             std::shared_ptr<std::atomic<Index>> sent) {
  const auto always = std::make_shared<const Algorithm>(algorithm);
  return with_algorithm(
      std::move(inner), [always](Kind, int, Index) { return always; }, std::move(sent));
}

}  // namespace collectives

std::unique_ptr<Communicator> with_all_reduce(std::unique_ptr<Communicator>&& inner, const std::string& name) {
  using namespace collectives;
  check(name != "vendor", "all_reduce", "the algorithm \"vendor\" is called \"default\" now");
  if (name == "default") return std::move(inner);
  AlgorithmTable table{{{Kind::all_reduce, 1, 1, name}}};
  if (name == "auto") table = measure_algorithms(*inner, {.kinds = {Kind::all_reduce}});
  return with_algorithm(std::move(inner), table.choice());
}

}  // namespace trireme
