// The parts behind ranks that are processes of one host, here between threads: the memory that they share, the
// abort flag, and all-reduce in shared memory.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "parallel/comm/transport/shm_all_reduce.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"

namespace test_transport {

using namespace trireme;
using trireme::test::contains;

namespace {

struct Environment {
  Environment(const char* n, const char* value) : name(n) { setenv(n, value, 1); }
  ~Environment() { unsetenv(name); }
  const char* name;
};

/// The ShmAllReduce of a rank, as in a process of its own.
struct Process {
  std::uint64_t drawn = 0x1234567;
  std::shared_ptr<ShmAllReduces> shm_reduces = std::make_shared<ShmAllReduces>();
};
struct Host {
  explicit Host(int n, bool reach = false) : ranks(n), direct(reach), abort_flag(std::make_unique<AbortFlag>()) {
    processes.resize(static_cast<std::size_t>(n));
  }
  /// A ShmAllReduce between all ranks.
  std::vector<std::shared_ptr<ShmAllReduce>> shm() {
    std::vector<std::shared_ptr<ShmAllReduce>> all;
    const SharedMemory first(ShmAllReduce::bytes(ranks));
    for (int r = 0; r < ranks; ++r) {
      Process& process = processes[static_cast<std::size_t>(r)];
      const ProcessToken token = direct ? ProcessToken{getpid(), &process.drawn, process.drawn} : ProcessToken{};
      all.push_back(std::make_shared<ShmAllReduce>(SharedMemory(first.name(), ShmAllReduce::bytes(ranks)), *abort_flag,
                                                   process.shm_reduces, r, ranks, token));
    }
    return all;
  }
  int ranks;
  bool direct;
  std::unique_ptr<AbortFlag> abort_flag;
  std::vector<Process> processes;
};

Call sum_of(const Tensor& x) { return {CallKind::all_reduce, x.numel(), x.dtype(), ReduceOp::sum, 0}; }

/// What each thread's f threw; empty: nothing.
std::vector<std::string> failures(int threads, const std::function<void(int)>& f) {
  std::vector<std::string> all(static_cast<std::size_t>(threads));
  std::vector<std::thread> running;
  for (int r = 0; r < threads; ++r)
    running.emplace_back([&, r] {
      try {
        f(r);
      } catch (const std::exception& e) { all[static_cast<std::size_t>(r)] = e.what(); }
    });
  for (auto& thread : running) thread.join();
  return all;
}

}  // namespace

TEST_CASE("a shared block is found by its name, and nothing else is") {
  const SharedMemory made(1000);
  REQUIRE(made.data() != nullptr);
  std::memcpy(made.data(), "hello", 6);
  const SharedMemory found(made.name(), 1000);
  REQUIRE(std::string(static_cast<char*>(found.data())) == "hello");
  REQUIRE(found.data() != made.data());
  REQUIRE(SharedMemory(made.name(), 2000).data() == nullptr);
  REQUIRE(SharedMemory(SharedMemory::Name{}, 1000).data() == nullptr);
  // Another block of the same size: another rank's, or another job's.
  const SharedMemory other(1000);
  auto name = made.name();
  name.file = other.name().file;
  REQUIRE(SharedMemory(name, 1000).data() == nullptr);
  name = other.name();
  name.mark += 1;  // a file system that another kernel has numbered alike
  REQUIRE(SharedMemory(name, 1000).data() == nullptr);
}

TEST_CASE("a stranger's file in the place of a shared block is not touched") {
  test::Temporary folder;
  const std::string log = folder / "log", pipe = folder / "pipe";
  const SharedMemory made(1000);
  const std::vector<char> text(1008, 'x');
  const int file = open(log.c_str(), O_RDWR | O_CREAT, 0600);
  REQUIRE(write(file, text.data(), text.size()) == std::ssize(text));
  auto name = made.name();
  name.file = file;
  REQUIRE(SharedMemory(name, 1000).data() == nullptr);
  struct stat about {};  // as if its device and inode were the same: the random number still differs
  REQUIRE(fstat(file, &about) == 0);
  name.device = about.st_dev;
  name.inode = about.st_ino;
  REQUIRE(SharedMemory(name, 1000).data() == nullptr);
  std::vector<char> now(1008);
  REQUIRE(pread(file, now.data(), now.size(), 0) == std::ssize(now));
  REQUIRE(now == text);
  close(file);
  // To open a pipe for reading and writing never blocks, but would make this process one of its writers.
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  name = made.name();
  name.file = reader;
  REQUIRE(SharedMemory(name, 1000).data() == nullptr);
  close(reader);
}

TEST_CASE("an abort flag goes on although a writer died in the midst of it") {
  const auto abort_flag = std::make_unique<AbortFlag>();
  REQUIRE_FALSE(abort_flag->on());
  REQUIRE(abort_flag->reason().empty());
  REQUIRE_NOTHROW(abort_flag->check("a call"));
  abort_flag->writers = 3;  // three began, and were killed
  REQUIRE(abort_flag->raise("no more coffee"));
  REQUIRE_FALSE(abort_flag->raise("no more tea"));
  REQUIRE(abort_flag->reason().text == "no more coffee");
  REQUIRE_ERROR(abort_flag->check("a call"), communicator, "a call", "no more coffee");
  REQUIRE(abort_flag->is_teller());
  REQUIRE_FALSE(abort_flag->is_teller());
  const auto crowded = std::make_unique<AbortFlag>();
  crowded->writers = 50;
  REQUIRE(crowded->raise("lost"));
  REQUIRE(crowded->on());
  REQUIRE_ERROR(crowded->check("a call"), communicator, "a call");
  const auto contested = std::make_unique<AbortFlag>();
  std::atomic<int> first = 0;
  failures(4, [&](int) { first += contested->raise(std::string(3000, 'y')); });
  REQUIRE(first == 1);
  REQUIRE(contested->reason().text == std::string(999, 'y'));
}

TEST_CASE("a sign is found in the process that has it") {
  const std::uint64_t drawn = 77, other = 78;
  REQUIRE(ProcessToken{getpid(), &drawn, 77}.reachable());
  REQUIRE_FALSE(ProcessToken{getpid(), &other, 77}.reachable());
  REQUIRE_FALSE(ProcessToken{getppid(), &drawn, 77}.reachable());
  REQUIRE_FALSE(ProcessToken{}.reachable());
}

TEST_CASE("shared memory sums short and long vectors, staged and directly") {
  for (bool direct : {false, true})
    for (int ranks : {2, 3})
      for (Index count : {1, 1000, 100'000, 3'000'000}) {
        CAPTURE(direct, ranks, count);
        Host host(ranks, direct);
        auto shm_reduces = host.shm();
        REQUIRE(shm_reduces[0]->direct() == direct);
        std::atomic<int> wrong = 0;
        auto failed = failures(ranks, [&](int r) {
          const Tensor x = Tensor::full({count}, r + 1), y = Tensor::full({count}, 1);
          Work first = shm_reduces[r]->post(sum_of(x), x), second = shm_reduces[r]->post(sum_of(y), y);
          (r ? second : first).wait();
          (r ? first : second).wait();
          const float* a = x.data<float>();
          const float* b = y.data<float>();
          for (Index i = 0; i < count; ++i) wrong += a[i] != ranks * (ranks + 1) / 2 || b[i] != ranks;
        });
        REQUIRE(failed == std::vector<std::string>(ranks));
        REQUIRE(wrong == 0);
      }
}

TEST_CASE("calls that differ between ranks are named, whoever moves their data") {
  const std::vector<Call> calls{{CallKind::all_reduce, 6, DType::f32, ReduceOp::sum, 0},
                                {CallKind::reduce_scatter, 6, DType::f32, ReduceOp::sum, 0},
                                {CallKind::reduce_scatter, 6, DType::f32, ReduceOp::max, 0},
                                {CallKind::all_gather, 6, DType::f32, ReduceOp::sum, 0},
                                {CallKind::all_gather, 12, DType::f32, ReduceOp::sum, 0},
                                {CallKind::all_gather, 6, DType::i32, ReduceOp::sum, 0},
                                {CallKind::broadcast, 6, DType::f32, ReduceOp::sum, 0},
                                {CallKind::broadcast, 6, DType::f32, ReduceOp::sum, 1},
                                {CallKind::all_to_all, 6, DType::f32, ReduceOp::sum, 0},
                                {CallKind::split, 0, DType::f32, ReduceOp::sum, 0},
                                {CallKind::barrier, 0, DType::f32, ReduceOp::sum, 0}};
  const auto make = [](ShmAllReduce& shm, const Call& call) {
    const bool moves =
        call.kind == CallKind::all_reduce || call.kind == CallKind::barrier || call.kind == CallKind::split;
    if (!moves) return void(shm.post_call(call));
    shm.post(call, call.count ? Tensor::zeros({call.count}, call.type) : Tensor()).wait();
  };
  for (std::size_t a = 0; a < calls.size(); ++a)
    for (std::size_t b = 0; b < calls.size(); ++b) {
      CAPTURE(to_string(calls[a]), to_string(calls[b]));
      Host host(2);
      auto shm_reduces = host.shm();
      auto failed = failures(2, [&](int r) {
        make(*shm_reduces[r], calls[r ? b : a]);
        make(*shm_reduces[r], {CallKind::barrier});
      });
      if (a == b) {
        REQUIRE(failed == std::vector<std::string>(2));
        continue;
      }
      // The later one says so at its call; both know by the next one.
      const std::string said = host.abort_flag->reason().text;
      REQUIRE_THAT(said, contains("rank 0 called " + to_string(calls[a]) + ", rank 1 called " + to_string(calls[b])));
      for (auto& text : failed) REQUIRE_THAT(text, contains(said));
    }
}

TEST_CASE("nobody gets through a barrier that another rank takes for something else") {
  // Who has gone through a split goes on to MPI's own, where nobody would wake it.
  for (int repeat = 0; repeat < 300; ++repeat) {
    Host host(2);
    auto shm_reduces = host.shm();
    auto failed = failures(2, [&](int r) {
      shm_reduces[r]->post({r ? CallKind::barrier : CallKind::split, 0, DType::f32}, {}).wait();
    });
    for (auto& text : failed) REQUIRE_THAT(text, contains("rank 0 called split, rank 1 called barrier"));
  }
}

TEST_CASE("who waits for something else still takes part in what is under way") {
  const Environment collective_timeout("TRIREME_TIMEOUT", "20");
  Host host(2);
  auto first = host.shm(), second = host.shm();
  const Index count = 5'000'000;  // more than the shared block's room
  auto failed = failures(2, [&](int r) {
    const Tensor x = Tensor::full({count}, 1), y = Tensor::full({1}, 1);
    Work long_one = first[r]->post(sum_of(x), x);
    if (r) long_one.wait();
    second[r]->post(sum_of(y), y).wait();  // rank 0 waits here for rank 1, which needs rank 0's x
    long_one.wait();
    check(x.data<float>()[count - 1] == 2 && y.item() == 2, "test", "wrong sum");
  });
  REQUIRE(failed == std::vector<std::string>(2));
  // So it is with any other wait of the process, if it looks at them.
  failed = failures(2, [&](int r) {
    const Tensor x = Tensor::full({count}, 1);
    Work long_one = first[r]->post(sum_of(x), x);
    if (r) return long_one.wait();
    while (host.processes[0].shm_reduces->advance()) std::this_thread::yield();
    long_one.wait();
  });
  REQUIRE(failed == std::vector<std::string>(2));
}

TEST_CASE("who sleeps until a small vector is reduced is woken by the last to come, whatever brought it in") {
  // Rank 0's last vector waits for room until rank 1 has taken what lies there; then another call of rank 0 brings it.
  using Boards = std::vector<std::shared_ptr<ShmAllReduce>>;
  const std::pair<const char*, std::function<Work(Host&, Boards&, int rank)>> calls[] = {
      {"a call that only leaves word",
       [](Host&, Boards& shm_reduces, int rank) {
         shm_reduces[rank]->post_call({CallKind::broadcast, 1});
         return Work();
       }},
      {"a wait for something else",
       [](Host& host, Boards&, int rank) {
         (void)host.processes[rank].shm_reduces->advance();
         return Work();
       }},
      {"a call in pieces", [](Host&, Boards& shm_reduces, int rank) {
         const Tensor x = Tensor::zeros({200'000});
         return shm_reduces[rank]->post(sum_of(x), x);
       }}};
  const int room = 32;  // vectors
  for (auto& [name, bring] : calls) {
    double least = 1e9;  // s, since a busy machine takes longer at times
    for (int round = 0; round < 8; ++round) {
      Host host(2);
      Boards shm_reduces = host.shm();
      std::vector<Work> works[2];
      const auto post = [&](int rank) {
        const Tensor x = Tensor::full({1}, 1);
        works[rank].push_back(shm_reduces[rank]->post(sum_of(x), x));
      };
      for (int rank : {1, 0})
        for (int i = 0; i < room; ++i) post(rank);
      post(0);
      post(1);
      std::thread sleeper([&] { works[1].back().wait(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const auto start = std::chrono::steady_clock::now();
      works[0].push_back(bring(host, shm_reduces, 0));
      sleeper.join();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      least = std::min(least, took.count());
      works[1].push_back(bring(host, shm_reduces, 1));
      for (auto& mine : works)
        for (Work& work : mine) work.wait();
    }
    INFO(name);
    CHECK(least < 0.025);  // a sleep that nobody wakes takes 50 ms
  }
}

TEST_CASE("a wait names the ranks that have not come") {
  const Environment collective_timeout("TRIREME_TIMEOUT", "0.3");
  const Tensor x = Tensor::zeros({5}), long_one = Tensor::zeros({5'000'000});
  Host host(4);
  auto shm_reduces = host.shm();
  REQUIRE_ERROR(shm_reduces[0]->post(sum_of(x), x).wait(), communicator, "rank 0 of 4", "0.3", 1, 2, 3);
  Work second = shm_reduces[2]->post(sum_of(x), x);
  REQUIRE_ERROR(second.wait(), communicator, 1, 3);
  Work third = shm_reduces[3]->post(sum_of(x), x);
  const auto number = shm_reduces[3]->post_call({CallKind::all_gather, 8});
  REQUIRE_ERROR(third.wait(), communicator, 1);
  REQUIRE(shm_reduces[3]->missing(number) == " for rank 1 (in all_reduce of 5 f32 (sum), which comes first)");
  shm_reduces[1]->post(sum_of(x), x).wait();
  REQUIRE(shm_reduces[1]->missing(0) == "; all ranks have made this call");
}

TEST_CASE("a rank that drops its communicator in mid-call is named, and its memory left alone") {
  for (bool direct : {false, true}) {
    Host host(3, direct);
    auto shm_reduces = host.shm();
    const Index count = 5'000'000;  // more than the shared block's room
    const Tensor x = Tensor::full({count}, 1), y = Tensor::full({count}, 2), z = Tensor::full({count}, 3);
    auto failed = failures(1, [&](int) {
      Work work = shm_reduces[1]->post(sum_of(y), y);
      throw std::runtime_error("on the way out");
    });
    shm_reduces[1].reset();
    failed = failures(2, [&](int r) {
      const Tensor& mine = r ? z : x;
      shm_reduces[r ? 2 : 0]->post(sum_of(mine), mine).wait();
    });
    for (auto& text : failed) REQUIRE_THAT(text, contains("rank 1 has dropped its communicator"));
    REQUIRE(y.data<float>()[0] == 2);
    REQUIRE(y.data<float>()[count - 1] == 2);
  }
}

TEST_CASE("the memory of a process that has another one's number is not written to") {
  Host host(2, true);
  auto shm_reduces = host.shm();
  host.processes[1].drawn = 5;  // not what it was when ranks got to know each other
  const Index count = 1'000'000;
  const Tensor x = Tensor::full({count}, 1), y = Tensor::full({count}, 2);
  Work stranger = shm_reduces[1]->post(sum_of(y), y);
  REQUIRE_ERROR(shm_reduces[0]->post(sum_of(x), x).wait(), communicator, "all_reduce", 1);
  REQUIRE(y.data<float>()[0] == 2);
  host.abort_flag->raise("over");
  REQUIRE_ERROR(stranger.wait(), communicator, "over");
}

}  // namespace test_transport
