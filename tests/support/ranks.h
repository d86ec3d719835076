// Tests over ranks: threads, or the processes that mpiexec started this program with; and a small data set to
// train on.
#pragma once
#include <cstdlib>
#include <mutex>
#include <optional>
#include <vector>

#include "datasets/core/loader.h"
#include "framework/ops/moves.h"
#include "kernels/core/backend.h"
#include "parallel/runtime/step.h"
#include "tests/support/catch.h"
#include "tests/support/distance.h"

namespace trireme::test {

/// The processes of this run: one without a launcher.
inline World& processes() {
  static int argc = 1;
  static char name[] = "test", *list[] = {name, nullptr}, **argv = list;
  static World world(argc, argv);
  return world;
}
inline bool under_mpi() { return processes().size() > 1; }
/// True under MPI, with the reason on record: for a test, or the rest of one, that has nothing to do there.
inline bool threads_only(const std::string& why = "it brings its own ranks, as threads") {
  if (under_mpi()) SUCCEED("not under MPI: " << why);
  return under_mpi();
}
/// True under MPI with another number of processes than `ranks`, with the reason on record.
inline bool other_ranks(int ranks) {
  if (!under_mpi() || processes().size() == ranks) return false;
  SUCCEED("for " << ranks << " processes");
  return true;
}
/// Numbers of ranks to test: those asked for, as threads; under MPI only as many as there are processes.
inline std::vector<int> rank_counts(std::vector<int> asked) {
  return under_mpi() ? std::vector<int>{processes().size()} : asked;
}

/// Whether tests do less than they may, of the same kinds: under sanitizers, on many processes and on emulated devices,
/// where they take long and others have run them in full (tests/meson.build sets TRIREME_TEST_BRIEF).
inline bool brief() { return std::getenv("TRIREME_TEST_BRIEF") != nullptr; }

/// Where a rank's model is to lie: TRIREME_TEST_DEVICE=cuda puts each on a GPU of its own as far as there are any.
inline Device test_device(const World& world) {
  const char* name = std::getenv("TRIREME_TEST_DEVICE");
  if (name == nullptr || std::string_view(name) != "cuda") return cpu();
  return cuda(world.rank() % std::max(1, open_backend(DeviceKind::cuda).devices));
}

/// Two nodes, with room for so many ranks on each, that are linked more slowly than within.
inline Cluster two_nodes(int devices) {
  return {.nodes = {{.count = 2, .devices = devices}},
          .inside = {.latency = 100e-9, .bandwidth = 1e9},
          .between = {.latency = 1000e-9, .bandwidth = 0.25e9}};
}

/// World::threads, and the same in virtual time.
using Launch = std::function<void(int ranks, const std::function<void(World&)>&)>;
inline std::vector<Launch> launches() {
  return {World::threads,
          [](int ranks, const auto& body) { World::virtual_time(ranks, two_nodes((ranks + 1) / 2), body); }};
}
/// Runs body by each of them.
inline void launch(int ranks, const std::function<void(World&)>& body) {
  for (const Launch& run : launches()) run(ranks, body);
}

/// Runs body on each rank and returns what rank 0 (under MPI: this rank) returned. No assertions inside:
/// Catch is for one thread. virtual_time: on threads whose time is simulated.
template <class F>
auto on_ranks(int ranks, F&& body, bool virtual_time = false) {
  using R = decltype(body(std::declval<World&>()));
  if (ranks > 1 && under_mpi()) return body(processes());
  std::optional<R> result;
  const auto run = [&](World& world) {
    R mine = body(world);
    if (world.rank() == 0) result = std::move(mine);
  };
  if (virtual_time)
    World::virtual_time(ranks, two_nodes((ranks + 1) / 2), run);
  else
    World::threads(ranks, run);
  return *std::move(result);
}

inline std::uint64_t mix(std::uint64_t v) {  // Steele, Lea & Flood 2014: splitmix64
  v += 0x9e3779b97f4a7c15u;
  v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
  v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
  return v ^ (v >> 31);
}

/// Images of noise with 5 classes. binary: pixels are 0 or 1, so that sums over them are exact.
class Noise final : public DatasetSource {
 public:
  Noise(Index size, Shape shape, bool binary = false) : size_(size), shape_(std::move(shape)), binary_(binary) {}
  std::string name() const override { return "noise"; }
  Index size() const override { return size_; }
  Shape shape() const override { return shape_; }
  Index classes() const override { return 5; }
  PixelScale scale() const override { return {}; }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey&) const override {
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      auto bits = mix(static_cast<std::uint64_t>(id) * 4096 + i);
      pixels[i] = static_cast<std::uint8_t>(binary_ ? (bits % 2) * 255 : bits % 256);
    }
    return static_cast<std::int64_t>(mix(static_cast<std::uint64_t>(id)) % 5);
  }

 private:
  Index size_;
  Shape shape_;
  bool binary_;
};

/// True on every rank when all ranks hold the same bits.
inline bool agree(World& world, const Tensor& t) {
  const Tensor first = t.clone();
  world.comm().broadcast(first, 0).wait();
  const Tensor same = Tensor::empty({1}, DType::i64);
  *same.data<std::int64_t>() = first.to_vector() == t.to_vector();
  world.comm().all_reduce(same, ReduceOp::min).wait();
  return *same.data<std::int64_t>() == 1;
}

struct Outcome {
  std::vector<double> losses, weights, buffers;
  std::vector<double> first = {};                               ///< weights after one step
  bool agreed = true;                                           // all ranks ended with the same weights and buffers
  std::vector<std::size_t> weight_ends = {}, buffer_ends = {};  ///< of each tensor
};
/// Of a weight that ranks hold parts of; a collective call then.
inline Tensor whole(const Tensor& t) {
  const NoGrad off;
  return gathered(t);
}
inline std::vector<double> whole_weights(const Parameters& p) {
  std::vector<double> all;
  for (auto& e : p.entries())
    for (double v : whole(e.tensor).to_vector()) all.push_back(v);
  return all;
}
inline Outcome outcome(World& world, std::vector<double> losses, const Parameters& p) {
  Outcome o{.losses = std::move(losses), .weights = {}, .buffers = {}};
  const auto add = [&](std::vector<double>& to, std::vector<std::size_t>& ends, const Tensor& t) {
    const Tensor all = whole(t);
    o.agreed = agree(world, all) && o.agreed;
    for (double v : all.to_vector()) to.push_back(v);
    ends.push_back(to.size());
  };
  for (auto& e : p.entries()) add(o.weights, o.weight_ends, e.tensor);
  for (auto& b : p.buffers()) add(o.buffers, o.buffer_ends, b.tensor);
  return o;
}

}  // namespace trireme::test
