// Cost of an op: adding two tensors of four elements, with and without the tape. Prints nanoseconds per op, medians of
// repeats.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "bench/measure.h"
#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
using namespace trireme;

template <class F>
double median_ns(int inner, F&& f) {
  std::vector<double> times;
  for (int repeat = 0; repeat < 15; ++repeat) {
    Clock::time_point start = Clock::now();
    f(inner);
    times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / inner);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int dispatch_main(int, char**) {
  Tensor a = Tensor::full({4}, 1), b = Tensor::full({4}, 2), w = Tensor::full({4}, 3);
  w.require_grad();
  std::printf("add, no tape         %6.0f ns\n", median_ns(20000, [&](int n) {
                for (int i = 0; i < n; ++i) add(a, b);
              }));
  std::printf("add, recorded        %6.0f ns\n", median_ns(20000, [&](int n) {
                for (int i = 0; i < n; ++i) add(a, w);
              }));
  std::printf("relu, recorded       %6.0f ns\n", median_ns(20000, [&](int n) {
                for (int i = 0; i < n; ++i) relu(w);
              }));
  std::printf("forward + backward   %6.0f ns per op (chain of 100 adds)\n", median_ns(200, [&](int n) {
                                                                              for (int i = 0; i < n; ++i) {
                                                                                Tensor x = w;
                                                                                for (int k = 0; k < 100; ++k)
                                                                                  x = add(x, b);
                                                                                x.backward(a);
                                                                              }
                                                                            }) / 100);
  return 0;
}
