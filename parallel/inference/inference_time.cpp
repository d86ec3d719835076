#include "parallel/inference/inference_time.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>

#include "framework/layers/inference.h"
#include "parallel/comm/call.h"
#include "parallel/comm/virtual_clock.h"
#include "parallel/comm/world/world.h"

namespace trireme {

Shape shape_to_measure(const VolumeNet& net) {
  Shape shape = net.input();
  const int axes = shape.rank() - 2;
  const double cells = static_cast<double>(shape.product(1, axes + 1));
  const double each = net.cost(0, net.layers(), whole_box(net.output())).operations / cells;
  const auto edge = static_cast<Index>(std::pow(1e10 / each, 1.0 / axes));
  for (int axis = 1; axis <= axes; ++axis) {
    const Index wanted = std::clamp<Index>(edge, axes == 2 ? 128 : 48, axes == 2 ? 1024 : 128);
    if (shape[axis] > wanted)
      shape[axis] = std::max<Index>(16, wanted / 16 * 16);  // a size that models with strides
                                                            // accept
  }
  return shape;
}

double measured_operations(const VolumeNet& net) {
  const Inference inference;
  const Box all = whole_box(net.output());
  const double operations = net.cost(0, net.layers(), all).operations;
  double best = 0;
  for (int run = 0; run < 3; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    (void)net.run(
        0, net.layers(), [&](const Box& box) { return Tensor::zeros(box.size, net.dtype()); }, all);
    best = std::max(best, operations / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

InferenceRates rates_of(const Cluster& cluster, int ranks, const InferenceRates& others) {
  check(
      ranks <= cluster.devices(), "infer", "the mesh has {} ranks, the cluster{} has {} devices", ranks,
      [&] { return cluster.name.empty() ? "" : " " + cluster.name; }, cluster.devices());
  InferenceRates rates = others;
  double slowest = cluster.speed_of(0);
  for (int rank = 1; rank < ranks; ++rank) slowest = std::min(slowest, cluster.speed_of(rank));
  rates.operations = cluster.flops * slowest;
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  const Link& link = cluster.link(all);
  rates.message = link.latency;
  rates.link = link.per_byte() > 0 ? 1 / link.per_byte() : INFINITY;
  return rates;
}

SimulatedInference simulate_mesh(const VolumeNet& net, const std::vector<Axis>& mesh, const Cluster& cluster) {
  const int axes = net.output().rank() - 2;
  const std::vector<ShareStep> steps = net.steps(division_of(mesh, axes, nullptr), places_of(mesh, axes));
  SimulatedInference all;
  std::mutex mutex;
  World::virtual_time(ranks_of(mesh), cluster, [&](World& world) {
    Communicator& comm = world.comm();
    VirtualClock& clock = *comm.clock();
    const int me = world.rank();
    Nanoseconds computing = 0;
    double sent = 0;
    Index messages = 0;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const ShareStep& step = steps[s];
      const double seconds = step.operations[static_cast<std::size_t>(me)] / cluster.flops;
      const Nanoseconds took = cluster.compute(nanoseconds(seconds), me, s);
      clock.advance(took);
      computing += took;
      if (step.have.empty()) continue;
      const Route there = route(step.have, step.want, me);
      std::vector<Work> works;
      const auto start = [&](CallKind kind, const Route::Piece& piece) {
        const Tensor nothing = Tensor::empty({0}, net.dtype());
        const Call call{.kind = kind, .count = piece.box.size.numel(), .type = net.dtype(), .root = piece.peer};
        works.push_back(kind == CallKind::send ? comm.start(call, {}, nothing, {}) : comm.start(call, nothing, {}, {}));
      };
      for (const Route::Piece& piece : there.recvs) start(CallKind::recv, piece);
      for (const Route::Piece& piece : there.sends) {
        start(CallKind::send, piece);
        sent += static_cast<double>(piece.box.size.numel() * size_of(net.dtype()));
        ++messages;
      }
      for (Work& work : works) work.wait();
    }
    const std::lock_guard lock(mutex);
    all.seconds = std::max(all.seconds, 1e-9 * static_cast<double>(clock.now()));
    all.computing = std::max(all.computing, 1e-9 * static_cast<double>(computing));
    all.sent += sent;
    all.messages += messages;
  });
  return all;
}

}  // namespace trireme
