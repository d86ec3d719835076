// Threads that cannot be had: an error in one line, and nobody waits for those that never came.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

#include "datasets/formats/packed.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary.h"

namespace test_threads {

using namespace trireme;
using trireme::test::contains;

namespace {

std::atomic<int> allowed = -1;  // threads that may still be started; below 0: any number

struct Allow {
  explicit Allow(int threads) { allowed = threads; }
  ~Allow() { allowed = -1; }
};

}  // namespace

// In the place of the system's: std::thread comes here, as everybody does in this program.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*start)(void*), void* argument) {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
  if (allowed == 0) return EAGAIN;
  if (allowed > 0) --allowed;
  return real(thread, how, start, argument);
}

TEST_CASE("ranks that cannot all be started do nothing, and say so") {
  for (int threads : {0, 1, 4}) {
    CAPTURE(threads);
    const Allow few(threads);
    std::atomic<int> ran = 0;
    REQUIRE_ERROR(World::threads(5,
                                 [&](World& world) {
                                   ++ran;
                                   world.comm().barrier();
                                 }),
                  out_of_memory, fmt::format("rank {}", threads));
    REQUIRE(ran == 0);
  }
  std::atomic<int> ran = 0;
  World::threads(5, [&](World&) { ++ran; });
  REQUIRE(ran == 5);
}

TEST_CASE("a loader without threads for its workers says so") {
  const Dataset data = std::make_unique<test::Noise>(40, Shape{4, 4, 1});
  for (int threads : {0, 1, 2}) {
    CAPTURE(threads);
    Loader loader(data, {.batch = 4, .workers = 3, .prefetch = 3});
    const Allow few(threads);
    REQUIRE_ERROR(loader.begin(), out_of_memory, "loader");
  }
}

TEST_CASE("an all-reduce without a thread of its own fails on its rank, and ends the others") {
  auto body = [](World& world) {
    world.use_all_reduce("ring");
    world.comm().barrier();
    const Tensor x = Tensor::zeros({10});
    if (world.rank() == 0) {
      const Allow none(0);
      world.comm().all_reduce(x).wait();
    }
    world.comm().recv(x, 0).wait();
  };
  REQUIRE_ERROR(World::threads(3, body), out_of_memory, 0, "all_reduce");
}

}  // namespace test_threads
