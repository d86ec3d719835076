// Sweep: properties that must hold for random input. Each case is a function of a kind and a seed, runs in a process of
// its own, and is repeated by `test_sweep` with SWEEP_KIND and SWEEP_SEED set as the failure says.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <vector>

#include "tests/parallel/pairs.h"
#include "tests/support/ranks.h"

namespace trireme::test {

class RandomChoice {
 public:
  explicit RandomChoice(std::uint64_t seed) : state_(mix(seed)) {}
  /// From first to last, both included.
  Index between(Index first, Index last) {
    state_ += 0x9e3779b97f4a7c15u;
    return first + static_cast<Index>(mix(state_) % static_cast<std::uint64_t>(last - first + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <class T>
  T of(std::initializer_list<T> list) {
    return *std::next(list.begin(), between(0, std::ssize(list) - 1));
  }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(between(0, std::ssize(list) - 1))];
  }

 private:
  std::uint64_t state_;
};

// Each throws, saying what it tried, when a property does not hold; else returns in a word how the case ended.
std::string sweep_ops(RandomChoice);
std::string sweep_loader(RandomChoice);
std::string sweep_runs(RandomChoice);
std::string sweep_models(RandomChoice);

// sweep_runs.cpp
/// Strategies on a mesh of at most so many ranks. Most are legal: for each axis of the mesh what uses it, in an order
/// that serves. Others are anything.
Arrangement arrangement(RandomChoice&, int most_ranks);
/// Mostly SGD, else a rule with a rate per tensor. Rules whose step jumps where a gradient is 0 would make rounding
/// errors visible: Adam, and LARS with weight decay, whose ratio is 1 for a gradient of 0 only.
OptimizerConfig any_optimizer(RandomChoice&);
/// The text by which what was drawn may be refused; "" for another one, which says that a right program was refused, or
/// that something broke.
std::string refusal(const std::string& what);

}  // namespace trireme::test
