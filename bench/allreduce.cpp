// Time of an all-reduce by size and algorithm, and how much of it hides behind computation.
//   allreduce [--ranks N]      N threads (2)            mpiexec -n N allreduce      processes
// Rows: the communicator's own ("default"), MPI_Iallreduce where the ranks are processes ("mpi"), and the algorithms on
// messages. Best and median of the rounds, in microseconds; the slowest rank counts. The spread is (third - first
// quartile) / median.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/measure.h"
#include "kernels/core/runtime.h"
#include "parallel/comm/world/world.h"

using namespace trireme;

namespace {

double slowest(Communicator& comm, double microbatches) {
  Tensor t = Tensor::scalar(microbatches, DType::f64);
  comm.all_reduce(t, ReduceOp::max).wait();
  return t.item();
}

struct Times {
  double best, median, spread;
};
Times measure(Communicator& all, int rounds, const std::function<void()>& body) {
  std::vector<double> t;
  for (int i = 0; i < rounds + 2; ++i) {
    all.barrier();
    auto start = Clock::now();
    body();
    double took = slowest(all, 1e6 * since(start));
    if (i >= 2) t.push_back(took);
  }
  std::sort(t.begin(), t.end());
  const double median = t[t.size() / 2];
  return {t[0], median, (t[t.size() * 3 / 4] - t[t.size() / 4]) / median};
}

// About 20 ms of arithmetic in the cache of one core.
float compute() {
  static thread_local std::vector<float> v(4096, 1.0f);
  for (int k = 0; k < 12000; ++k)
    for (float& x : v) x = x * 0.999f + 0.001f;
  return v[0];
}

void bench(World& world) {
  Communicator& all = world.comm();
  if (world.main())
    std::printf("%d ranks, %s, %d cores\n%-20s %12s %10s %10s %8s\n", world.size(), world.transport().c_str(), cores(),
                "algorithm", "elements", "best", "median", "spread");
  std::vector<std::pair<std::string, std::unique_ptr<Communicator>>> rows;
  rows.emplace_back("default", all.split(0, world.rank()));
  if (world.transport().starts_with("mpi,")) {
    setenv("TRIREME_SHARED_MEMORY", "0", 1);
    rows.emplace_back("mpi", all.split(0, world.rank()));
    unsetenv("TRIREME_SHARED_MEMORY");
  }
  for (const char* name : {"ring", "recursive_doubling", "rabenseifner", "tree", "hierarchical", "torus"})
    rows.emplace_back(name, with_all_reduce(all.split(0, world.rank()), name));
  for (Index n : {1, 1000, 100000, 1199882}) {
    Tensor x = Tensor::zeros({n});
    for (auto& [name, comm] : rows) {
      auto t = measure(all, n > 50000 ? 21 : 51, [&, c = comm.get()] { c->all_reduce(x).wait(); });
      if (world.main())
        std::printf("%-20s %12lld %10.0f %10.0f %7.0f%%\n", name.c_str(), static_cast<long long>(n), t.best, t.median,
                    100 * t.spread);
    }
  }
  Tensor x = Tensor::zeros({1199882});
  auto alone = measure(all, 11, [] { compute(); });
  for (auto& [name, comm] : rows) {
    auto both = measure(all, 11, [&, c = comm.get()] {
      Work work = c->all_reduce(x);
      compute();
      work.wait();
    });
    if (world.main())
      std::printf("%-20s 4.8 MB behind %.0f us of computation: %.0f us more (median %.0f)\n", name.c_str(), alone.best,
                  both.best - alone.best, both.median - alone.median);
  }
}

}  // namespace

int allreduce_main(int argc, char** argv) {
  int ranks = argc == 3 && std::strcmp(argv[1], "--ranks") == 0 ? std::atoi(argv[2]) : 2;
  return World::run(argc, argv, ranks, bench);
}
