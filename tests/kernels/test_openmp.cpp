// Fewer threads than OpenMP was asked for: oneDNN's kernels wait for one another, so none may be counted that does not
// come. The program runs again under each of OpenMP's limits (meson.build).
#include <omp.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "kernels/core/runtime.h"
#include "kernels/cpu/parallel.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_openmp {

using namespace trireme;
using namespace trireme::test;

namespace {

Tensor noise(Shape shape, std::uint64_t salt) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(mix(salt * 7919 + i) % 1000) / 500 - 1;
  return Tensor::of(values, shape);
}
/// Every gradient of a model whose weights oneDNN's threads sum together: as vectors, and by sgemm.
std::vector<double> gradients() {
  Module model = Sequential{Conv2d(2, 3, 3), relu, flatten, Linear(192, 160), relu, Linear(160, 5)};
  initialize(model, 1);
  Parameters parameters(model);
  Tensor labels = Tensor::empty({64}, DType::i64);
  for (Index i = 0; i < 64; ++i) labels.data<std::int64_t>()[i] = i % 5;
  StepScope pass({.batch = {.global_batch = 64}});
  cross_entropy(model(noise({64, 10, 10, 2}, 3)), labels).backward();
  std::vector<double> all;
  for (auto& e : parameters.entries())
    for (double v : e.tensor.grad().to_vector()) all.push_back(v);
  return all;
}
/// body on a thread of its own: OpenMP's settings are a thread's.
template <class F>
void elsewhere(F&& body) {
  std::jthread(std::forward<F>(body)).join();
}
int team_of(int wanted) {
  int count = 0;
#pragma omp parallel num_threads(wanted)
#pragma omp single
  count = omp_get_num_threads();
  return count;
}

}  // namespace

TEST_CASE("threads() is as many as OpenMP gives") {
  for (int asked : {1, 2, 3, 5}) {
    int said = 0, came = 0, known = 0;
    elsewhere([&] {
      set_threads(asked);
      said = threads();
      came = team_of(said);
      known = omp_get_max_threads();
    });
    CAPTURE(asked);
    CHECK(said >= 1);
    CHECK(said <= asked);
    CHECK(came == said);
    CHECK(known == said);  // what oneDNN reads
  }
  bool dynamic = true;  // a team by the machine's load
  elsewhere([&] {
    omp_set_dynamic(1);
    (void)threads();
    dynamic = omp_get_dynamic() != 0;
  });
  CHECK_FALSE(dynamic);
}

TEST_CASE("a loop with few parts keeps the threads of the team") {
  elsewhere([] {
    set_threads(6);
    const auto team = [](Index parts) {
      std::vector<pid_t> all(static_cast<std::size_t>(parts));
      parallel_for(parts, parallel_grain,
                   [&](Index begin, Index, int) { all[static_cast<std::size_t>(begin)] = gettid(); });
      return all;
    };
    const Index count = threads();
    const std::vector<pid_t> before = team(count), few = team(std::min<Index>(count, 2)), after = team(count);
    CHECK(std::set(before.begin(), before.end()).size() == before.size());
    CHECK(std::equal(few.begin(), few.end(), before.begin()));
    CHECK(after == before);
  });
}

TEST_CASE("a backward pass ends and is the same inside of a parallel region") {
  std::vector<double> alone, first, others;
  elsewhere([&] {
    set_threads(1);
    alone = gradients();
  });
  elsewhere([&] {
    set_threads(3);
#pragma omp parallel num_threads(2)
    {
      std::vector<double> mine = gradients();
#pragma omp critical
      (omp_get_thread_num() == 0 ? first : others) = std::move(mine);
    }
  });
  if (team_of(2) == 1) others = first;
  CHECK(distance(first, alone) < 1e-5);
  CHECK(distance(others, alone) < 1e-5);
}

TEST_CASE("a backward pass ends whatever number of threads is asked for") {
  std::vector<double> alone;
  elsewhere([&] {
    set_threads(1);
    alone = gradients();
  });
  for (int asked : {2, 3}) {
    std::vector<double> some;
    elsewhere([&] {
      set_threads(asked);
      some = gradients();
    });
    CAPTURE(asked);
    CHECK(distance(some, alone) < 1e-5);
  }
}

TEST_CASE("ranks that are threads have no more threads each than their caller") {
  for (int asked : {1, 2, 100}) {
    int most = 0, each = 0;
    elsewhere([&] {
      set_threads(asked);
      most = threads();
      World::threads(1, [&](World&) { each = threads(); });
    });
    CAPTURE(asked);
    CHECK(each == std::min(most, cores()));
  }
}

}  // namespace test_openmp
